"""The first sounds of a voice: on a loop that is late, and from a client that sends long pieces."""

import asyncio

import numpy as np
import pytest
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.tests.utils import SleepFrame, run_test

from parley.models.stt import Transcript
from parley.models.vad import VoiceActivityDetector
from parley.models.vad.silero import SileroVad
from parley.processors.direct_audio import DirectAudio
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.perception.engine_stt import EngineSttService
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.perception.voice_onset import ahead_ms, judged_ms
from tests import virtual_time
from tests.fakes.stt import ScriptedStt
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine, InPlaceStream
from tests.voices import say, silence, tone

RATE_HZ, PIECE_MS = 16_000, 20
# Of Pipecat's client for JavaScript over a WebSocket.
LONG_PIECE_MS = 256


class LateVoice(DirectAudio):
    """Hands audio on at once, and the reports of a voice after so long."""

    def __init__(self, late_s: float) -> None:
        super().__init__(enable_direct_mode=True)
        self._late_s = late_s

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        await self.pass_audio(frame)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame):
            self.create_task(self._push_late(frame, direction), "late")
        else:
            await self.push_frame(frame, direction)

    async def _push_late(self, frame: Frame, direction: FrameDirection) -> None:
        await asyncio.sleep(self._late_s)
        await self.push_frame(frame, direction)


class Taken(InPlaceStream[Transcript]):
    """Stream that keeps the audio of its utterances."""

    def __init__(self, kept: list[bytearray], engine: ScriptedStt) -> None:
        super().__init__(engine, lambda result: result, lambda _partial: None, lambda _error: None)
        self._kept = kept

    def start(self) -> None:
        self._kept.append(bytearray())
        super().start()

    def feed(self, pcm: bytes) -> None:
        self._kept[-1] += pcm
        super().feed(pcm)


class TakingEngine(InPlaceEngine[Transcript]):
    """Engine that keeps the audio of its utterances in ``kept``."""

    def __init__(self) -> None:
        super().__init__(ScriptedStt(), lambda result: result)
        self.kept: list[bytearray] = []

    async def open_stream(self, on_partial: object, on_failure: object) -> Taken:
        return Taken(self.kept, ScriptedStt())


def pieces(pcm: bytes, piece_ms: int) -> list[Frame]:
    """Return audio in pieces of that length, each when it is complete."""
    frames: list[Frame] = []
    size = RATE_HZ * piece_ms // 1000 * 2
    for at in range(0, len(pcm), size):
        frames += [InputAudioRawFrame(pcm[at : at + size], RATE_HZ, 1), SleepFrame(piece_ms / 1000)]
    return frames


def utterances(
    pcm: bytes, vad: VoiceActivityDetector, *, piece_ms: int = PIECE_MS, late_s: float = 0.0
) -> list[bytes]:
    """Return the audio of the utterances that a recogniser gets."""
    frames = pieces(pcm, piece_ms)
    engine = TakingEngine()

    async def scenario() -> None:
        activity = VoiceActivity(SharedVadAnalyzer(vad, executor=None))
        late = [LateVoice(late_s)] if late_s else []
        stages = [activity, *late, EngineSttService(engine)]
        await run_test(Pipeline(stages), frames_to_send=[*frames, SleepFrame(1.0)])

    virtual_time.run(scenario())
    return [bytes(each) for each in engine.kept]


def quiet_before_ms(pcm: bytes) -> float:
    """Return how much silence is before the first sound."""
    [first, *_] = np.flatnonzero(np.frombuffer(pcm, "<i2"))
    return float(first) * 1000 / RATE_HZ


def sound_ms(pcm: bytes) -> int:
    """Return the length of what is no silence."""
    loud = np.flatnonzero(np.frombuffer(pcm, "<i2"))
    return round((loud[-1] - loud[0]) * 1000 / RATE_HZ)


@pytest.mark.parametrize("late_s", [0.0, 0.1, 0.3])
def test_a_voice_that_is_reported_late_loses_nothing_of_its_beginning(late_s: float) -> None:
    [heard] = utterances(silence(1_000) + tone(900) + silence(400), EnergyVad(), late_s=late_s)
    assert 220 <= quiet_before_ms(heard) <= 300


@pytest.mark.parametrize("offset_ms", range(0, LONG_PIECE_MS, 16))
def test_a_word_that_nearly_ends_in_the_piece_in_which_it_begins_is_heard(offset_ms: int) -> None:
    sound = silence(1_024 + offset_ms) + tone(160) + silence(224) + tone(600) + silence(600)
    first, second = utterances(sound, EnergyVad(), piece_ms=LONG_PIECE_MS)
    assert quiet_before_ms(first) >= 220
    # Each has its own sound alone.
    assert [sound_ms(first), sound_ms(second)] == [160, 600]


@pytest.mark.parametrize("offset_ms", range(0, LONG_PIECE_MS, 32))
def test_speech_in_long_pieces_is_heard_from_its_first_word_on(offset_ms: int) -> None:
    pcm = say("Stop, please tell me the price.", "rms")
    loud = np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(int)) > 500)
    sound = silence(1_000 + offset_ms) + pcm[2 * loud[0] : 2 * loud[-1]] + silence(600)
    first, *_ = utterances(sound, SileroVad(), piece_ms=LONG_PIECE_MS)
    assert quiet_before_ms(first) > 50


@pytest.mark.parametrize("piece_ms", [5, 20, 60, 100, 256, 1_000])
def test_a_report_of_a_voice_says_how_much_earlier_it_happened(piece_ms: int) -> None:
    began_ms, length_ms = 1_100, 400
    sound = silence(began_ms) + tone(length_ms) + silence(1_000)
    reports: list[tuple[int, int]] = []

    class Reports(FrameProcessor):
        """Notes the audio that has come at each report, and how much earlier its voice began or ended."""

        async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
            await super().process_frame(frame, direction)
            if isinstance(frame, VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame):
                ahead, judged = ahead_ms(frame, RATE_HZ), judged_ms(frame, RATE_HZ)
                reports.append((ahead + (judged or 0), ahead + 128))
            await self.push_frame(frame, direction)

    async def scenario() -> None:
        activity = VoiceActivity(SharedVadAnalyzer(EnergyVad(), executor=None))
        await run_test(Pipeline([activity, Reports()]), frames_to_send=pieces(sound, piece_ms))

    virtual_time.run(scenario())
    # Within two windows of the detector.
    assert [came - ago for came, ago in reports] == [
        pytest.approx(began_ms, abs=64),
        pytest.approx(began_ms + length_ms, abs=64),
    ]
    assert all(came % piece_ms == 0 for came, _ in reports)
