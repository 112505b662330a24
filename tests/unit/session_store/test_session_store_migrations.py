import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from parley.core.errors import ConfigError
from parley.session_store import migrations
from parley.session_store.migrations import new_store
from parley.session_store.schema import HEAD, VERSION_TABLE, metadata
from parley.session_store.store import SessionStore, StoreTuning
from scripts.write_new_store import statements


def migrate(url: str, revision: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        migrations.upgrade(connection, revision)
    engine.dispose()


def test_the_head_is_the_newest_revision() -> None:
    folder = Path(migrations.__file__).parent
    assert ScriptDirectory(str(folder)).get_heads() == [HEAD]


def test_a_new_file_is_what_the_migrations_make_it() -> None:
    assert new_store.REVISION == HEAD, "run python -m scripts.write_new_store"
    assert list(new_store.STATEMENTS) == statements(HEAD), "run python -m scripts.write_new_store"


@pytest.mark.parametrize("is_new", [True, False])
def test_the_migrations_lead_to_the_tables_that_the_store_uses(tmp_path: Path, is_new: bool) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    if not is_new:
        migrate(url, "0001")
    migrate(url, HEAD)
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'"))
    # Properties that no comparison sees: a copy of a table made by a migration can lose both.
    assert "WITHOUT ROWID" in tables["session"] and "WITHOUT ROWID" in tables["event"]
    assert "ON DELETE CASCADE" in tables["event"]


async def test_a_migration_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url, "0001")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        # A table in the way of the second revision, after its first statements.
        connection.exec_driver_sql("CREATE TABLE _alembic_tmp_event (x)")
    content = dump(tmp_path / "a.db")
    with pytest.raises(ConfigError, match="_alembic_tmp_event"):
        await SessionStore.open(StoreTuning(url=url))
    assert dump(tmp_path / "a.db") == content


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


async def test_a_session_of_before_there_were_owners_is_the_operators(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    migrate(url, "0004")
    session_id = "0" * 8 + "-0000-0000-0000-" + "0" * 12
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute(
            "INSERT INTO session (id, tenant, epoch, next_seq, created_us, last_us) "
            f"VALUES ('{session_id}', 'default', 0, 1, 1, 1)"
        )
    store = await SessionStore.open(StoreTuning(url=url))
    try:
        assert (await store.info(session_id)).owner is None
        owned = await store.create(owner="k:ann")
        assert (await store.info(owned.id)).owner == "k:ann"
        # A claim, and an export to another deployment.
        assert (await store.claim(owned.id)).epoch == 1
        assert (await store.info(owned.id)).owner == "k:ann"
        assert "k:ann" not in "".join([line async for line in store.export(owned.id)])
    finally:
        await store.close()
