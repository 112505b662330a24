"""Transactions on SQLite and on PostgreSQL, through one interface.

Work is a plain function over a SQLAlchemy Core connection, the same for both databases. It runs in a
transaction: one at a time on the connection that writes, several at once on those that read. Every exception
of a driver leaves this module as one of the store's errors, classified by the possible reaction:

* ``StoreUnavailableError``: the database is unavailable. The same work may be tried again; it may or may not
  have been committed.
* ``LockedError``: another process holds the row at this moment.
* ``RefusedError``: the database answers and does not accept these rows.

SQLite runs in dedicated threads rather than through ``aiosqlite``. That costs one change of threads per
transaction instead of one per statement, and a loop on virtual time can run it inline.
"""

import asyncio
import os
import sqlite3
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import asyncpg
import sqlalchemy as sa
from loguru import logger
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import NullPool

from parley.core.errors import ConfigError, StoreError, StoreUnavailableError
from parley.session_store import migrations
from parley.session_store.settings import StoreTuning, file_of

T = TypeVar("T")
Work = Callable[[sa.Connection], T]

# Every commit notifies it with "session seq", so that followers in other processes read at once.
CHANNEL = "session_store"
# Longest wait of the emptying of SQLite's log for a reader; commits wait as long.
SCRUB_WAIT_MS = 50
READERS = 4
# Pages of SQLite's write-ahead log, 4 KiB each, before they are copied into the file. The commit that reaches
# the limit does the copying. A commit of twenty sessions writes 65 pages (each session is a page of three
# trees). With SQLite's own 1,000 every 15th commit would copy, and one append in twenty would wait for that.
CHECKPOINT_PAGES = 4_000
SQLITE_MAGIC = b"SQLite format 3\0"
# Header of a SQLite file, up to the byte that is 2 when the file uses a write-ahead log.
HEADER_BYTES = 19
# SQLite checks after this number of steps whether a statement is still wanted: about once in a millisecond.
STEPS_BETWEEN_LOOKS = 10_000
# Conversations are private to the user who runs the server.
FOLDER_MODE = 0o700
FILE_MODE = 0o600
# "parley" on a telephone keypad; any number that no other program is likely to lock.
MIGRATION_LOCK = 727539
CONNECT_RETRY_S = 0.2
LOCK_POLL_S = 0.01
# Its other values wait for the disk too, some also for replicas, and stay as they are.
_SYNCED = sa.text(
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
)


class RefusedError(StoreError):
    """The database does not accept these rows, now or later."""


class UnpreparedStoreError(ConfigError):
    """There is no store yet, or one of an older release: the start of a server prepares it."""


class LockedError(StoreUnavailableError):
    """Another process holds the row: try again at once."""


class ReadDatabase(Protocol):
    """Database for work that only reads."""

    async def open(self) -> None:
        """Prepare the database. A ``Database`` migrates its schema; any other leaves it as it is.

        Raises:
            ConfigError: the database cannot be used.
            StoreUnavailableError: it does not answer.
        """
        ...

    async def read(self, work: Work[T]) -> T:
        """Run work that only reads, on one snapshot of the data, for ``attempt_s`` at most.

        Raises:
            StoreError: as the module docstring lists.
        """
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


