"""Recordings of real calls against what the client itself heard and said."""

import asyncio
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import yaml
from websockets.asyncio.client import connect

from parley.evals.harness.matching import (
    LOUD_RMS,
    Match,
    Matching,
    matches,
    sounds_alone,
    turned,
)
from parley.recording.folder import CallRecording, read_recording
from parley.recording.merge import merge_call
from parley.session_store.events import Kind
from tests.peers.minicpm_duplex_client import Client as DuplexClient
from tests.peers.minicpm_duplex_client import samples_in
from tests.peers.operations_gateway import BEARER
from tests.peers.realtime_caller import PCM_HZ, at_rate, calling
from tests.peers.server import RunningServer, briefly_greeting, running_server
from tests.peers.test_command import command, speech
from tests.peers.webrtc_caller import Caller, greeted
from tests.voices import say

# Server and client share this machine: a stall between them is a difference between their recordings.
pytestmark = pytest.mark.alone

RATE_HZ = 16_000
ALLOWED_MS = 20
# The simulated phone plays in packets of 20 ms on a grid of its own: two replies differ by up to one packet
# and the lateness of a timer.
ALLOWED_PHONE_MS = 35


def recording_deployment(folder: Path, **recording: object) -> Path:
    """Return a deployment that records into ``folder``."""
    path = briefly_greeting(folder)
    settings = yaml.safe_load(path.read_text())
    settings["recording"] = {"enabled": True, "folder": str(folder / "data"), "min_free_gb": 0, **recording}
    path.write_text(yaml.safe_dump(settings))
    return path


async def only_recording(folder: Path, *, within_s: float = 60) -> CallRecording:
    """Return the recording of the only call when its stereo file is there."""
    async with asyncio.timeout(within_s):
        while not (made := list((folder / "data").rglob("merged_replay.wav"))):
            await asyncio.sleep(0.1)
    (file,) = made
    return read_recording(file.parent)


