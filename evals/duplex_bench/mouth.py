"""Audible output of a bot: an engine's results in, as they come; audio on the clock of the clip out.

The rules are those of ``processors.duplex.voice``. A unit is audible from ``LEAD_MS`` after its result on.
Pieces leave one after the other at times that are counted in samples, and a yield drops everything that has
not left. Words are placed at their part of the audio (``processors.duplex.word_aligner``).

Pure: times come in, in microseconds from the first sample of the clip; before it they are negative.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from parley.core.units import Vote
from parley.evals.duplex_bench.spoken import Word
from parley.models.omni import UnitResult
from parley.processors.duplex.voice import SILENT_PEAK, SpeechPacing, paced_output
from parley.processors.duplex.word_aligner import EngineWordTiming, WordAligner

SETTINGS = SpeechPacing()
LEAD_MS = SETTINGS.lead_ms
_US_PER_S = 1_000_000


@dataclass(slots=True)
class _Reply:
    """The present reply, and the position of its beginning in all audio of the engine."""

    began: int
    saying: WordAligner


class Mouth:
    """Output of the bot in a clip.

    Args:
        rate_hz: of the engine.
        unit_ms: of the engine.
        length_ms: of the clip. Later audio is dropped.
    """

    def __init__(self, rate_hz: int, unit_ms: int, length_ms: int) -> None:
        self._rate_hz = rate_hz
        self._heard = np.zeros(length_ms * rate_hz // 1000, np.float32)
        self._paced = paced_output(rate_hz, unit_ms=unit_ms, settings=SETTINGS)
        self._reply: _Reply | None = None
        # (first sample in the engine's audio, sample of the clip, samples) of each audible piece.
        self._places: list[tuple[int, int, int]] = []
        self._given = 0
        self._words: list[tuple[str, int, int]] = []

    @property
    def holes(self) -> int:
        """Number of times that speech went on later than it was due."""
        return self._paced.holes

    def say(self, result: UnitResult, at_us: int) -> None:
        """Take a result and the time of its arrival."""
        self._leave(at_us)
        if result.vote is Vote.YIELD:
            self._paced.clear()
            self._end()
        elif result.vote is Vote.BACKCHANNEL:
            self._push(result.audio, at_us)
        elif result.vote is Vote.SPEAK:
            if self._reply is None:
                self._reply = _Reply(self._given, WordAligner())
            audio = self._without_lead(result)
            self._place(self._reply.saying.add(result.text, len(audio), self._rate_hz))
            self._push(audio, at_us)
        if result.end_of_turn or result.vote is Vote.LISTEN:
            self._end()
            self._paced.push(np.zeros(0, np.float32), at_us, is_last=True)

    def heard(self) -> tuple[np.ndarray, tuple[Word, ...]]:
        """Return the whole clip: float32, (samples,), at the engine's rate, and the words in it."""
        self._leave(len(self._heard) * _US_PER_S // self._rate_hz)
        self._end()
        words = []
        for text, first, last in self._words:
            began = self._place_of(first)
            if began is not None and 0 <= began < len(self._heard):
                ended = self._place_of(max(first, last - 1))
                words.append(Word(text, self._ms(began), self._ms(ended + 1 if ended is not None else began)))
        return self._heard, tuple(words)

    def _without_lead(self, result: UnitResult) -> np.ndarray:
        """Return the audio of a result without the silence before a reply."""
        assert self._reply is not None
        if self._reply.saying.audio_us:
            return result.audio
        loud = np.flatnonzero(np.abs(result.audio) > SILENT_PEAK)
        return result.audio[loud[0] :] if loud.size else result.audio[:0]

    def _push(self, audio: np.ndarray, at_us: int) -> None:
        before = self._paced.held_samples
        left_out = self._paced.push(audio, at_us)
        self._given += self._paced.held_samples - before
        if self._reply is not None:
            self._reply.saying.audio_us -= left_out * _US_PER_S // self._rate_hz

    def _end(self) -> None:
        if self._reply is not None:
            self._place(self._reply.saying.end())
            self._reply = None

    def _place(self, words: Iterable[EngineWordTiming]) -> None:
        assert self._reply is not None
        for word in words:
            first, last = (
                self._reply.began + us * self._rate_hz // _US_PER_S for us in (word.start_us, word.end_us)
            )
            self._words.append((word.text, first, last))

    def _place_of(self, given: int) -> int | None:
        """Return the position in the clip of a sample of the engine; None when it was dropped."""
        for first, at, size in self._places:
            if first <= given < first + size:
                return at + given - first
        return None

    def _leave(self, until_us: int) -> None:
        while (due_us := self._paced.next_due_us()) is not None and due_us <= until_us:
            first = self._given - self._paced.held_samples
            piece = self._paced.take(due_us)
            if piece is None:
                return
            at = round((due_us + LEAD_MS * 1000) * self._rate_hz / _US_PER_S)
            self._places.append((first, at, len(piece)))
            cut = piece[max(0, -at) : max(0, len(self._heard) - at)]
            self._heard[max(0, at) : max(0, at) + len(cut)] = cut

    def _ms(self, sample: int) -> int:
        return sample * 1000 // self._rate_hz