class Database(ReadDatabase, Protocol):
    """Database for work that reads and writes."""

    async def write(self, work: Work[T]) -> T:
        """Run work in a transaction; durable when it returns. One at a time.

        Raises:
            StoreError: as the module docstring lists.
        """
        ...

    async def scrub(self) -> bool:
        """Remove deleted rows from the files of this process; return False where a reader prevents it now.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        ...

    async def listen(self, heard: Callable[[str], None]) -> None:
        """Call ``heard`` with the announcements of other processes, until the connection ends.

        Raises:
            StoreUnavailableError: the database does not answer.
        """
        ...


def database(settings: StoreTuning) -> Database:
    """Return the database of the configured address.

    Raises:
        ConfigError: the address is not understood.
    """
    url = settings.address()
    return SqliteDatabase(settings) if url.get_backend_name() == "sqlite" else PostgresDatabase(settings)


def read_only_database(settings: StoreTuning) -> ReadDatabase:
    """Return the database of the configured address, opened so that nothing can be changed.

    Raises:
        ConfigError: the address is not understood.
    """
    if settings.address().get_backend_name() == "sqlite":
        return SqliteReader(settings)
    return PostgresDatabase(settings, read_only=True)


class SqliteReader:
    """SQLite file that is only read, with a few threads and connections.

    The file and its folder stay unchanged.
    """

    _use = "read"

    def __init__(self, settings: StoreTuning) -> None:
        self._settings = settings
        self._url = settings.address()
        self._path = file_of(self._url)
        self._reader_threads = ThreadPoolExecutor(READERS, thread_name_prefix="session_store.read")
        self._readers = self._make_readers(self._url)

    async def open(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._reader_threads, self._look_at_file)
        await self._connect_readers()

    async def read(self, work: Work[T]) -> T:
        unwanted = threading.Event()
        try:
            with _translated("SQLite"):
                async with asyncio.timeout(self._settings.attempt_s):
                    return await asyncio.get_running_loop().run_in_executor(
                        self._reader_threads, self._look, work, unwanted
                    )
        finally:
            # A thread cannot be cancelled, but the statement that it runs ends. One that hangs in the
            # operating system keeps its thread, without a waiter.
            unwanted.set()

    async def close(self) -> None:
        self._readers.dispose()
        self._reader_threads.shutdown(wait=False)

    def _make_readers(self, url: sa.URL) -> sa.Engine:
        wait_ms = min(self._settings.busy_timeout_ms, round(self._settings.attempt_s * 1_000))
        pragmas = (f"busy_timeout={wait_ms}", "query_only=ON")
        return self._make_engine("BEGIN", *pragmas, url=url, pool_size=READERS, max_overflow=0)

    def _make_engine(
        self,
        begin: str | None,
        *pragmas: str,
        url: sa.URL | None = None,
        busy_timeout_ms: int | None = None,
        **pool: Any,
    ) -> sa.Engine:
        engine = sa.create_engine(
            url or self._url,
            # Transactions begin below, not in the driver at the first INSERT.
            connect_args={"check_same_thread": False, "isolation_level": None},
            hide_parameters=True,
            **pool,
        )
        settings = (
            # First, because the pragmas after it may have to wait for a lock.
            f"busy_timeout={busy_timeout_ms or self._settings.busy_timeout_ms}",
            "synchronous=FULL",
            "foreign_keys=ON",
            # Deleted data is overwritten with zeros: a deleted conversation does not remain in free pages.
            "secure_delete=ON",
            f"wal_autocheckpoint={CHECKPOINT_PAGES}",
            *pragmas,
        )

        def on_connect(connection: sqlite3.Connection, _record: object) -> None:
            for pragma in settings:
                connection.execute(f"PRAGMA {pragma}").close()

        event.listen(engine, "connect", on_connect)
        if begin is not None:
            event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
        return engine

    async def _connect_readers(self) -> None:
        """Open every reading connection now, so that calls do not compete with them for descriptors later."""
        await asyncio.get_running_loop().run_in_executor(self._reader_threads, self._fill_readers)

    def _fill_readers(self) -> None:
        with self._explained(), ExitStack() as stack:
            for _ in range(READERS):
                connection = stack.enter_context(self._readers.connect())
                # SQLite opens the log with the first read.
                connection.exec_driver_sql("SELECT count(*) FROM sqlite_schema").close()

    def _look(self, work: Work[T], unwanted: threading.Event) -> T:
        with _translated("SQLite"), self._readers.connect() as connection:
            driver = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.set_progress_handler(unwanted.is_set, STEPS_BETWEEN_LOOKS)
            try:
                return work(connection)
            finally:
                driver.set_progress_handler(None, 0)

    def _look_at_file(self) -> None:
        with self._explained():
            header = self._header()
            if not header:
                raise UnpreparedStoreError(f"there is no session store {self._path}")
            self._readers = self._make_readers(self._untouched(header))
            with self._readers.connect() as connection:
                self._inspect(connection, existed=True)
                _check_readable(connection)

    def _header(self) -> bytes:
        """Return the beginning of the file; empty when the file is missing or empty."""
        if not self._path.exists():
            return b""
        with self._path.open("rb") as file:
            header = file.read(HEADER_BYTES)
        # SQLite treats a file of a few bytes as empty and overwrites it.
        if header and not (header.startswith(SQLITE_MAGIC) and len(header) == HEADER_BYTES):
            raise self._foreign()
        return header

    def _untouched(self, header: bytes) -> sa.URL:
        """Return an address with which SQLite creates and changes no file, including its side files."""
        how = {"uri": "true", "mode": "ro"}
        log, index = (Path(f"{self._path}{ending}") for ending in ("-wal", "-shm"))
        if header[HEADER_BYTES - 1] == 2:
            if log.exists() and index.exists():
                # Another process has it open, or crashed: the index is shared as it is, or rebuilt in memory.
                how["readonly_shm"] = "1"
            elif log.exists() and log.stat().st_size > 0:
                raise ConfigError(
                    f"{self._path}: has a -wal file without its -shm file; start Parley on it once"
                )
            else:
                # No process has it open and it is complete. SQLite would create both files all the same.
                how["immutable"] = "1"
        return self._url.set(database=f"file:{quote(str(self._path.absolute()))}", query=how)

    def _inspect(self, connection: sa.Connection, *, existed: bool) -> None:
        """Check what kind of file it is before anything in it is changed, its journal mode included."""
        if existed and self._settings.check_file:
            found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            if found != "ok":
                raise self._damaged()
        migrations.check_version(connection)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Translate an error of the file to one line that says what is wrong with it."""
        try:
            yield
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}; set another store.url") from error
        except ConfigError as error:
            if str(self._path) in str(error):
                raise
            raise type(error)(f"{self._path}: {error}") from error
        except DBAPIError as error:
            match _sqlite_code(error):
                case sqlite3.SQLITE_NOTADB:
                    raise self._foreign() from error
                case sqlite3.SQLITE_CORRUPT:
                    raise self._damaged() from error
                case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                    raise self._forbidden() from error
                case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
                    raise StoreUnavailableError(f"{self._path}: is locked by another program") from error
                case sqlite3.SQLITE_FULL:
                    raise ConfigError(f"{self._path}: the disk is full; free some space") from error
            raise ConfigError(f"{self._path}: {error.orig}") from error

    def _forbidden(self) -> ConfigError:
        return ConfigError(
            f"{self._path}: cannot be {self._use}; give this user access to it and to its folder"
        )

    def _foreign(self) -> ConfigError:
        return ConfigError(f"{self._path}: is not a SQLite database; move it away or give another store.url")

    def _damaged(self) -> ConfigError:
        return ConfigError(
            f"{self._path}: is damaged; restore it from a copy, or move it away with its -wal and -shm files"
        )


