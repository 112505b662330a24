"""Audio of a reply on its way to a client of a socket: its beginning, its lead, and its end by a cut."""

from typing import Any

import pytest
from pipecat.frames.frames import (
    InterruptionFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    UserStartedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame

from parley.protocols.unmute import Unmute
from parley.transports.websocket.transport import OPENING_S
from tests.unit.transports.websocket.timed_client import RATE_HZ, messages_for

STARTED = "input_audio_buffer.speech_started"


def audio(ms: int, context_id: str = "c") -> TTSAudioRawFrame:
    return TTSAudioRawFrame(bytes(RATE_HZ * ms // 1000 * 2), RATE_HZ, 1, context_id=context_id)


def begun(context_id: str = "c") -> TTSStartedFrame:
    return TTSStartedFrame(context_id=context_id)


def received(*frames: object, protocol: Any = None) -> list[tuple[float, str]]:
    """Return a client's messages with their times since the reply began."""
    read = messages_for(*frames, protocol=protocol, audio_out_10ms_chunks=4, audio_out_end_silence_secs=0)
    began_s = next(at_s for at_s, kind in read if kind == "response.created")
    return [(round(at_s - began_s, 3), kind) for at_s, kind in read]


def deltas_s(messages: list[tuple[float, str]]) -> list[float]:
    return [at_s for at_s, kind in messages if kind.endswith("audio.delta")]


def test_a_reply_begins_when_enough_of_it_has_come_that_no_gap_follows():
    later = (SleepFrame(0.04), audio(80), SleepFrame(0.03), audio(80))
    assert deltas_s(received(begun(), audio(40), *later, SleepFrame(1))) == [0.07] * 5


def test_a_slow_voice_is_not_waited_for():
    sent = (begun(), audio(40), SleepFrame(1), audio(80), SleepFrame(1))
    assert deltas_s(received(*sent)) == [OPENING_S, 1.0, 1.0]


def test_a_reply_that_is_short_begins_at_once():
    sent = (begun(), audio(40), TTSStoppedFrame(context_id="c"), SleepFrame(1))
    assert deltas_s(received(*sent)) == [0.0]


@pytest.mark.parametrize(("protocol", "lead_s"), [(None, 2.0), (Unmute, 0.2)])
def test_a_client_with_a_player_of_its_own_gets_audio_far_ahead(protocol: Any, lead_s: float):
    messages = received(begun(), audio(4_000), SleepFrame(5), protocol=protocol and protocol())
    at_once = [at_s for at_s in deltas_s(messages) if at_s == 0.0]
    # The piece that begins at the lead leaves too.
    assert len(at_once) * 0.04 == pytest.approx(lead_s + 0.04)


@pytest.mark.parametrize("protocol", [None, Unmute])
def test_no_audio_follows_the_caller_who_cuts_the_reply_off(protocol: Any):
    cut = (UserStartedSpeakingFrame(), SleepFrame(0.08), InterruptionFrame(), SleepFrame(1))
    messages = received(begun(), audio(6_000), SleepFrame(1), *cut, protocol=protocol and protocol())
    [started_s] = [at_s for at_s, kind in messages if kind == STARTED]
    assert started_s == 1.0 and max(deltas_s(messages)) <= started_s


@pytest.mark.parametrize(("protocol", "held_s"), [(None, 1.0), (Unmute, 0.1)])
def test_the_audio_of_a_reply_that_is_not_cut_off_goes_on_in_time(protocol: Any, held_s: float):
    turn = (SleepFrame(1.0), UserStartedSpeakingFrame(), SleepFrame(4))
    messages = received(begun(), audio(4_000), *turn, protocol=protocol and protocol())
    times_s = deltas_s(messages)
    [after_s, *_] = [at_s for at_s in times_s if at_s > 1.0]
    assert after_s == pytest.approx(1.0 + held_s, abs=0.05)
    # The client has always something to play.
    assert all(at_s <= number * 0.04 for number, at_s in enumerate(times_s))


@pytest.mark.parametrize("protocol", [None, Unmute])
def test_a_reply_after_a_cut_has_a_clock_of_its_own(protocol: Any):
    client = protocol and protocol()
    cut = (begun("a"), audio(6_000, "a"), SleepFrame(1), InterruptionFrame(), SleepFrame(0.1))
    short = (begun("b"), audio(400, "b"), TTSStoppedFrame(context_id="b"), SleepFrame(2))
    messages = received(*cut, *short, protocol=client)
    ends_s = [at_s for at_s, kind in messages if kind in ("response.done", "response.audio.done")]
    # It begins at once and lasts 0.4 s, of which nothing waits for the rest of the first one.
    assert ends_s[-1] == pytest.approx(1.1 + 0.4, abs=0.05)
    after_s = [at_s for at_s in deltas_s(messages) if at_s > 1.0]
    assert after_s[0] == pytest.approx(1.1, abs=0.01) and len(after_s) == 10
