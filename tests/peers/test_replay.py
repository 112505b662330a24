"""A recorded call is held again: with the deployment that recorded it, and with another one."""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionReader
from tests.peers.server import ROOT, running_server
from tests.peers.test_recording import hold_call, only_recording, recording_deployment

pytestmark = [pytest.mark.paired, pytest.mark.asyncio(loop_scope="module")]


@dataclass(frozen=True)
class RecordedSession:
    """A session with one recorded call, in a folder with its deployment."""

    folder: Path
    session: str


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = (sys.executable, *arguments)
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RecordedSession]:
    folder = tmp_path_factory.mktemp("recorded")
    config = recording_deployment(folder)
    async with running_server("--config", str(config)) as server:
        await hold_call(server.url, "What are your opening hours on Saturday?")
        recording = await only_recording(folder)
    yield RecordedSession(folder, recording.session_id)


async def events_of(recorded: RecordedSession) -> int:
    store = await SessionReader.open(StoreSettings(url=os.environ["PARLEY_STORE_URL"]))
    try:
        return (await store.info(recorded.session)).last_seq
    finally:
        await store.close()


async def test_the_same_deployment_decides_the_same_and_leaves_the_session_alone(recorded: RecordedSession):
    before = await events_of(recorded)
    config, output = str(recorded.folder / "embedded.yaml"), str(recorded.folder / "replay")
    arguments = ("--replay", recorded.session, "--config", config, "--output", output)
    replayed = await asyncio.to_thread(run, "bot.py", *arguments)
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr
    assert "3 turns, 0 decided otherwise" in replayed.stdout
    assert "no such session" not in replayed.stdout
    assert re.search(r"latency \d+ -> \d+ ms", replayed.stdout)
    assert await events_of(recorded) == before
    page = (recorded.folder / "replay" / "index.html").read_text()
    assert "1 of 1 calls were decided alike" in page
    for audio in re.findall(r'src="([^"]+)"', page):
        assert (recorded.folder / "replay" / audio).stat().st_size > 100_000


async def test_a_suite_shows_what_another_deployment_changes(recorded: RecordedSession):
    settings = yaml.safe_load((recorded.folder / "embedded.yaml").read_text())
    settings["bot"] = {"greeting": "Good morning to you."}
    (recorded.folder / "other.yaml").write_text(yaml.safe_dump(settings))
    folder, config, output = (str(recorded.folder / name) for name in ("data", "other.yaml", "suite"))
    suite = await asyncio.to_thread(
        run, "-m", "evals.regression", folder, "--config", config, "--output", output
    )
    assert suite.returncode == 1, suite.stdout + suite.stderr
    assert "| calls decided otherwise | 1 of 1 |" in suite.stdout
    assert "then: Hello there." in suite.stderr and "now: Good morning to you." in suite.stderr
