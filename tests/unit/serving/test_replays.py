"""Replays of recorded calls on a server: their processes, their states, and who may begin one."""

import asyncio
import base64
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from fastapi import FastAPI

from parley.core.errors import CapacityError
from parley.pipelines.call_recording import CallRecordings
from parley.recording.at_rest import KEYS_ENV
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.replays.jobs import PREFIX, CallReplay, ReplayJobs, ReplayState
from parley.serving.scheduler.admission import Admitted
from tests.peers.session_gateway import Turns, application, client_of
from tests.recorded_call import record_call

JOB = (sys.executable, str(Path(__file__).with_name("replay_job.py")))
SESSION = "0123abcd-0123-4567-89ab-0123456789ab"
SUCCEEDS, IS_KILLED, FAILS, GOES_ON, IS_SILENT = (f"{'a' * 31}{digit}" for digit in range(5))
WITHIN_S = 20


def jobs_in(folder: Path, **settings: Any) -> ReplayJobs:
    """Return replays whose folders are in this one."""
    return ReplayJobs(lambda: "name: today\n", job=JOB, parent=folder, **settings)


async def over(replay: CallReplay) -> CallReplay:
    async with asyncio.timeout(WITHIN_S):
        while not replay.is_over:
            await asyncio.sleep(0.01)
    return replay


async def under_way(replay: CallReplay, folder: Path) -> Path:
    """Wait until a replay goes on without an end; return its folder."""
    note = folder / f"{replay.call_id}.folder"
    async with asyncio.timeout(WITHIN_S):
        while replay.state is not ReplayState.REPLAYING or not note.exists() or not note.read_text():
            await asyncio.sleep(0.01)
    return Path(note.read_text())


def left_in(folder: Path) -> list[Path]:
    return list(folder.glob(f"{PREFIX}*"))


async def test_a_replay_shows_its_comparison_and_leaves_nothing(tmp_path: Path):
    jobs = jobs_in(tmp_path)
    replay = await over(jobs.start(SESSION, SUCCEEDS, 1_000))
    assert (replay.state, replay.at_ms, replay.reason) == (ReplayState.DONE, 250, "")
    assert replay.comparison == {"summary": "1 turn", "turns": [], "session": SESSION}
    assert replay.page == b"<h1>Replay</h1>"
    assert left_in(tmp_path) == []
    assert jobs.get(SESSION, SUCCEEDS) is replay
    await jobs.forget(SESSION)
    assert jobs.get(SESSION, SUCCEEDS) is None


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (IS_KILLED, "its process was killed by SIGKILL"),
        (FAILS, "an engine does not load"),
        (IS_SILENT, "its process ended with status 7: the log of the server has its messages"),
    ],
)
async def test_a_process_that_ends_otherwise_is_a_failure_with_its_reason(
    tmp_path: Path, call: str, reason: str
):
    jobs = jobs_in(tmp_path)
    replay = await over(jobs.start(SESSION, call, 1_000))
    assert (replay.state, replay.reason, replay.comparison) == (ReplayState.FAILED, reason, None)
    assert left_in(tmp_path) == []
    # The next one begins.
    assert (await over(jobs.start(SESSION, SUCCEEDS, 1_000))).state is ReplayState.DONE


async def test_one_replay_at_a_time_and_it_can_be_cancelled(tmp_path: Path):
    jobs = jobs_in(tmp_path)
    replay = jobs.start(SESSION, GOES_ON, 1_000)
    folder = await under_way(replay, tmp_path)
    with pytest.raises(CapacityError, match="is being replayed"):
        jobs.start(SESSION, SUCCEEDS, 1_000)
    assert folder.exists()
    await jobs.cancel(replay)
    assert (replay.state, folder.exists()) == (ReplayState.CANCELLED, False)
    assert (await over(jobs.start(SESSION, SUCCEEDS, 1_000))).state is ReplayState.DONE


