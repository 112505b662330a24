"""``parley forget`` at a running server: a caller is gone from database, files and memory, others are not."""

import asyncio
import json
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from parley.transports.twilio.simulated_caller import CALLER
from tests.peers.operations_gateway import BEARER
from tests.peers.server import ROOT, RunningServer, briefly_greeting, running_server
from tests.peers.test_phone_sessions import OTHER, call, sessions

# The caller says nothing: these are the words of every session.
GREETING = "Hello there."
LINE = "+15550199"


@asynccontextmanager
async def line(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[RunningServer, httpx.AsyncClient, Path]]:
    """Run a server that records, remembers callers, and keeps everything in one folder."""
    data = folder / "data"
    data.mkdir()
    monkeypatch.setenv("PARLEY_CALLER_KEY", "k" * 32)
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{data}/sessions.db")
    path = briefly_greeting(folder)
    settings = yaml.safe_load(path.read_text())
    settings |= {
        "phone": {"signatures": False, "number": LINE, "remember_callers": {"trust": "any"}},
        "recording": {"enabled": True, "folder": str(data / "recordings"), "min_free_gb": 0},
        "operations": {"data_dir": str(data)},
    }
    path.write_text(yaml.safe_dump(settings))
    async with (
        running_server("--config", str(path), log=folder / "server.log") as server,
        httpx.AsyncClient(base_url=server.url, timeout=60, headers=BEARER) as client,
    ):
        yield server, client, data


async def forget(server: RunningServer, *arguments: str, stdin: str = "") -> tuple[int, str, str]:
    """Run the command; return its status, output and errors."""
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley", "forget", "--server", server.url, *arguments),
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, error = await asyncio.wait_for(child.communicate(stdin.encode()), 60)
    return child.returncode or 0, out.decode(), error.decode()


async def recorded(data: Path, session: str) -> None:
    """Wait until the calls of a session are over on the disk."""
    folder = data / "recordings" / "sessions" / session
    async with asyncio.timeout(60):
        while not list(folder.glob("*/merged_replay.wav")):
            await asyncio.sleep(0.1)


def traces(data: Path, *parts: str) -> list[str]:
    """Return the places below a folder that have any of these texts: names, contents, rows."""
    found = []
    for path in data.rglob("*"):
        content = path.read_bytes() if path.is_file() else b""
        found += [str(path) for part in parts if part in str(path) or part.encode() in content]
    with sqlite3.connect(data / "sessions.db") as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        for name in names:
            rows = map(repr, database.execute(f'SELECT * FROM "{name}"'))
            found += [name for row in rows for part in parts if part in row]
    return found


@pytest.mark.alone
async def test_a_caller_is_forgotten_everywhere_and_the_next_call_is_a_new_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_ADMIN_TOKEN", "a token of the tests that is long enough")
    async with line(tmp_path, monkeypatch) as (server, client, data):
        await call(server)
        await call(server)
        await call(server, number=OTHER)
        other, mine = await sessions(client)
        for session in (other, mine):
            await recorded(data, session)
        commented = await client.post(
            f"/api/sessions/{mine}/comments", json={"at_us": 1, "text": "She sighs."}
        )
        assert commented.status_code == 201
        assert (await client.post(f"/api/sessions/{mine}/shares")).status_code == 201
        assert (await client.post(f"/api/sessions/{mine}/tags", json={"tag": "call back"})).status_code == 200

        status, out, error = await forget(server, "--number", "-", "--dry-run", "--json", stdin=f"{CALLER}\n")
        assert status == 0, error
        planned = json.loads(out)
        assert planned["sessions"] == [mine] and planned["removed"]["comments"] == 1
        assert len(await sessions(client)) == 2

        status, out, error = await forget(server, "--number", CALLER, "--json")
        assert status == 0, error
        done: dict[str, Any] = json.loads(out)
        assert done["sessions"] == [mine] and done["pending"] == [] and not done["more"]
        removed = done["removed"]
        assert {kind: removed[kind] for kind in planned["removed"] if planned["removed"][kind]} == {
            kind: count for kind, count in planned["removed"].items() if count
        }
        # One digest for the line, and one for the person.
        assert (removed["sessions"], removed["numbers"], removed["links"], removed["tags"]) == (1, 2, 1, 1)
        assert removed["recorded calls"] == 2 and removed["recorded files"] >= 10
        assert traces(data, mine, CALLER, "She sighs.") == []
        assert (await client.get(f"/api/sessions/{mine}")).status_code == 404
        assert (await client.get(f"/api/sessions/{mine}/recordings")).json() == {"calls": []}
        # The number of no caller is anywhere: a digest is.
        assert traces(data, OTHER) == [] and traces(data, other) and traces(data, GREETING)

        # The person calls again: a new session, in a call when everything is removed once more.
        calling = asyncio.create_task(call(server, quiet_s=60))
        async with asyncio.timeout(60):
            while len(await sessions(client)) < 2:
                await asyncio.sleep(0.1)
            [again] = set(await sessions(client)) - {other}
            while not list((data / "recordings" / "sessions").glob(f"{again}/*/meta.json")):
                await asyncio.sleep(0.1)
        status, out, error = await forget(server, "--number", CALLER)
        assert status == 0, error
        counted = dict(row.rsplit(maxsplit=1) for row in out.splitlines()[1:])
        assert (counted["  sessions"].strip(), counted["  ended calls"].strip()) == ("1", "1")
        async with asyncio.timeout(30):
            assert (await calling).ended != "caller"
            while traces(data, again):
                await asyncio.sleep(0.1)
        assert await sessions(client) == [other]

        status, _, error = await forget(server, "--number", "anonymous")
        assert status == 2 and "number:" in error
    # The end of the server writes what waits.
    assert traces(data, mine, again, CALLER, "She sighs.") == []


async def test_the_reason_for_a_refusal_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_ADMIN_TOKEN", "a token that is another one, and long enough")
    async with running_server("--config", str(briefly_greeting(tmp_path))) as server:
        status, out, error = await forget(server, "--session", "5d1c2d0e-0000-4000-8000-000000000000")
    assert (status, out) == (2, "") and len(error.splitlines()) == 1 and "refuses (403)" in error
    status, out, error = await forget(server, "--user", "ann")
    assert (status, out) == (2, "") and len(error.splitlines()) == 1 and "is not reached" in error