class SqliteDatabase(SqliteReader):
    """SQLite file with one thread and connection that write, and a few that read."""

    _use = "written"

    def __init__(self, settings: StoreTuning) -> None:
        super().__init__(settings)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="session_store.write")
        self._engine = self._make_engine("BEGIN IMMEDIATE", poolclass=NullPool)
        self._connection: sa.Connection | None = None

    async def open(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._prepare)
        await self._connect_readers()

    async def write(self, work: Work[T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._transact, work)

    async def scrub(self) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._empty_log)

    def _empty_log(self) -> bool:
        """Move the log into the file and cut it to nothing, unless a reader keeps it for long."""
        how: dict[str, Any] = {"busy_timeout_ms": SCRUB_WAIT_MS, "poolclass": NullPool}
        with _translated("SQLite"), self._make_engine(None, **how).connect() as connection:
            row = connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)").first()
        return row is not None and row[0] == 0

    async def listen(self, heard: Callable[[str], None]) -> None:
        # A file announces nothing: followers poll for the writes of other processes.
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        disconnected = asyncio.get_running_loop().run_in_executor(self._thread, self._disconnect)
        self._thread.shutdown(wait=False)
        await asyncio.wait({disconnected}, timeout=self._settings.close_s)
        if disconnected.done():
            disconnected.result()
        else:
            logger.warning(f"session store: {self._path} hangs in a write, which may be lost")
        await super().close()

    def _transact(self, work: Work[T]) -> T:
        with _translated("SQLite"):
            if self._connection is None:
                self._connection = self._engine.connect()
            try:
                with self._connection.begin():
                    return work(self._connection)
            except (StoreError, sa.exc.IntegrityError, sa.exc.DataError):
                # Caused by the work or its rows; the connection has rolled back and can be used again.
                raise
            except BaseException:
                # After a full disk or an I/O error a connection may not recover on its own.
                self._disconnect()
                raise

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _prepare(self) -> None:
        with self._explained():
            existed = bool(self._header())
            self._make_private()
            # Foreign keys are off: a migration that copies a table drops the old one, which would delete the
            # events of every session.
            how: dict[str, Any] = {
                "busy_timeout_ms": max(1, round(self._settings.open_deadline_s * 1_000)),
                "poolclass": NullPool,
            }
            with self._make_engine(None, "foreign_keys=OFF", **how).connect() as connection:
                self._inspect(connection, existed=existed)
                if self._keep_log(connection) != "wal":
                    raise ConfigError(f"{self._path}: the file system does not support a write-ahead log")
            engine = self._make_engine("BEGIN EXCLUSIVE", "foreign_keys=OFF", **how)
            with engine.connect() as connection, connection.begin():
                if not migrations.upgrade(connection):
                    return
                if connection.exec_driver_sql("PRAGMA foreign_key_check").first() is not None:
                    raise ConfigError(
                        f"{self._path}: contains events without a session; restore it from a copy"
                    )

    def _keep_log(self, connection: sa.Connection) -> str | None:
        """Turn on the write-ahead log and return the journal mode that the file then has.

        SQLite does not wait here for a process that is about to write. In spite of ``busy_timeout`` it
        reports at once that the file is locked. Of several processes that open a new file together, one would
        fail.
        """
        deadline_s = time.monotonic() + self._settings.open_deadline_s
        # Attempts are counted as well, because virtual time stands still here.
        looks_left = round(self._settings.open_deadline_s / LOCK_POLL_S)
        while True:
            try:
                return connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
            except DBAPIError as error:
                if _sqlite_code(error) != sqlite3.SQLITE_BUSY or looks_left <= 0:
                    raise
                if time.monotonic() >= deadline_s:
                    raise
            looks_left -= 1
            time.sleep(LOCK_POLL_S)

    def _make_private(self) -> None:
        """Create the file, and the missing folders on its path, for this user alone.

        Existing ones are not changed. SQLite gives its side files the mode of the file.
        """
        try:
            for folder in reversed(self._path.parents):
                if not folder.is_dir():
                    folder.mkdir(FOLDER_MODE, exist_ok=True)
            if not self._path.exists():
                os.close(os.open(self._path, os.O_RDWR | os.O_CREAT, FILE_MODE))
        except PermissionError as error:
            raise self._forbidden() from error