async def test_a_replay_that_does_not_end_is_ended_at_its_deadline(tmp_path: Path):
    jobs = jobs_in(tmp_path, load_s=1.0)
    replay = await over(jobs.start(SESSION, GOES_ON, 0))
    assert (replay.state, replay.reason) == (ReplayState.FAILED, "it was not over after 1 s")
    assert left_in(tmp_path) == []


async def test_a_server_that_stops_ends_its_replay(tmp_path: Path):
    jobs = jobs_in(tmp_path)
    replay = jobs.start(SESSION, GOES_ON, 1_000)
    folder = await under_way(replay, tmp_path)
    await jobs.close()
    assert (replay.state, folder.exists()) == (ReplayState.CANCELLED, False)
    with pytest.raises(CapacityError, match="the server stops"):
        jobs.start(SESSION, SUCCEEDS, 1_000)


async def test_what_a_killed_server_left_is_removed_by_a_later_one(tmp_path: Path):
    # The id of a process that is over.
    ended = await asyncio.create_subprocess_exec(sys.executable, "-c", "")
    await ended.wait()
    # A container gives its next server the same id: this process has begun no replay.
    killed, same, running = (tmp_path / f"{PREFIX}{pid}-x" for pid in (ended.pid, os.getpid(), os.getppid()))
    foreign, link = tmp_path / f"{PREFIX}x", tmp_path / f"{PREFIX}{ended.pid}-y"
    for folder in (killed, same, running, foreign):
        folder.mkdir()
        (folder / "call.wav").touch()
    link.symlink_to(foreign)
    await jobs_in(tmp_path).open()
    assert sorted(left_in(tmp_path)) == sorted([running, foreign, link])
    assert (foreign / "call.wav").exists()


async def test_a_command_that_does_not_exist_is_a_failure(tmp_path: Path):
    jobs = ReplayJobs(str, job=(str(tmp_path / "absent"),), parent=tmp_path)
    replay = await over(jobs.start(SESSION, SUCCEEDS, 1_000))
    assert replay.state is ReplayState.FAILED and "No such file" in replay.reason


class Recorded:
    """A session with one recorded call, at a gateway with replays.

    Attributes:
        app: the gateway.
        operator, guest: clients.
        path: folder of the recording.
        call: address of the recorded call.
    """

    def __init__(
        self, app: FastAPI, operator: httpx.AsyncClient, guest: httpx.AsyncClient, session: str, path: Path
    ) -> None:
        self.app, self.operator, self.guest, self.path = app, operator, guest, path
        self.session = f"/api/sessions/{session}"
        self.call = f"{self.session}/recordings/{path.name}"

    async def begin(self) -> httpx.Response:
        return await self.operator.post(f"{self.call}/replays")

    async def state(self) -> httpx.Response:
        return await self.operator.get(f"{self.call}/replays")


@asynccontextmanager
async def recorded_at(folder: Path, digit: int, *, encrypted: bool = False) -> AsyncIterator[Recorded]:
    """Yield a call whose replay does what the digit says."""
    recordings = CallRecordings(RecordingSettings(folder=folder, encrypted=encrypted), "embedded")
    jobs = jobs_in(folder)
    async with application(folder, Turns(), recordings=recordings, replays=jobs) as (app, _):
        async with client_of(app, operator=True) as operator, client_of(app) as guest:
            session = (await operator.post("/api/sessions")).json()["id"]
            made = await record_call(folder, session, encrypted=encrypted, call_id=f"{'c' * 31}{digit}")
            yield Recorded(app, operator, guest, session, made)
        await jobs.close()


@pytest_asyncio.fixture
async def recorded(tmp_path: Path) -> AsyncIterator[Recorded]:
    async with recorded_at(tmp_path, 3) as made:
        yield made


