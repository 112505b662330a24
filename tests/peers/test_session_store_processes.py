"""Processes that share a session store: killed, frozen, superseded."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, StoreTuning
from tests.peers.postgres import postgres, postgres_url  # noqa: F401
from tests.peers.server import ROOT

CHILD = ROOT / "tests" / "peers" / "session_store_child.py"
KILLS = 4
TIMEOUT_S = 60


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        return request.getfixturevalue("postgres_url")
    return f"sqlite:///{tmp_path}/a.db"


@asynccontextmanager
async def child(url: str, *session_ids: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, str(CHILD), url, *session_ids),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def lines_until(process: asyncio.subprocess.Process, count: int) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        return [(await process.stdout.readuntil()).decode().strip() for _ in range(count)]


async def rest_of(process: asyncio.subprocess.Process) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        *whole, _cut = (await process.stdout.read()).decode().split("\n")
    return whole


async def test_what_a_killed_process_was_acknowledged_is_stored_once_and_without_gaps(url: str) -> None:
    acknowledged: set[tuple[str, int, str]] = set()
    for kill in range(KILLS):
        async with child(url) as process:
            lines = await lines_until(process, 100 + 97 * kill)
            process.send_signal(signal.SIGKILL)
            lines += await rest_of(process)
        for line in lines[1:]:
            session_id, seq, key = line.split()
            acknowledged.add((session_id, int(seq), key))
    store = await SessionStore.open(StoreTuning(url=url))
    stored: set[tuple[str, int, str]] = set()
    infos = await store.sessions(limit=1_000)
    for info in infos:
        events = await store.events(info.id, limit=1_000_000)
        assert [event.seq for event in events] == list(range(1, info.last_seq + 1))
        assert len({event.key for event in events}) == len(events)
        stored |= {(info.id, event.seq, event.key) for event in events}
    await store.close()
    assert len(infos) == 3 * KILLS and len(acknowledged) > 100 * KILLS
    assert acknowledged <= stored


async def test_of_two_processes_that_claim_one_session_the_first_is_fenced(url: str) -> None:
    store = await SessionStore.open(StoreTuning(url=url))
    session_id = (await store.create()).id
    async with child(url, session_id) as first:
        old = await lines_until(first, 50)
        async with child(url, session_id) as second:
            new = await lines_until(second, 50)
            old += await rest_of(first)
            assert await first.wait() == 0
            second.send_signal(signal.SIGKILL)
            new += await rest_of(second)
    assert (old[0], new[0], old[-1]) == ("claimed 1", "claimed 2", "fenced")
    events = await store.events(session_id, limit=1_000_000)
    await store.close()
    last_old = max(int(line.split()[1]) for line in old[1:-1])
    first_new = min(int(line.split()[1]) for line in new[1:])
    # No row of the first writer follows the claim of the second, acknowledged or not.
    epochs = [event.epoch for event in events]
    assert epochs == sorted(epochs) and set(epochs) == {1, 2}
    assert last_old < first_new == epochs.index(2) + 1
    assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_frozen_process_that_was_superseded_writes_nothing_when_it_thaws(url: str) -> None:
    store = await SessionStore.open(StoreTuning(url=url, append_deadline_s=TIMEOUT_S))
    session_id = (await store.create()).id
    async with child(url, session_id) as frozen:
        await lines_until(frozen, 50)
        # A process that is frozen inside a transaction holds the lock of a SQLite file, and only it can
        # release it. It is then continued for a moment, and frozen again.
        while True:
            frozen.send_signal(signal.SIGSTOP)
            try:
                async with asyncio.timeout(1):
                    writer = await store.claim(session_id)
                break
            except TimeoutError:
                frozen.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.01)
        [mine] = await writer.append(Draft(Kind.USER_TURN, {"text": "mine"}, 1, 1, "user"))
        frozen.send_signal(signal.SIGCONT)
        assert (await rest_of(frozen))[-1] == "fenced"
    events = await store.events(session_id, after_seq=mine.seq - 1, limit=1_000)
    await store.close()
    assert events == [mine]