class PostgresDatabase:
    """PostgreSQL server: one connection that writes, a pool that reads, one that listens.

    Args:
        settings: address and timeouts.
        read_only: check the schema without migrating it; the server refuses changes.
    """

    def __init__(self, settings: StoreTuning, *, read_only: bool = False) -> None:
        self._settings = settings
        self._read_only = read_only
        self._url = settings.address()
        milliseconds = str(round(settings.attempt_s * 1_000))
        self._engine: AsyncEngine = create_async_engine(
            self._url,
            pool_size=READERS,
            max_overflow=2,
            pool_pre_ping=True,
            pool_timeout=settings.read_deadline_s,
            # Texts of conversations must not appear in exceptions.
            hide_parameters=True,
            connect_args={
                "timeout": settings.attempt_s,
                "server_settings": {
                    "application_name": "parley",
                    # The planner's compiler costs more than it saves for such small statements.
                    "jit": "off",
                    "statement_timeout": milliseconds,
                    # A process that is frozen inside a transaction releases its rows.
                    "idle_in_transaction_session_timeout": milliseconds,
                    **({"default_transaction_read_only": "on"} if read_only else {}),
                },
            },
        )
        self._connection: AsyncConnection | None = None

    async def open(self) -> None:
        deadline = asyncio.get_running_loop().time() + self._settings.open_deadline_s
        # The first import reads many files.
        await asyncio.to_thread(__import__, "alembic.command")
        while True:
            try:
                async with self._explained():
                    await (self._look_at_schema() if self._read_only else self._migrate())
                return
            except StoreUnavailableError:
                if asyncio.get_running_loop().time() > deadline:
                    raise
                await asyncio.sleep(CONNECT_RETRY_S)

    async def write(self, work: Work[T]) -> T:
        with _translated("PostgreSQL"):
            try:
                async with asyncio.timeout(self._settings.attempt_s):
                    if self._connection is None:
                        self._connection = await self._connect_to_write()
                    async with self._connection.begin():
                        return await self._connection.run_sync(work)
            except DBAPIError as error:
                if error.connection_invalidated or _postgres_away(error):
                    await self._disconnect()
                raise
            except StoreError:
                # Caused by the work; the connection has rolled back and can be used again.
                raise
            except BaseException:
                await self._disconnect()
                raise

    async def read(self, work: Work[T]) -> T:
        with _translated("PostgreSQL"):
            async with asyncio.timeout(self._settings.attempt_s), self._engine.connect() as connection:
                return await connection.run_sync(work)

    async def scrub(self) -> bool:
        # Its dead rows are the server's own: it removes them with its next vacuum.
        return True

    async def listen(self, heard: Callable[[str], None]) -> None:
        with _translated("PostgreSQL"):
            async with self._engine.connect() as connection:
                raw = await connection.get_raw_connection()
                driver = raw.driver_connection
                assert driver is not None
                ended = asyncio.Event()
                try:
                    driver.add_termination_listener(lambda _connection: ended.set())
                    await driver.add_listener(CHANNEL, lambda _c, _pid, _channel, text: heard(text))
                    await ended.wait()
                except (asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                    raise StoreUnavailableError(
                        f"PostgreSQL closed the connection ({type(error).__name__})"
                    ) from error
                finally:
                    # No other user may get a connection that listens.
                    await connection.invalidate()

    async def close(self) -> None:
        await self._disconnect()
        try:
            async with asyncio.timeout(self._settings.close_s):
                await self._engine.dispose()
        except TimeoutError:
            # It closes each connection with a handshake, which a hanging server does not answer.
            logger.warning("session store: PostgreSQL does not answer, closing its connections")

    async def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.invalidate()
            await connection.close()

    async def _connect_to_write(self) -> AsyncConnection:
        """Return a connection whose commits are on disk when they are acknowledged.

        The server's default may be otherwise.
        """
        connection = await self._engine.connect()
        try:
            await connection.execute(_SYNCED)
            await connection.commit()
        except BaseException:
            await connection.invalidate()
            await connection.close()
            raise
        return connection

    async def _look_at_schema(self) -> None:
        async with self._engine.connect() as connection:
            await connection.run_sync(_check_readable)

    async def _migrate(self) -> None:
        async with self._engine.connect() as connection:
            wait_ms = round(self._settings.open_deadline_s * 1_000)
            # Another process may be migrating; this wait may take longer than a statement.
            await connection.execute(sa.text(f"SET LOCAL statement_timeout = {wait_ms}"))
            await connection.execute(sa.text(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})"))
            await connection.execute(sa.text("SET LOCAL statement_timeout = 0"))
            await connection.run_sync(migrations.upgrade)
            await connection.commit()

    @asynccontextmanager
    async def _explained(self) -> AsyncIterator[None]:
        """Translate an error of the server or its address to one line."""
        where = self._url.set(username=None, password=None).render_as_string()
        try:
            yield
        except ConfigError as error:
            raise type(error)(f"{where}: {error}") from error
        except (OSError, TimeoutError) as error:
            raise StoreUnavailableError(f"{where}: does not answer ({type(error).__name__})") from error
        except DBAPIError as error:
            state = _sqlstate(error)
            # 28: authentication; 3D, 3F: missing database or schema; 42501: insufficient privilege.
            if state[:2] in {"28", "3D", "3F"} or state == "42501":
                raise ConfigError(f"{where}: {error.orig}") from error
            raise StoreUnavailableError(f"{where}: {error.orig}") from error


def _check_readable(connection: sa.Connection) -> None:
    """Check the schema where it may not be migrated.

    Raises:
        UnpreparedStoreError: it is not the newest one.
        ConfigError: a newer release or another program wrote it.
    """
    if not migrations.check_version(connection):
        if migrations.version(connection) is None:
            raise UnpreparedStoreError("does not contain a session store")
        raise UnpreparedStoreError("was written by an older release; start Parley on it once to upgrade it")


@contextmanager
def _translated(name: str) -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        # The driver's text quotes values of the row, which are private: the log gets the type only.
        kind = type(error.orig).__name__
        if _sqlstate(error) == "55P03":
            raise LockedError(f"{name}: the row is locked") from error
        if error.connection_invalidated or _sqlite_away(error) or _postgres_away(error):
            raise StoreUnavailableError(f"{name} does not answer ({kind} {_reason(error)})") from error
        raise RefusedError(f"{name} rejects the rows ({kind} {_reason(error)})") from None
    except (OSError, TimeoutError) as error:
        raise StoreUnavailableError(f"{name} does not answer ({type(error).__name__})") from error
    except sa.exc.TimeoutError as error:
        # The pool has no connection in time.
        raise StoreUnavailableError(f"{name} does not answer ({type(error).__name__})") from error


def _reason(error: DBAPIError) -> str:
    return getattr(error.orig, "sqlite_errorname", "") or _sqlstate(error)


def _sqlite_code(error: DBAPIError) -> int:
    """Return the primary result code; 0 for another database."""
    return int(getattr(error.orig, "sqlite_errorcode", 0)) & 0xFF


def _sqlite_away(error: DBAPIError) -> bool:
    # Errors that are not about a row: busy, full, I/O error, cannot open, read-only, damaged.
    return isinstance(error.orig, sqlite3.DatabaseError) and not isinstance(
        error.orig,
        sqlite3.IntegrityError | sqlite3.DataError | sqlite3.ProgrammingError | sqlite3.NotSupportedError,
    )


def _sqlstate(error: DBAPIError) -> str:
    return str(getattr(error.orig, "sqlstate", None) or "")


def _postgres_away(error: DBAPIError) -> bool:
    """Return whether an error is about the server and not about a row.

    22: data; 23: integrity; 54: too large; P0: raised by a trigger. Any other error, a lost connection
    without a state included, may disappear when the server is back or has been repaired.
    """
    if isinstance(error.orig, sqlite3.Error):
        return False
    return _sqlstate(error)[:2] not in {"22", "23", "54", "P0"} and not isinstance(
        error, sa.exc.IntegrityError
    )
