"""Speech that a realtime service has not transcribed."""

from collections.abc import Callable

import pytest
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import ServiceSpoke, TurnEnded, TurnTranscribed
from parley.processors.duplex.unanswered_speech import KEPT_MS, UnansweredSpeech
from parley.runtime.event_stream import CallEvents

STEP_MS = 20


class Clock:
    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    async def sleep_until_ms(self, _at_ms: int) -> None:
        raise AssertionError("nothing sleeps here")


class Caller:
    """Caller whose audio has the number of its frame in every sample."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.events = CallEvents(self.clock)
        self.speech = UnansweredSpeech(self.events)
        self._number = 0

    def is_quiet(self, ms: int) -> None:
        for _ in range(ms // STEP_MS):
            self.clock.ms += STEP_MS
            self._number += 1
            self.speech.take(InputAudioRawFrame(self._number.to_bytes(2, "little") * 320, 16_000, 1))

    def talks(self, ms: int) -> None:
        self.is_quiet(128)
        self.speech.take(VADUserStartedSpeakingFrame(start_secs=0.128))
        self.is_quiet(ms - 128)
        self.speech.take(VADUserStoppedSpeakingFrame(stop_secs=0.128))

    def publish(self, event: Callable[[int, str], object], text: str = "") -> None:
        self.events.publish(event(self.clock.ms, text))  # type: ignore[arg-type]


@pytest.fixture
def caller() -> Caller:
    return Caller()


def seconds(frames: list[Frame]) -> float:
    return sum(each.num_frames for each in frames if isinstance(each, InputAudioRawFrame)) / 16_000


def numbers(frames: list[Frame]) -> list[int]:
    audio = [each.audio for each in frames if isinstance(each, InputAudioRawFrame)]
    return [int.from_bytes(each[:2], "little") for each in audio]


def test_silence_is_no_speech_and_half_a_second_of_it_is_kept(caller: Caller):
    caller.is_quiet(10_000)
    assert caller.speech.is_empty
    # A voice may have begun in it that is not noticed yet.
    assert seconds(caller.speech.frames()) == pytest.approx(0.5, abs=0.02)


def test_audio_of_a_settled_turn_is_given_without_the_reports_of_its_voice(caller: Caller):
    caller.talks(400)
    caller.publish(TurnTranscribed, "settled")
    frames = caller.speech.frames()
    assert frames and all(isinstance(each, InputAudioRawFrame) for each in frames)


def test_speech_without_a_transcript_is_kept_from_before_its_beginning_in_order(caller: Caller):
    caller.is_quiet(2_000)
    caller.talks(1_000)
    caller.is_quiet(400)
    frames = caller.speech.frames()
    # From 250 ms before the voice.
    assert seconds(frames) == pytest.approx(1.65, abs=0.04)
    kept = numbers(frames)
    assert kept == list(range(kept[0], kept[0] + len(kept)))
    marks = [each for each in frames if not isinstance(each, InputAudioRawFrame)]
    assert [type(each) for each in marks] == [VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame]
    assert not caller.speech.in_voice


def test_a_transcript_settles_the_oldest_turn_alone(caller: Caller):
    caller.talks(1_000)
    caller.publish(TurnEnded)
    caller.is_quiet(500)
    caller.talks(600)
    # The words of the first turn come while the second one is open.
    caller.publish(TurnTranscribed, "first")
    assert seconds(caller.speech.frames()) == pytest.approx(0.85, abs=0.04)
    caller.publish(TurnEnded)
    caller.publish(TurnTranscribed, "second")
    assert caller.speech.is_empty


def test_words_that_come_before_the_end_of_their_turn_settle_it(caller: Caller):
    caller.talks(1_000)
    caller.publish(TurnTranscribed, "first")
    assert caller.speech.is_empty


def test_a_voice_that_the_service_did_not_report_is_forgotten_after_a_while(caller: Caller):
    caller.talks(400)
    assert not caller.speech.is_empty
    caller.is_quiet(5_100)
    assert caller.speech.is_empty


def test_a_turn_that_was_answered_without_a_transcript_is_forgotten_after_a_while(caller: Caller):
    caller.talks(1_000)
    caller.publish(TurnEnded)
    caller.is_quiet(6_000)
    assert not caller.speech.is_empty
    caller.events.publish(ServiceSpoke(caller.clock.ms))
    assert caller.speech.is_empty


def test_of_a_long_speech_the_beginning_is_lost(caller: Caller):
    caller.talks(2 * KEPT_MS)
    assert seconds(caller.speech.frames()) * 1_000 == pytest.approx(KEPT_MS, abs=40)
