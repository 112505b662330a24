"""Address and timeouts of the session store.

Decides what an address means; opens nothing. A password belongs in the environment (``PGPASSWORD``), which
the PostgreSQL driver reads, rather than in the address.
"""

from pathlib import Path

from pydantic import Field
from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from parley.core.errors import ConfigError
from parley.core.strict_model import StrictModel

EXAMPLES = ("sqlite:///folder/file.db", "postgresql://user@host:5432/database")


class StoreSettings(StrictModel):
    """Place of the sessions, and how long they are kept."""

    url: str = Field(
        "sqlite:///sessions/sessions.db",
        min_length=1,
        repr=False,
        description="``sqlite:///relative/file.db``, ``sqlite:////absolute/file.db`` or "
        "``postgresql://user@host:port/database``; the environment variable PARLEY_STORE_URL takes "
        "precedence",
    )
    retention_days: float | None = Field(
        # A clock that jumps is accepted after a day (``retention``).
        None,
        gt=0,
        description="age of a session's last event after which the session is deleted; null: sessions are "
        "never deleted",
    )
    retention_every_s: float = Field(3_600, ge=1, description="interval between two checks for old sessions")

    def address(self) -> URL:
        """Return the parsed address.

        Raises:
            ConfigError: not the address of a database that the store can use.
        """
        try:
            url = make_url(self.url)
        except (ArgumentError, ValueError) as error:
            raise ConfigError("the address of the session store is not valid", known=EXAMPLES) from error
        match url.drivername:
            case "sqlite" | "sqlite+pysqlite":
                if not url.database or url.database == ":memory:" or url.query or url.host:
                    raise ConfigError("the address of the session store names no file", known=EXAMPLES)
                return url.set(drivername="sqlite+pysqlite")
            case "postgresql" | "postgresql+asyncpg" | "postgres":
                if not url.database:
                    raise ConfigError("the address of the session store names no database", known=EXAMPLES)
                return url.set(drivername="postgresql+asyncpg")
        raise ConfigError(f"the session store cannot use {url.drivername!r}", known=EXAMPLES)


class StoreTuning(StoreSettings):
    """Settings, completed by values that no deployment sets.

    Attributes:
        append_deadline_s: longest wait of a write for an unavailable database.
        turn_deadline_s: the same for a write that a person waits for: a new session, its claim, a typed turn.
        read_deadline_s: the same for a read.
        open_deadline_s: the same for the first connection and for a migration by another process.
        attempt_s: time limit of one transaction, after which its connection is closed.
        busy_timeout_ms: longest wait of one transaction for another process to release a SQLite file.
        max_queue: writes that may be queued at once; further ones wait for a place, within their deadline.
        batch_events: events in one transaction; one larger append is a transaction of its own.
        max_payload_bytes: of one event, as JSON.
        close_s: time limit for queued writes when the store is closed.
        poll_s: interval in which a follower looks for writes of other processes.
        check_file: read a SQLite file completely for damage when it is opened (about 1 s per GB).
    """

    append_deadline_s: float = Field(default=60, gt=0, le=3_600)
    turn_deadline_s: float = Field(default=5, gt=0, le=3_600)
    read_deadline_s: float = Field(default=10, gt=0, le=3_600)
    open_deadline_s: float = Field(default=30, gt=0, le=3_600)
    attempt_s: float = Field(default=10, ge=0.1, le=600)
    busy_timeout_ms: int = Field(default=1_000, ge=0, le=60_000)
    max_queue: int = Field(default=10_000, ge=1, le=1_000_000)
    batch_events: int = Field(default=1_000, ge=1, le=10_000)
    max_payload_bytes: int = Field(default=1_000_000, ge=1_000, le=100_000_000)
    close_s: float = Field(default=10, gt=0, le=600)
    poll_s: float = Field(default=1, ge=0.01, le=60)
    check_file: bool = True


def file_of(url: URL) -> Path:
    """Return the file of a SQLite address."""
    assert url.database
    return Path(url.database)
