"""The command that moves a session between databases, as an operator runs it."""

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, StoreTuning
from tests.peers.postgres import postgres, postgres_url  # noqa: F401
from tests.peers.server import ROOT

NO_SESSION = "00000000-0000-4000-8000-000000000000"


def transfer(*arguments: str, lines: str = "") -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "parley.session_store.transfer", *arguments)
    return subprocess.run(command, cwd=ROOT, input=lines, capture_output=True, text=True, timeout=60)


async def filled(url: str) -> str:
    store = await SessionStore.open(StoreTuning(url=url))
    writer = await store.claim((await store.create()).id)
    await writer.append(
        *[Draft(Kind.USER_TURN, {"text": f"žluť \u2028 {n}"}, n, n, "user") for n in range(50)]
    )
    await store.close()
    return writer.session_id


async def events(url: str, session_id: str) -> list[object]:
    store = await SessionStore.open(StoreTuning(url=url))
    found = await store.events(session_id, limit=1_000)
    await store.close()
    return list(found)


async def test_a_session_moves_from_a_file_to_a_server_and_back(tmp_path: Path, postgres_url: str) -> None:  # noqa: F811
    here, back = f"sqlite:///{tmp_path}/a.db", f"sqlite:///{tmp_path}/b.db"
    session_id = await filled(here)
    first = transfer("export", "--url", here, session_id)
    taken = transfer("import", "--url", postgres_url, lines=first.stdout)
    assert (taken.returncode, taken.stdout) == (0, f"session {session_id}: 50 events\n")
    second = transfer("export", "--url", postgres_url, session_id)
    assert second.stdout == first.stdout
    assert transfer("import", "--url", back, lines=second.stdout).returncode == 0
    assert await events(back, session_id) == await events(here, session_id)
    again = transfer("import", "--url", back, lines=second.stdout)
    assert again.returncode == 2 and "already" in again.stderr


async def test_an_export_makes_no_store_and_migrates_none(tmp_path: Path) -> None:
    missing = transfer("export", "--url", f"sqlite:///{tmp_path}/inner/typo.db", NO_SESSION)
    assert missing.returncode == 2 and "typo.db" in missing.stderr
    assert list(tmp_path.iterdir()) == []
    here = f"sqlite:///{tmp_path}/a.db"
    session_id = await filled(here)
    with closing(sqlite3.connect(tmp_path / "a.db")) as old, old:
        old.execute("UPDATE session_store_version SET version_num = '0001'")
    older = transfer("export", "--url", here, session_id)
    assert older.returncode == 2 and older.stderr.count("\n") == 1 and "older release" in older.stderr


@pytest.mark.parametrize(
    ("arguments", "lines", "said"),
    [
        (("export", "--url", "{url}", NO_SESSION), "", "no session"),
        (("export", "--url", "nonsense", "x"), "", "is not valid"),
        (("import", "--url", "{url}"), "hello\n", "JSON"),
        (("import", "--url", "{url}"), "", "is truncated"),
        (("import", "--url", "sqlite:////dev/null/a.db"), "", "/dev/null"),
    ],
)
def test_a_fault_is_one_line(tmp_path: Path, arguments: tuple[str, ...], lines: str, said: str) -> None:
    url = f"sqlite:///{tmp_path}/a.db"
    done = transfer(*(argument.format(url=url) for argument in arguments), lines=lines)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1 and said in done.stderr
