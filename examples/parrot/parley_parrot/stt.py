"""Recogniser that reports the same words for every voice: settings, shared weights, a stream per caller."""

import numpy as np
from pydantic import BaseModel, Field

from parley.core.errors import EngineError, ShapeError
from parley.core.media import WordTime
from parley.models.stt import Transcript

RATE_HZ = 16_000
# Amplitude of 16-bit samples from which a sound is a voice.
LOUD = 1_000


class ParrotSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the recogniser."""

    phrase: str = Field("hello", min_length=1, description="words that it reports for every voice")


class ParrotStream:
    """Stream of one caller."""

    def __init__(self, phrase: str) -> None:
        self._words = phrase.lower().split()
        self._audio: bytearray | None = None
        self._has_reported = False

    def start(self) -> None:
        """Begin an utterance; an open one is discarded."""
        self._audio = bytearray()
        self._has_reported = False

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM; report the first word when a voice begins."""
        if len(pcm) % 2:
            raise ShapeError("expected whole 16-bit samples")
        self._open_audio().extend(pcm)
        if self._has_reported or not len(_loud(pcm)):
            return None
        self._has_reported = True
        return Transcript(self._words[0])

    def finish(self) -> Transcript:
        """End the utterance; spread the words over its voice."""
        loud = _loud(bytes(self._open_audio()))
        self._audio = None
        if not len(loud):
            return Transcript("", final=True)
        times = np.linspace(loud[0], loud[-1] + 1, len(self._words) + 1) * 1000 / RATE_HZ
        words = tuple(
            WordTime(word, int(times[place]), int(times[place + 1]), 1.0)
            for place, word in enumerate(self._words)
        )
        return Transcript(" ".join(self._words), words, confidence=1.0, final=True)

    def discard(self) -> None:
        """End the utterance without a transcript."""
        self._audio = None

    def close(self) -> None:
        """Release the stream."""

    def _open_audio(self) -> bytearray:
        if self._audio is None:
            raise EngineError("no utterance is open", engine="parrot")
        return self._audio


class ParrotStt:
    """Recogniser with nothing to load; ``rate_hz`` is the rate of the PCM that its streams take."""

    rate_hz = RATE_HZ

    def __init__(self, settings: ParrotSettings | None = None) -> None:
        self._settings = settings or ParrotSettings()

    def open_stream(self) -> ParrotStream:
        """Open a stream for one caller."""
        return ParrotStream(self._settings.phrase)


def _loud(pcm: bytes) -> np.ndarray:
    """Return the places of the samples that belong to a voice."""
    return np.flatnonzero(np.abs(np.frombuffer(pcm, "<i2").astype(int)) >= LOUD)
