import pytest

from parley.core.errors import ConfigError
from parley.session_store.settings import StoreTuning


@pytest.mark.parametrize(
    ("url", "driver", "database"),
    [
        ("sqlite:///folder/file.db", "sqlite+pysqlite", "folder/file.db"),
        ("sqlite:////absolute/file.db", "sqlite+pysqlite", "/absolute/file.db"),
        ("postgresql://me@host:5433/calls", "postgresql+asyncpg", "calls"),
        ("postgres://me@host/calls", "postgresql+asyncpg", "calls"),
        ("postgresql+asyncpg://me@host/calls", "postgresql+asyncpg", "calls"),
    ],
)
def test_an_address_names_its_database(url: str, driver: str, database: str) -> None:
    address = StoreTuning(url=url).address()
    assert (address.drivername, address.database) == (driver, database)


@pytest.mark.parametrize(
    "url",
    [
        *("nonsense", "sqlite://", "sqlite:///:memory:", "sqlite:///a.db?mode=ro", "sqlite://host/a.db"),
        *("mysql://me@host/calls", "postgresql://me@host", "postgresql+psycopg2://me@host/calls"),
        "postgresql://me@host:port/calls",
    ],
)
def test_an_address_that_the_store_cannot_use_is_refused_with_examples(url: str) -> None:
    with pytest.raises(ConfigError) as error:
        StoreTuning(url=url).address()
    assert any("sqlite:///" in example for example in error.value.known)


def test_a_password_is_in_no_text() -> None:
    settings = StoreTuning(url="postgresql://me:secret@host/calls")
    assert "secret" not in repr(settings) and "secret" not in str(settings.address())
    with pytest.raises(ConfigError) as error:
        StoreTuning(url="mysql://me:secret@host/calls").address()
    assert "secret" not in str(error.value)