async def hold_call(url: str, question: str) -> None:
    """Hold a browser's call: a question, and another one that interrupts the answer where it is long."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as client, greeted(client) as caller:
        caller.microphone.say(speech(question) + bytes(32_000 * 3))
        await caller.until(lambda: len(caller.of_type("bot-started-speaking")) == 2)
        await asyncio.sleep(1.5)
        caller.microphone.say(speech("Stop. What about Sunday?") + bytes(32_000 * 6))
        await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 3)


def stereo_of(path: Path, rate_hz: int = RATE_HZ) -> tuple[np.ndarray, np.ndarray]:
    """Return caller and bot of the stereo file at a rate that its own is a multiple of, or at its own."""
    import soxr

    samples, own_hz = soundfile.read(path, dtype="float32")
    if own_hz != rate_hz:
        samples = soxr.resample(samples, own_hz, rate_hz)
    scaled = samples * 32_768
    return scaled[:, 0], scaled[:, 1]


def delays_ms(
    one: np.ndarray, other: np.ndarray, rate_hz: int = RATE_HZ, *, most_ms: int = 3_000
) -> list[float]:
    """Return the delays of the windows of ``one`` that were found in ``other``; most have to be."""
    return [each.delay_ms for each in found_in(one, other, rate_hz, most_ms=most_ms).found]


def found_in(one: np.ndarray, other: np.ndarray, rate_hz: int = RATE_HZ, *, most_ms: int = 3_000) -> Matching:
    """Return the windows of ``one`` in ``other``.

    A window that a stall of the machine has torn apart at the client is like no other; most have to be found.
    """
    matching = matches(one, other, rate_hz, most_ms=most_ms)
    found, windows = len(matching.found), matching.windows
    assert found >= max(5, 0.9 * windows), f"{found} of {windows} windows were found"
    return matching


def assert_same(
    one: np.ndarray, other: np.ndarray, rate_hz: int = RATE_HZ, *, allowed_ms: float = ALLOWED_MS
) -> None:
    """Check that two recordings of a side have the same sounds at the same times, but for one delay."""
    matching = found_in(one, other, rate_hz)
    assert matching.largest_ms <= allowed_ms, matching.found
    assert_within(one, other, rate_hz, matching.found)
    assert_within(other, one, rate_hz, turned(matching.found))


def assert_within(
    one: np.ndarray, other: np.ndarray, rate_hz: int, found: Sequence[Match] = (Match(0.0, 0.0),)
) -> None:
    """Check that nothing is audible in ``one`` that is not in ``other``: the rest of a reply that was cut."""
    alone = sounds_alone(one, other, rate_hz, found)
    assert alone == [], "these milliseconds are in one of the two alone"


async def test_a_browser_call_with_a_barge_in_is_recorded_as_the_client_heard_it(tmp_path: Path):
    config = recording_deployment(tmp_path)
    said = speech("Stop. What about Sunday?")
    async with running_server("--config", str(config)) as server:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60) as client,
            greeted(client) as caller,
        ):
            question = {"content": "How do I report a lost card?", "options": {"run_immediately": True}}
            caller.send({"label": "rtvi-ai", "type": "send-text", "id": "2", "data": question})
            await caller.until(lambda: len(caller.of_type("bot-started-speaking")) == 2)
            await asyncio.sleep(1.5)
            caller.microphone.say(said)
            await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 3)
            heard = np.frombuffer(bytes(caller.heard), "<i2").astype(np.float32)
            (session,) = [
                m["data"]["id"] for m in caller.of_type("server-message") if m["data"]["kind"] == "session"
            ]
        recording = await only_recording(tmp_path)
        assert recording.session_id == session
        events = await timeline_of(server, session)
        copied = tmp_path / "merged.wav"
        copied.write_bytes((recording.path / "merged_replay.wav").read_bytes())
        timeline = recording.timeline()
        async with httpx.AsyncClient(base_url=server.url, headers=BEARER) as client:
            deleted = await client.delete(f"/api/sessions/{session}")
    assert deleted.status_code == 200
    removed = deleted.json()["removed"]["recordings"]
    assert removed["calls"] == 1 and removed["files"] >= 5 and removed["bytes"] > 100_000
    assert list((tmp_path / "data" / "sessions").iterdir()) == []
    caller_side, bot_side = stereo_of(copied)
    assert_same(bot_side, heard)
    delays = delays_ms(np.frombuffer(said, "<i2").astype(np.float32), caller_side, most_ms=60_000)
    assert max(delays) - min(delays) <= ALLOWED_MS
    states = [each["payload"]["state"] for each in events if each["kind"] == Kind.RECORDING]
    assert states == ["started", "ended"]
    assert "ReplyCut" in [each["event"] for each in timeline["events"]]


async def test_a_caller_who_leaves_is_in_the_timeline(tmp_path: Path):
    async with running_server("--config", str(recording_deployment(tmp_path))) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client, greeted(client):
            pass
        recording = await only_recording(tmp_path)
    happened = [each["event"] for each in recording.timeline()["events"]]
    assert happened.index("CallerJoined") < happened.index("CallerLeft")
    assert "CallEnding" not in happened


@pytest.mark.parametrize(
    ("transport", "mode"),
    [
        ("twilio", "cascade"),
        ("file", "cascade"),
        pytest.param("file", "duplex", marks=pytest.mark.slow),
    ],
)
async def test_a_call_from_a_file_is_recorded_as_its_caller_recorded_it(
    tmp_path: Path, transport: str, mode: str
):
    config = recording_deployment(tmp_path)
    # An answer of some seconds, which the caller cuts off.
    said = (
        speech("How do I report a lost card?") + bytes(2 * RATE_HZ * 4) + speech("Stop. What about Sunday?")
    )
    source, output = tmp_path / "caller.wav", tmp_path / "call.wav"
    with wave.open(str(source), "wb") as file:
        file.setparams((1, 2, RATE_HZ, 0, "NONE", ""))
        file.writeframes(said)
    files = ("--input", str(source), "--output", str(output), "--config", str(config))
    status, _, error = await command("--transport", transport, "--mode", mode, *files)
    assert status == 0, error
    recording = await only_recording(tmp_path)
    theirs, rate_hz = soundfile.read(output, dtype="int16")
    caller, bot = stereo_of(recording.path / "merged_replay.wav", rate_hz)
    allowed_ms = ALLOWED_PHONE_MS if transport == "twilio" else ALLOWED_MS
    assert_same(bot, theirs[:, 1].astype(np.float32), rate_hz, allowed_ms=allowed_ms)
    assert_same(caller, theirs[:, 0].astype(np.float32), rate_hz)
    assert "ReplyCut" in [each["event"] for each in recording.timeline()["events"]]


@pytest.mark.parametrize("model", ["parley-cascade", pytest.param("parley-duplex", marks=pytest.mark.slow)])
async def test_a_call_over_a_socket_has_what_its_client_played_and_said(tmp_path: Path, model: str):
    async with running_server("--config", str(recording_deployment(tmp_path))) as server:
        async with calling(server.url, model=model) as caller:
            caller.say("What are your opening hours on Saturday?", behind_ms=200)
            await caller.until("response.done")
            [item] = caller.speaker.audio
            async with asyncio.timeout(60):
                while caller.speaker.played_ms(item) < caller.speaker.length_ms[item]:
                    await asyncio.sleep(0.05)
            played = np.frombuffer(caller.speaker.audio[item], "<i2").astype(np.float32)
        recording = await only_recording(tmp_path)
    caller_side, bot_side = stereo_of(recording.path / "merged_replay.wav", PCM_HZ)
    delays = delays_ms(played, bot_side, PCM_HZ, most_ms=20_000)
    assert max(delays) - min(delays) <= ALLOWED_MS
    first = round(np.median(delays) * PCM_HZ / 1_000)
    assert_within(bot_side[first:], played, PCM_HZ)
    said = at_rate(say("What are your opening hours on Saturday?"), PCM_HZ)
    delays = delays_ms(np.frombuffer(said, "<i2").astype(np.float32), caller_side, PCM_HZ, most_ms=20_000)
    assert max(delays) - min(delays) <= ALLOWED_MS


async def test_nothing_is_recorded_before_the_caller_has_heard_that_it_is(tmp_path: Path):
    phrase = "This call is recorded."
    config = recording_deployment(tmp_path, announcement=phrase)
    async with running_server("--config", str(config)) as server:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60) as client,
            greeted(client) as caller,
        ):
            await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 2)
        recording = await only_recording(tmp_path)
        events = await timeline_of(server, recording.session_id)
    states = [each["payload"] for each in events if each["kind"] == Kind.RECORDING]
    assert [each["state"] for each in states] == ["announced", "started", "ended"]
    assert states[0]["text"] == phrase
    spoken = [each["payload"]["text"] for each in events if each["kind"] == Kind.BOT_TURN]
    assert spoken == [phrase, "Hello there."]
    # The greeting alone is in the recording, for less than a second and a half.
    _, bot = stereo_of(recording.path / "merged_replay.wav")
    loud = np.flatnonzero(np.abs(bot) > LOUD_RMS)
    assert 0.3 < (loud[-1] - loud[0]) / RATE_HZ < 1.5
    assert loud[0] / RATE_HZ > 1.0


@pytest.mark.parametrize("model", ["parley-cascade", pytest.param("parley-duplex", marks=pytest.mark.slow)])
async def test_a_client_that_is_not_greeted_hears_the_announcement_and_is_recorded(
    tmp_path: Path, model: str
):
    phrase = "This call is recorded."
    config = recording_deployment(tmp_path, announcement=phrase)
    async with running_server("--config", str(config)) as server:
        async with calling(server.url, model=model) as caller:
            await caller.until("response.done")
            [item] = caller.speaker.audio
            async with asyncio.timeout(60):
                while caller.speaker.played_ms(item) < caller.speaker.length_ms[item]:
                    await asyncio.sleep(0.05)
            caller.say("What are your opening hours on Saturday?", behind_ms=1_000)
            await caller.until("response.done", count=2)
        recording = await only_recording(tmp_path)
        events = await timeline_of(server, recording.session_id)
    spoken = [each["payload"]["text"] for each in events if each["kind"] == Kind.BOT_TURN]
    assert spoken[0] == phrase and len(spoken) == 2, spoken
    states = [each["payload"]["state"] for each in events if each["kind"] == Kind.RECORDING]
    assert states[:2] == ["announced", "started"]
    # The answer is in the recording, and so is the question.
    said = [each.get("text") for each in recording.timeline()["events"] if each["event"] == "TurnEnded"]
    assert said and "saturday" in str(said[0])


async def test_a_client_of_minicpm_hears_the_announcement_and_is_recorded(tmp_path: Path):
    phrase = "This call is recorded."
    config = recording_deployment(tmp_path, announcement=phrase)
    async with running_server("--config", str(config), "--mode", "duplex") as server:
        async with connect(server.url.replace("http", "ws") + "/ws/duplex/adx_test", max_size=None) as socket:
            client = DuplexClient(socket)
            await client.prepared()
            results = list[dict[str, Any]]()
            states: list[str] = []
            async with asyncio.timeout(60):
                while "started" not in states:
                    await client.chunk()
                    results.append(await client.next("result"))
                    await asyncio.sleep(0.8)
                    session = client.got[1]["session_id"]
                    events = await timeline_of(server, session)
                    states = [each["payload"]["state"] for each in events if each["kind"] == Kind.RECORDING]
            await client.send("stop")
        await only_recording(tmp_path)
    assert states == ["announced", "started"]
    said = " ".join(result["text"] for result in results).split()
    assert said == phrase.split(), said
    assert sum(len(samples_in(result["audio_data"])) for result in results) > 24_000


async def test_a_session_that_is_deleted_during_its_call_leaves_no_recording(tmp_path: Path):
    config = recording_deployment(tmp_path)
    async with running_server("--config", str(config)) as server:
        async with (
            httpx.AsyncClient(base_url=server.url, timeout=60) as client,
            greeted(client) as caller,
        ):
            await caller.until(lambda: len(caller.heard) >= 2 * RATE_HZ * 7)
            (meta,) = (tmp_path / "data").rglob("meta.json")
            session = meta.parent.parent
            gone = await client.delete(f"/api/sessions/{session.name}", headers=BEARER)
            assert gone.json()["removed"]["recordings"]["calls"] == 1
            await caller.until(
                lambda: "session_lost" in [m["data"]["kind"] for m in caller.of_type("server-message")]
            )
        async with asyncio.timeout(60):
            while (await calls_of(server)) or session.exists():
                await asyncio.sleep(0.1)
    # The end of the server writes what waits.
    assert list((tmp_path / "data" / "sessions").iterdir()) == []


async def calls_of(server: RunningServer) -> int:
    async with httpx.AsyncClient(base_url=server.url) as client:
        return int((await client.get("/status")).json()["calls"])


async def test_a_server_that_is_killed_loses_at_most_the_present_segment(tmp_path: Path):
    config = recording_deployment(tmp_path)
    async with running_server("--config", str(config)) as server:
        async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
            caller = Caller(speech("What are your opening hours on Saturday?") + bytes(2 * RATE_HZ * 20))
            began_s = asyncio.get_running_loop().time()
            await caller.accept((await client.post("/api/offer", json=await caller.offer())).json())
            await caller.until(lambda: len(caller.heard) >= 2 * RATE_HZ * 12)
            server.process.kill()
            lasted_ms = (asyncio.get_running_loop().time() - began_s) * 1_000
            await caller.hang_up()
    (meta,) = (tmp_path / "data").rglob("meta.json")
    recording = read_recording(meta.parent)
    numbers = sorted(recording.segments("user_audio"))
    assert numbers == list(range(len(numbers)))
    # A connection that takes its time is a part of what the test measured, and no part of the call.
    assert len(numbers) * recording.segment_ms > lasted_ms - recording.segment_ms - 2_000
    assert merge_call(recording) == []


async def timeline_of(server: RunningServer, session: str) -> list[dict]:
    async with httpx.AsyncClient(base_url=server.url, headers=BEARER) as client:
        return (await client.get(f"/api/sessions/{session}/timeline")).json()["events"]
