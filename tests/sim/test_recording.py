"""Recordings of calls over transports that no peer stands for here, on virtual time."""

from pathlib import Path

import numpy as np
import pytest

from parley.configs.deployment import EchoMode
from parley.models.echo.webrtc import WebRtcEcho
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, CallRecording, read_recording
from parley.recording.merge import track_samples
from tests.sim.call import RATE_HZ, SimulatedCall, silence, simulate, voice


def spans_ms(samples: np.ndarray) -> list[tuple[int, int]]:
    """Return beginnings and ends of what sounds; pauses of 0.4 s belong to it."""
    hops = samples[: len(samples) - len(samples) % (RATE_HZ // 100)].reshape(-1, RATE_HZ // 100)
    loud_ms = np.flatnonzero(np.abs(hops).max(axis=1) > 0.01) * 10
    ends = np.flatnonzero(np.diff(loud_ms) > 400)
    begins = [loud_ms[0], *loud_ms[ends + 1]]
    return [(int(begin), int(end)) for begin, end in zip(begins, [*loud_ms[ends], loud_ms[-1]], strict=True)]


def recording_of(folder: Path) -> CallRecording:
    (meta,) = (folder / "data").rglob("meta.json")
    return read_recording(meta.parent)


def held(folder: Path, *, is_room: bool) -> tuple[SimulatedCall, CallRecording]:
    said = [silence(500), voice(1_000), silence(3_500), voice(1_000), silence(6_000)]
    call = simulate(said, folder, records=True, talks_over=True, reports_packets=not is_room)
    return call, recording_of(folder)


def test_a_room_that_reports_no_packets_is_recorded_on_both_sides(tmp_path: Path):
    call, recording = held(tmp_path, is_room=True)
    both = (CALLER_AUDIO, BOT_AUDIO)
    theirs = [spans_ms(call.stereo[:, side]) for side in (0, 1)]
    ours = [spans_ms(track_samples(recording, name, RATE_HZ)) for name in both]
    assert [len(spans) for spans in ours] == [len(spans) for spans in theirs]
    # What a room accepts is recorded when it is accepted, and its two sides have one distance from the other.
    apart = [
        begin - other
        for one, two in zip(ours, theirs, strict=True)
        for (begin, _), (other, _) in zip(one, two, strict=True)
    ]
    assert max(apart) - min(apart) <= 60, apart
    names = [each["event"] for each in recording.timeline()["events"]]
    assert names.count("TurnEnded") == 2 and "ReplyFinished" in names


@pytest.mark.parametrize(("mode", "name"), [("on", "webrtc"), ("off", None)])
def test_a_recording_names_the_echo_control_of_its_call(tmp_path: Path, mode: EchoMode, name: str | None):
    simulate([silence(1_000)], tmp_path, records=True, echo=WebRtcEcho(), echo_mode=mode)
    control = recording_of(tmp_path).meta["echo_control"]
    assert (control and control["name"]) == name
