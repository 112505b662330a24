"""The command that replays calls, as an operator runs it while a server has the store open."""

import subprocess
import sys
from pathlib import Path

from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, StoreTuning
from tests.peers.postgres import postgres, postgres_url  # noqa: F401
from tests.peers.server import ROOT

JOURNAL = {"call_id": "a", "operations": []}


def replay(session_id: str, url: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "parley.session_store.replay", session_id, "--url", url)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)


def looks(folder: Path) -> dict[str, tuple[int, int]]:
    """Return sizes and times of the files.

    The contents are not read: closing a file releases every lock that the process has on it.
    """
    return {path.name: (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.iterdir()}


async def test_a_file_that_a_server_has_open_is_read_with_its_log_and_left_as_it_is(tmp_path: Path) -> None:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/a.db"))
    writer = await store.claim((await store.create()).id)
    for _ in range(3):
        await writer.append(Draft(Kind.JOURNAL, JOURNAL, 1, 1, "test"))
    before = looks(tmp_path)
    # Appended events are in the log alone.
    assert set(before) == {"a.db", "a.db-wal", "a.db-shm"} and before["a.db-wal"][0] > 0
    done = replay(writer.session_id, f"sqlite:///{tmp_path}/a.db")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == "call a: 0 annotations, the journal does not begin with its settings\n"
    assert looks(tmp_path) == before
    # The server goes on.
    assert [event.seq for event in await writer.append(Draft(Kind.JOURNAL, JOURNAL, 1, 1, "test"))] == [4]
    await store.close()


async def test_a_server_s_database_is_read(postgres_url: str) -> None:  # noqa: F811
    store = await SessionStore.open(StoreTuning(url=postgres_url))
    writer = await store.claim((await store.create()).id)
    await writer.append(Draft(Kind.JOURNAL, JOURNAL, 1, 1, "test"))
    done = replay(writer.session_id, postgres_url)
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.startswith("call a: 0 annotations")
    await store.close()