async def test_the_operator_replays_a_call_and_reads_the_comparison(tmp_path: Path):
    async with recorded_at(tmp_path, 0) as recorded:
        assert (await recorded.state()).json()["state"] == "none"
        begun = await recorded.begin()
        assert (begun.status_code, begun.json()["state"]) == (202, "loading")
        async with asyncio.timeout(WITHIN_S):
            while (found := (await recorded.state()).json())["state"] != "done":
                await asyncio.sleep(0.01)
        assert found["comparison"]["summary"] == "1 turn" and found["duration_ms"] == 1_000
        page = await recorded.operator.get(f"{recorded.call}/replays/page")
        assert (page.text, page.headers["content-type"]) == ("<h1>Replay</h1>", "text/html; charset=utf-8")
        assert page.headers["content-disposition"].startswith("attachment")
        # What it showed is forgotten on request.
        assert (await recorded.operator.delete(f"{recorded.call}/replays")).status_code == 204
        assert (await recorded.state()).json()["state"] == "none"
        for method, below in (("GET", "/page"), ("DELETE", "")):
            gone = await recorded.operator.request(method, f"{recorded.call}/replays{below}")
            assert gone.status_code == 404


async def test_only_the_operator_may_begin_read_or_cancel_one(recorded: Recorded):
    for method, below in (("POST", ""), ("GET", ""), ("DELETE", ""), ("GET", "/page")):
        answer = await recorded.guest.request(method, f"{recorded.call}/replays{below}")
        assert answer.status_code == 403, (method, below)


async def test_a_second_replay_is_refused_and_says_when_to_come_again(recorded: Recorded):
    assert (await recorded.begin()).status_code == 202
    second = await recorded.begin()
    assert (second.status_code, int(second.headers["retry-after"]) > 0) == (503, True)
    assert (await recorded.operator.delete(f"{recorded.call}/replays")).status_code == 204
    assert (await recorded.state()).json()["state"] == "cancelled"
    assert (await recorded.begin()).status_code == 202


async def test_a_replay_is_refused_while_calls_need_the_machine(recorded: Recorded):
    recorded.app.state.calls.admitted = lambda _uses_recogniser: Admitted(0, "the machine is late")
    refused = await recorded.begin()
    assert (refused.status_code, "calls need the machine" in refused.text) == (503, True)
    assert int(refused.headers["retry-after"]) > 0


async def test_a_call_that_is_not_there_or_has_no_audio_is_not_replayed(recorded: Recorded):
    absent = await recorded.operator.post(f"{recorded.session}/recordings/{'b' * 32}/replays")
    assert absent.status_code == 404
    shutil.rmtree(recorded.path / "user_audio")
    silent = await recorded.begin()
    assert silent.status_code == 409 and "no audio of the caller" in silent.text


async def test_a_recording_that_is_deleted_meanwhile_ends_its_replay(recorded: Recorded, tmp_path: Path):
    await recorded.begin()
    async with asyncio.timeout(WITHIN_S):
        while not (tmp_path / f"{recorded.path.name}.folder").exists():
            await asyncio.sleep(0.01)
    shutil.rmtree(recorded.path)
    assert (await recorded.state()).status_code == 404
    assert left_in(tmp_path) == []


async def test_a_session_that_is_deleted_ends_its_replay(recorded: Recorded, tmp_path: Path):
    await recorded.begin()
    await recorded.operator.delete(recorded.session)
    assert left_in(tmp_path) == [] and (await recorded.state()).status_code == 404


async def test_an_encrypted_call_without_its_key_is_not_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    one, other = (base64.b64encode(each * 32).decode() for each in (b"a", b"b"))
    monkeypatch.setenv(KEYS_ENV, one)
    async with recorded_at(tmp_path, 0, encrypted=True) as recorded:
        monkeypatch.setenv(KEYS_ENV, other)
        refused = await recorded.begin()
        assert refused.status_code == 409 and KEYS_ENV in refused.text
        assert str(tmp_path) not in json.dumps(refused.json())
