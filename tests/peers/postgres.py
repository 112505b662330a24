"""A PostgreSQL server of the tests' own: real, durable, on a private port, removed at the end.

It is started once per test process, by the first test that requests it; each test gets an empty database. It
runs as the user ``postgres`` when the tests run as root, because the server refuses to run as root. Tests
that stop or freeze the server have one that no other test has used: recovery reads every file of every
database.
"""

import atexit
import functools
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest

from tests.peers.server import free_port
from tests.system import missing

START_TIMEOUT_S = 60
# Configuration of a deployment (fsync is on by default), in the size of a test.
CONFIGURATION = """
listen_addresses = '127.0.0.1'
unix_socket_directories = '{folder}'
fsync = on
full_page_writes = on
synchronous_commit = on
shared_buffers = 32MB
max_connections = 60
max_wal_size = 256MB
"""


def binaries() -> Path | None:
    """Return the folder of the server's programs, or None when they are missing."""
    found = shutil.which("pg_ctl")
    if found:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"), key=lambda path: int(path.parts[-3]))
    return folders[-1].parent if folders else None


class PostgresServer:
    """A running server, which a test may stop, freeze and start again."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="parley-postgres-"))
        self._data = self._folder / "data"
        self._names = itertools.count(1)
        self._as: tuple[str, ...] = ()
        if os.geteuid() == 0:
            shutil.chown(self._folder, "postgres", "postgres")
            self._as = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")
        self.port = free_port()
        self._run(
            "initdb", "-D", self._data, "-U", "parley", "-A", "trust", "-E", "UTF8", "--no-instructions"
        )
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(CONFIGURATION.format(folder=self._folder))
        self.start()

    def start(self) -> None:
        log = self._folder / "log"
        self._run(
            "pg_ctl",
            "-D",
            self._data,
            "-o",
            f"-p {self.port}",
            "-l",
            log,
            "-w",
            "-t",
            START_TIMEOUT_S,
            "start",
        )

    def stop(self) -> None:
        """Stop at once: clients lose their connections, and the next start recovers from the log."""
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def freeze(self) -> None:
        """Stop every process of the server without closing anything, as a hung machine does."""
        for process in self._processes():
            process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        for process in self._processes():
            process.send_signal(signal.SIGCONT)

    def new_database(self) -> str:
        """Make an empty database and return its address."""
        name = f"test_{os.getpid()}_{next(self._names)}"
        self._run("createdb", "-h", "127.0.0.1", "-p", self.port, "-U", "parley", name)
        return f"postgresql://parley@127.0.0.1:{self.port}/{name}"

    def remove(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.thaw()
            self.stop()
        shutil.rmtree(self._folder)

    def _processes(self) -> list[psutil.Process]:
        head = psutil.Process(int((self._data / "postmaster.pid").read_text().splitlines()[0]))
        return [head, *head.children(recursive=True)]

    def _run(self, program: str, *arguments: object) -> None:
        command: Sequence[str] = (*self._as, str(self._programs / program), *map(str, arguments))
        done = subprocess.run(
            command,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=2 * START_TIMEOUT_S,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace').strip()}")


@functools.cache
def _server(users: str) -> PostgresServer:
    programs = binaries()
    if programs is None:
        missing("postgresql")
    server = PostgresServer(programs)
    atexit.register(server.remove)
    return server


@pytest.fixture
def postgres() -> PostgresServer:
    """Return the running server; it must not be stopped."""
    return _server("all")


@pytest.fixture
def own_postgres() -> PostgresServer:
    """Return a running server that the test may stop and freeze."""
    return _server("who stop it")


@pytest.fixture
def postgres_url(postgres: PostgresServer) -> str:
    """Return the address of an empty database."""
    return postgres.new_database()


@pytest.fixture
def own_postgres_url(own_postgres: PostgresServer) -> str:
    """Return the address of an empty database on the server that may be stopped and frozen."""
    return own_postgres.new_database()
