"""A recorded call is held again: with the deployment that recorded it, and with another one."""

import asyncio
import json
import os
import re
import subprocess
import sys
import wave
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
import yaml

from parley.command.replay import NO_HISTORY
from parley.configs.load import load_deployment
from parley.configs.print_config import as_yaml
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.serving.gateway.replays.jobs import ReplayJobs, ReplayState
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionReader
from tests.peers.operations_gateway import BEARER
from tests.peers.server import ROOT, running_server
from tests.peers.test_command import speech
from tests.peers.test_recording import hold_call, only_recording, recording_deployment
from tests.peers.webrtc_caller import greeted
from tests.recorded_call import record_call

SESSION = "0123abcd-0123-4567-89ab-0123456789ab"
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


async def test_each_call_is_held_again_in_its_own_mode_with_what_was_typed(tmp_path: Path):
    config, caller = recording_deployment(tmp_path), tmp_path / "caller.wav"
    async with running_server("--config", str(config)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client, greeted(client) as typist:
            question = {"content": "How do I report a lost card?", "options": {"run_immediately": True}}
            typist.send({"label": "rtvi-ai", "type": "send-text", "id": "2", "data": question})
            await typist.until(lambda: len(typist.of_type("bot-stopped-speaking")) == 2)
        await only_recording(tmp_path)
    with wave.open(str(caller), "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(speech("What are your opening hours on Saturday?") + bytes(32_000 * 6))
    files = ("--input", str(caller), "--output", str(tmp_path / "call.wav"), "--config", str(config))
    held = await asyncio.to_thread(run, "bot.py", "--transport", "file", "--mode", "duplex", *files)
    assert held.returncode == 0, held.stderr
    again = ("--config", str(config), "--output", str(tmp_path / "suite"))
    suite = await asyncio.to_thread(run, "-m", "evals.regression", str(tmp_path / "data"), *again)
    # What a full-duplex engine decides on a busy machine is no part of this test.
    assert suite.returncode < 2, suite.stdout + suite.stderr
    assert "typed:" not in suite.stderr, suite.stderr
    page = (tmp_path / "suite" / "index.html").read_text()
    assert "typed: How do I report a lost card?" in page and "opening hours" in page
    made = [json.loads(meta.read_text()) for meta in (tmp_path / "suite").rglob("meta.json")]
    assert sorted(each["mode"] for each in made) == [CASCADE, DUPLEX]


async def test_a_server_holds_a_call_again_in_a_process_of_its_own(tmp_path: Path):
    config = recording_deployment(tmp_path)
    path = await record_call(tmp_path / "data", SESSION)
    jobs = ReplayJobs(lambda: as_yaml(load_deployment(config)), parent=tmp_path)
    replay = jobs.start(SESSION, path.name, 1_000)
    try:
        async with asyncio.timeout(120):
            while not replay.is_over:
                await asyncio.sleep(0.1)
    finally:
        await jobs.close()
    assert (replay.state, replay.reason) == (ReplayState.DONE, "")
    assert replay.comparison is not None and NO_HISTORY in str(replay.comparison["notes"])
    assert replay.at_ms > 0 and b"<h1>Replay with" in replay.page
    assert not list(tmp_path.glob("parley-replay-job-*"))


@pytest.mark.slow  # The same over HTTP, with a call of half a minute.
async def test_the_operator_replays_a_call_on_the_server_that_has_it(recorded: RecordedSession):
    config = str(recorded.folder / "embedded.yaml")
    async with running_server("--config", config) as server:
        async with httpx.AsyncClient(base_url=server.url, headers=BEARER, timeout=60) as operator:
            recordings = f"/api/sessions/{recorded.session}/recordings"
            (call,) = (await operator.get(recordings)).json()["calls"]
            address = f"{recordings}/{call['call_id']}/replays"
            begun = await operator.post(address)
            assert begun.status_code == 202, begun.text
            async with asyncio.timeout(120):
                while (replay := (await operator.get(address)).json())["state"] in ("loading", "replaying"):
                    await asyncio.sleep(0.2)
            page = (await operator.get(f"{address}/page")).text
        # The server's own child is gone, and so is its folder.
        assert not [each for each in server.process.children() if "replay_job" in " ".join(each.cmdline())]
    assert (replay["state"], replay["reason"]) == ("done", "")
    assert replay["comparison"]["is_decided_alike"], replay["comparison"]["turns"]
    assert len(replay["comparison"]["turns"]) == 3
    assert replay["comparison"]["median"]["latency_ms"]["now"] > 0
    assert "1 of 1 calls were decided alike" in page
