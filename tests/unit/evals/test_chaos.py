"""Rows of the chaos evaluation: their verdicts, and one of them on a real worker."""

import subprocess
import sys
from pathlib import Path

import pytest

from parley.core.errors import ConfigError, PeerError
from parley.evals.abuse.faulty_store import set_faults
from parley.evals.chaos.__main__ import run_rows
from parley.evals.chaos.rows import ROWS, ChaosRow, ChaosRun, rows

ROOT = Path(__file__).resolve().parents[3]
# Writes a row for each line, as the session store does: transactions begin by a statement.
PROGRAM = """
import sqlite3, sys, time
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.cursor().execute("CREATE TABLE rows (number INTEGER)")
for line in sys.stdin:
    began_s = time.monotonic()
    try:
        cursor = connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        cursor.execute("INSERT INTO rows VALUES (1)")
        connection.commit()
        result = "written"
    except sqlite3.Error as error:
        connection.rollback()
        result = error.sqlite_errorname
    print(f"{result};{time.monotonic() - began_s}", flush=True)
"""


def test_names_choose_rows_and_an_unknown_one_is_an_error():
    assert rows(None) == list(ROWS)
    assert [row.name for row in rows(["full-disk", "worker-killed"])] == ["full-disk", "worker-killed"]
    with pytest.raises(ConfigError, match="no-such-row"):
        rows(["no-such-row"])


async def test_a_row_with_faults_or_that_cannot_be_run_has_failed(tmp_path: Path):
    async def sound(_run: ChaosRun) -> list[str]:
        return []

    async def faulty(_run: ChaosRun) -> list[str]:
        return ["a fault"]

    async def broken(_run: ChaosRun) -> list[str]:
        raise PeerError("no server")

    wanted = [ChaosRow(cause.__name__, "", "", cause) for cause in (sound, faulty, broken)]
    found = await run_rows(wanted, ChaosRun(tmp_path, 1))
    assert [each.faults for each in found] == [[], ["a fault"], ["it could not be run: no server"]]


@pytest.mark.parametrize("name", ["worker-killed", "worker-split"])
async def test_a_worker_that_is_lost_has_its_outcome(tmp_path: Path, name: str):
    [found] = await run_rows(rows([name]), ChaosRun(tmp_path, 1))
    assert found.faults == []


def test_a_faulty_store_is_slow_or_takes_no_writes_as_its_file_says(tmp_path: Path):
    faults, database = tmp_path / "disk", tmp_path / "sessions.db"
    set_faults(faults)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command = [sys.executable, "-m", "parley.evals.abuse.faulty_store", str(faults), str(program)]
    with subprocess.Popen(
        [*command, str(database)], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None and child.stdout is not None

        def written() -> tuple[str, float]:
            child.stdin.write("go\n")
            child.stdin.flush()
            result, took_s = child.stdout.readline().split(";")
            return result, float(took_s)

        assert written()[0] == "written"
        set_faults(faults, is_read_only=True)
        assert written()[0] == "SQLITE_READONLY"
        set_faults(faults, commit_s=0.3)
        result, took_s = written()
        assert result == "written" and took_s >= 0.3
        set_faults(faults)
        assert written()[0] == "written"
        child.stdin.close()
    assert child.returncode == 0
