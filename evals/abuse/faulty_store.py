"""Program whose session store is on a bad disk: ``python -m evals.abuse.faulty_store FILE PROGRAM ...``.

``set_faults`` changes the disk at any moment: commits of SQLite take longer, as on a disk whose writes wait,
or databases take no writes, as on a file system that the kernel has made read-only. A commit waits in the
thread of its connection, as it does for a disk. A write is refused by SQLite itself (``query_only``), with
the error of a database that cannot be written. Done in Python, because a file system that can be slowed needs
rights that an evaluation does not have.
"""

import mmap
import runpy
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Any

# Duration of a commit in seconds, and 1 for no writes.
FAULTS = struct.Struct("dd")
LOOK_S = 0.02


def set_faults(file: Path, *, commit_s: float = 0.0, is_read_only: bool = False) -> None:
    """Set the disk of a program; create the file when it is missing."""
    with file.open("r+b" if file.exists() else "wb") as output:
        output.write(FAULTS.pack(commit_s, float(is_read_only)))


def main(file: Path, program: list[str]) -> None:
    """Run a program with the disk of a file."""
    with file.open("rb") as given:
        faults = mmap.mmap(given.fileno(), FAULTS.size, access=mmap.ACCESS_READ)

    def commit_s() -> float:
        return float(FAULTS.unpack_from(faults)[0])

    def is_read_only() -> bool:
        return FAULTS.unpack_from(faults)[1] > 0

    class Cursor(sqlite3.Cursor):
        def execute(self, *statement: Any) -> Any:
            self._settle()
            return super().execute(*statement)

        def executemany(self, *statement: Any) -> Any:
            self._settle()
            return super().executemany(*statement)

        def _settle(self) -> None:
            connection = self.connection
            assert isinstance(connection, Connection)
            wanted = is_read_only()
            if wanted == connection.is_forbidden:
                return
            [(was_read_only,)] = super().execute("PRAGMA query_only").fetchall()
            if wanted:
                # Connections that only read keep that.
                connection.only_reads = bool(was_read_only)
            if not connection.only_reads:
                super().execute(f"PRAGMA query_only={int(wanted)}")
            connection.is_forbidden = wanted

    class Connection(sqlite3.Connection):
        is_forbidden = False
        only_reads = False

        def cursor(self, factory: Any = Cursor) -> Any:
            return super().cursor(factory)

        def commit(self) -> None:
            began_s = time.monotonic()
            # A disk that works again ends the wait.
            while self.in_transaction and time.monotonic() - began_s < commit_s():
                time.sleep(LOOK_S)
            super().commit()

    connect = sqlite3.connect

    def connect_faulty(*arguments: Any, **options: Any) -> Any:
        return connect(*arguments, **{"factory": Connection, **options})

    sqlite3.connect = sqlite3.dbapi2.connect = connect_faulty
    sys.argv = program
    runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
