"""Clients that receive a speech model's units: announcements, heard whole, and reports of latency."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.core.call_events import ReplyFinished, UnitTaken
from parley.core.timeline import HeardMark, HeardReply
from parley.core.units import Tick, Vote
from parley.pipelines.announcements import when_heard
from parley.protocols.client_protocol import ClientProtocol, written
from parley.protocols.minicpm_duplex import MiniCpmDuplex
from parley.protocols.minicpm_realtime import MiniCpmRealtime
from parley.recording.folder import read_recording
from parley.recording.settings import RecordingSettings
from parley.runtime.event_stream import CallEvents
from parley.session_store.events import Event, Kind
from tests import virtual_time
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.unit.pipelines.test_half_duplex_call import Caller, call

# The voice of the test says ten words a second.
PHRASE = "This call is recorded so that we all can learn from it and do better than before"
RATE_HZ = 24_000
PREPARE: dict[str, dict[str, Any]] = {
    "duplex_ws": {"type": "prepare"},
    "realtime_ws": {"type": "session.update", "session": {"instructions": "Be kind."}},
}
CHUNK = {"duplex_ws": ("audio_chunk", "audio_base64"), "realtime_ws": ("input_audio_buffer.append", "audio")}


async def hold(caller: Caller, name: str, seconds: int) -> None:
    """Prepare the conversation, and send a second of silence in each second."""
    caller.say(**PREPARE[name])
    await caller.until("prepared" if name == "duplex_ws" else "session.created")
    kind, field = CHUNK[name]
    for _ in range(seconds):
        caller.say(type=kind, **{field: written(np.zeros(16_000, "<f4").tobytes())})
        await asyncio.sleep(1)


@pytest.mark.parametrize("protocol", [MiniCpmDuplex(lambda: 0.0), MiniCpmRealtime(sees=False)])
def test_an_engine_listens_to_the_announcement_and_the_call_is_recorded_after_it(
    tmp_path: Path, protocol: ClientProtocol
):
    recording = RecordingSettings(
        enabled=True, folder=tmp_path, min_free_gb=0, merged=False, announcement=PHRASE
    )
    # An engine that would speak in every unit.
    host = ScriptedOmniHost(OmniScript(unit_ms=1_000, votes=lambda _unit: Vote.SPEAK))

    async def scenario() -> tuple[list[dict[str, Any]], list[Event]]:
        async with call(tmp_path, protocol=protocol, omni=[host], recording=recording) as caller:
            await hold(caller, protocol.name, 9)
        kinds = ("result", "response.output_audio.delta")
        return [message for message in caller.received if message["type"] in kinds], caller.events

    results, events = virtual_time.run(scenario())
    [spoken] = [
        event for event in events if event.payload.get("text") == PHRASE and event.kind is Kind.BOT_TURN
    ]
    assert not spoken.payload["truncated"]
    states = [event for event in events if event.kind is Kind.RECORDING]
    assert [each.payload["state"] for each in states] == ["announced", "started", "ended"]
    # It began when the last of the phrase had reached the client and been played, and not before.
    assert 1_700 + 1_000 < (states[0].arrival_us - spoken.event_us) / 1_000 < 1_700 + 3_500
    assert host.engines[0].forced
    said = "".join(result["text"] for result in results)
    assert PHRASE.split() == said.split()[said.split().index("This") :][: len(PHRASE.split())]
    # One sound of that length, as a client plays it.
    data = [result.get("audio_data", result.get("audio", "")) for result in results]
    sound = np.concatenate([np.frombuffer(base64.b64decode(each), "<f4") for each in data])
    sound = sound[: sound.size - sound.size % (RATE_HZ // 100)]
    loud = np.flatnonzero(np.abs(sound.reshape(-1, RATE_HZ // 100)).max(axis=1) > 0.1)
    first_gap = np.flatnonzero(np.diff(loud) > 2)
    length_ms = 10 * (1 + (first_gap[0] if first_gap.size else loud.size))
    assert length_ms == pytest.approx(100 * len(PHRASE.split()), abs=20)


def tick(slot: int, heard_ms: int = 1_000) -> UnitTaken:
    unit = Tick(slot, 0, 0, 0, 0, 0, heard_ms, 0, 0, False, Vote.LISTEN, 0, "", 0)
    return UnitTaken(0, unit)


@pytest.mark.parametrize(
    ("units", "is_heard"),
    [
        ([0, 1, "said", 2], False),
        ([0, 1, "said", 2, 3], True),
        # Another engine has begun meanwhile, and what was sent to the one before is lost.
        ([0, "said", 0, 1, 2], False),
        ([0, 1, 0, "said", 1, 2, 3], False),
        ([0, 1, "said", "silent", "silent", "silent"], False),
    ],
)
def test_a_phrase_was_heard_when_its_end_was_sent_and_played(units: list[int | str], is_heard: bool):
    heard: list[bool] = []
    events = CallEvents()
    when_heard(events, PHRASE, lambda: heard.append(True), in_units=True)
    for unit in units:
        if unit == "said":
            mark = HeardMark("r", 500, 0)
            events.publish(ReplyFinished(0, HeardReply("r", PHRASE, "", False, mark, True, 0, 1)))
        elif unit == "silent":
            # A unit without audio of the client, which has stopped to send.
            events.publish(tick(9, heard_ms=0))
        else:
            events.publish(tick(int(unit)))
    assert heard == [True] * is_heard


def test_what_a_client_has_measured_of_an_answer_is_in_the_recording(tmp_path: Path):
    recording = RecordingSettings(enabled=True, folder=tmp_path, min_free_gb=0, merged=False)
    votes = Vote.LISTEN, Vote.LISTEN, Vote.LISTEN, Vote.LISTEN, Vote.SPEAK, Vote.SPEAK
    engine = OmniScript(unit_ms=1_000, votes=lambda unit: votes[unit] if unit < len(votes) else Vote.LISTEN)
    protocol = MiniCpmDuplex(lambda: 0.0)
    report = {"heard_ms": 1_200, "round_trip_ms": 0, "jitter_buffer_ms": 0, "output_ms": 12}

    async def scenario() -> None:
        async with call(
            tmp_path, protocol=protocol, omni=[ScriptedOmniHost(engine)], recording=recording
        ) as caller:
            caller.say(**PREPARE["duplex_ws"])
            await caller.until("prepared")
            tone = 0.3 * np.sin(2 * np.pi * 200 * np.arange(16_000) / 16_000)
            for second in range(9):
                samples = tone if second == 1 else np.zeros(16_000)
                caller.say(type="audio_chunk", audio_base64=written(samples.astype("<f4").tobytes()))
                if second == 7:
                    caller.say(type="latency", heard_ms="soon")
                    caller.say(type="latency", **report)
                await asyncio.sleep(1)
            assert not caller.of("error")

    virtual_time.run(scenario())
    [meta] = (tmp_path / "sessions").rglob("meta.json")
    events = read_recording(meta.parent).timeline()["events"]
    [heard] = [each for each in events if each["event"] == "LatencyHeard"]
    assert {name: heard[name] for name in report} == report
    assert heard["server_ms"] > 1_000
