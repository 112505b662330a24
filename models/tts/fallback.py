"""Fallback voice: speaks the clauses that the first voice cannot.

Decides clause by clause: a clause without any audio yet goes to the second voice when the first raises
``EngineError``. A clause that broke off in the middle stays so, because nothing is spoken twice. A first
voice that reports a permanent failure is not used again. The audio of the second is resampled to the rate of
the first while it streams. Blocking and thread-safe like the voices themselves; owns nothing else.
"""

from collections.abc import Callable, Sequence

import numpy as np
import soxr
from loguru import logger

from parley.core.errors import EngineError
from parley.core.media import WordTime
from parley.models.tts import SpeechPiece, TextToSpeech


class FallbackTts:
    """Two voices as one engine.

    Args:
        first: used for every clause; its rate is the rate of both.
        second: used when the first fails.
    """

    def __init__(self, first: TextToSpeech, second: TextToSpeech) -> None:
        self.rate_hz = first.rate_hz
        self._first = first
        self._second = at_rate(second, first.rate_hz)
        self._given_up = False

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``, as ``TextToSpeech.synthesize``.

        Raises:
            EngineError: the first broke off inside the clause, or the second failed as well.
        """
        if not self._given_up:
            begun = False

            def watched(piece: SpeechPiece) -> bool:
                nonlocal begun
                begun = begun or bool(piece.pcm)
                return sink(piece)

            try:
                return self._first.synthesize(text, watched)
            except EngineError as error:
                if begun:
                    raise
                self._given_up = not error.retryable
                logger.warning(f"the voice failed, using the fallback voice: {error}")
        return self._second.synthesize(text, sink)


class ResampledTts:
    """Voice at another rate than its own.

    Args:
        voice: the voice.
        rate_hz: rate of the audio.
    """

    def __init__(self, voice: TextToSpeech, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        self._voice = voice

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``, as ``TextToSpeech.synthesize``. Raises as it does."""
        converted = _Resampled(self._voice.rate_hz, self.rate_hz, sink)
        return self._voice.synthesize(text, converted.take) and converted.finish()


def at_rate(voice: TextToSpeech, rate_hz: int) -> TextToSpeech:
    """Return a voice whose audio has this rate."""
    return voice if voice.rate_hz == rate_hz else ResampledTts(voice, rate_hz)


def chain_of(voices: Sequence[TextToSpeech]) -> TextToSpeech:
    """Return voices as one: each speaks what the one before it cannot."""
    *before, chain = voices
    for voice in reversed(before):
        chain = FallbackTts(voice, chain)
    return chain


class _Resampled:
    """Resampler in front of a sink; words travel with the audio or its next piece."""

    def __init__(self, from_hz: int, to_hz: int, sink: Callable[[SpeechPiece], bool]) -> None:
        self._resampler = soxr.ResampleStream(from_hz, to_hz, 1, dtype="int16")
        self._sink = sink
        self._words: tuple[WordTime, ...] = ()

    def take(self, piece: SpeechPiece) -> bool:
        if not piece.pcm and not piece.words:
            return self._sink(piece)
        self._words += piece.words
        return self._pass_on(self._resampler.resample_chunk(np.frombuffer(piece.pcm, dtype="<i2")))

    def finish(self) -> bool:
        return self._pass_on(
            self._resampler.resample_chunk(np.zeros(0, dtype=np.int16), last=True), last=True
        )

    def _pass_on(self, samples: np.ndarray, *, last: bool = False) -> bool:
        if not samples.size and not (last and self._words):
            return True
        words, self._words = self._words, ()
        return self._sink(SpeechPiece(samples.astype("<i2").tobytes(), words))
