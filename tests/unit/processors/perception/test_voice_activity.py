"""Voice activity of a call whose audio ends within a word, and of a process that is stopped within one."""

import asyncio

import pytest
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    TextFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.tests.utils import SleepFrame, run_test

from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.perception.voice_activity import VoiceActivity
from tests import virtual_time
from tests.fakes.vad import EnergyVad
from tests.voices import silence, tone

FRAME_BYTES, FRAME_S = 640, 0.02


class Host(FrameProcessor):
    """Stops the process for two seconds at each text."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TextFrame):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, virtual_time.VirtualLoop)
            loop.stand_still(2.0)
        await self.push_frame(frame, direction)


class Notes(FrameProcessor):
    """Keeps the times at which speech began and ended."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[tuple[type[Frame], float]] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame):
            self.times.append((type(frame), asyncio.get_running_loop().time()))
        await self.push_frame(frame, direction)


def spoken(pcm: bytes, *, frames_at_once: int = 1) -> list[Frame]:
    """Return audio frames in their own time."""
    frames: list[Frame] = []
    size, pause = FRAME_BYTES * frames_at_once, SleepFrame(FRAME_S * frames_at_once)
    for at in range(0, len(pcm), size):
        audio = pcm[at : at + size]
        frames += [InputAudioRawFrame(audio=audio, sample_rate=16_000, num_channels=1), pause]
    return frames


def heard(frames: list[Frame]) -> list[tuple[type[Frame], float]]:
    """Return the beginnings and ends of speech, with their times."""
    notes = Notes()

    async def scenario() -> None:
        activity = VoiceActivity(SharedVadAnalyzer(EnergyVad(), executor=None))
        await run_test(Pipeline([Host(), activity, notes]), frames_to_send=frames)

    virtual_time.run(scenario())
    return notes.times


def test_speech_without_further_audio_ends_within_a_second() -> None:
    (began, began_s), (ended, ended_s) = heard([*spoken(tone(640)), SleepFrame(3.0)])
    assert (began, ended) == (VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame)
    # From the last frame, which came within 640 ms of the first.
    assert 0.9 < ended_s - began_s < 1.64


def test_a_stop_of_the_process_within_a_word_ends_no_speech() -> None:
    # The audio of the two seconds comes at once after them.
    late = [frame for frame in spoken(tone(2_000)) if isinstance(frame, InputAudioRawFrame)]
    times = heard([*spoken(tone(640)), TextFrame("stop"), *late, *spoken(tone(320) + silence(960))])
    assert [kind for kind, _ in times] == [VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame]


def test_speech_that_ends_in_quiet_is_ended_once() -> None:
    times = heard([*spoken(tone(640) + silence(640)), SleepFrame(3.0)])
    assert [kind for kind, _ in times] == [VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame]


def test_a_click_after_audio_that_stopped_within_a_word_is_no_voice() -> None:
    times = heard([*spoken(tone(640)), SleepFrame(3.0), *spoken(tone(64) + silence(640))])
    assert [kind for kind, _ in times] == [VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame]


def test_a_voice_after_audio_that_stopped_within_a_word_begins_anew() -> None:
    times = heard([*spoken(tone(640)), SleepFrame(3.0), *spoken(tone(640) + silence(640))])
    assert [kind for kind, _ in times] == [VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame] * 2


@pytest.mark.parametrize("piece_ms", [500, 1_000])
def test_speech_goes_on_between_pieces_of_a_second(piece_ms: int) -> None:
    sound = tone(4 * piece_ms + 400) + silence(piece_ms)
    times = heard(spoken(sound, frames_at_once=piece_ms // 20))
    assert [kind for kind, _ in times] == [VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame]


def test_speech_in_long_pieces_ends_when_no_more_come() -> None:
    (_, began_s), (_, ended_s) = heard([*spoken(tone(2_000), frames_at_once=50), SleepFrame(4.0)])
    # The second piece came a second after the first, and a third one would have come a second later.
    assert 2.0 < ended_s - began_s - 1.0 < 2.2
