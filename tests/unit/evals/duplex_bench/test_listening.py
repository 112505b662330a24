"""The caller's words with an engine that does not transcribe: split by voices, delivered in time."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from parley.core.speech_reports import TranscriptWords
from parley.core.units import Vote
from parley.evals.duplex_bench.clips import Clip, Part
from parley.evals.duplex_bench.listening import ParallelRecogniser
from parley.evals.duplex_bench.runner import PIECE_MS, Side, play
from parley.evals.duplex_bench.spoken import RATE_HZ
from parley.models.stt import Transcript
from tests import virtual_time
from tests.fakes.executor import TimedExecutor
from tests.fakes.omni import OmniScript, ScriptedOmni, ScriptedOmniHost
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine


def accept(result: object) -> Transcript:
    assert isinstance(result, Transcript)
    return result


def recogniser(**settings: object) -> InPlaceEngine[Transcript]:
    return InPlaceEngine(ScriptedStt(ScriptedSttSettings(**settings)), accept)


def caller(*loud_ms: tuple[int, int], length_ms: int = 4_000) -> np.ndarray:
    audio = np.zeros(length_ms * RATE_HZ // 1000, np.float32)
    for first, last in loud_ms:
        audio[first * RATE_HZ // 1000 : last * RATE_HZ // 1000] = 0.2
    return audio


def heard(
    audio: np.ndarray, **settings: object
) -> tuple[list[tuple[int, TranscriptWords]], ParallelRecogniser]:
    """Return (ms of the audio, words) of each transcript, in order of delivery, and the recogniser."""
    received: list[tuple[int, TranscriptWords]] = []

    async def run() -> ParallelRecogniser:
        at_ms = 0
        parallel = ParallelRecogniser(
            recogniser(**settings), EnergyVad(), lambda words: received.append((at_ms, words))
        )
        await parallel.open()
        size = PIECE_MS * RATE_HZ // 1000
        for first in range(0, len(audio), size):
            parallel.hear(audio[first : first + size])
            at_ms += PIECE_MS
            await asyncio.sleep(PIECE_MS / 1000)
        parallel.close()
        return parallel

    parallel = virtual_time.run(run())
    return received, parallel


def test_each_voice_is_an_utterance_and_its_words_are_final_behind_its_end() -> None:
    received, parallel = heard(caller((500, 1_100), (2_000, 2_400)))
    finals = [(at_ms, words.text) for at_ms, words in received if words.is_final]
    assert [text for _, text in finals] == ["one two three", "one two"] == parallel.understood
    # Voice activity detects the end after 128 ms, at a window.
    assert [at_ms for at_ms, _ in finals] == [pytest.approx(1_228, abs=60), pytest.approx(2_528, abs=60)]
    assert parallel.late_ms == [0, 0] and parallel.failures == 0


def test_a_partial_confirms_nothing_and_a_final_has_a_confidence_for_each_word() -> None:
    received, _ = heard(caller((500, 1_100)))
    partials = [words for _, words in received if not words.is_final]
    assert partials and all(words.confidences == (0.0,) for words in partials)
    assert [words.confidences for _, words in received if words.is_final] == [(0.9, 0.9, 0.9)]


def test_silence_has_no_words() -> None:
    received, parallel = heard(caller())
    assert received == [] and parallel.understood == []


def test_a_recogniser_that_fails_loses_words_and_is_opened_anew() -> None:
    received, parallel = heard(caller((500, 1_500), (2_500, 2_800)), raise_after_ms=1_200)
    # The first voice is too long for it; the second one is understood.
    assert parallel.failures == 1
    assert [words.text for _, words in received if words.is_final] == ["one"]


class WordyHost(ScriptedOmniHost):
    """Host whose engine takes the words of a recogniser."""

    def open_engine(self) -> ScriptedOmni:
        self.wordy = _Wordy(self.script)
        return self.wordy


class _Wordy(ScriptedOmni):
    def __init__(self, script: OmniScript) -> None:
        super().__init__(script)
        self.words: list[TranscriptWords] = []

    def on_words(self, words: TranscriptWords) -> None:
        self.words.append(words)


def test_an_engine_that_wants_words_gets_them_while_the_clip_is_played() -> None:
    host = WordyHost(OmniScript(votes=lambda unit: Vote.LISTEN))
    clip = Clip(Part.TURN, "turn/1", Path("nowhere"))
    side = Side(recogniser(), EnergyVad())

    def thread() -> TimedExecutor:
        return TimedExecutor(lambda name: 0.0)

    take = virtual_time.run(play(host, clip, caller((500, 1_100)), side=side, executors=thread))
    assert take.understood == ("one two three",) and take.words_late_ms == (0,)
    assert [words.text for words in host.wordy.words if words.is_final] == ["one two three"]
