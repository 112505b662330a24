"""A speech engine whose every sample and word time is defined: one tone per word."""

from collections.abc import Callable

import numpy as np

from parley.core.errors import EngineError
from parley.core.media import WordTime, float_to_pcm16, ms_to_samples
from parley.language.text_normalization import plain_words
from parley.models.tts import SpeechPiece


class ToneTts:
    """Voice that speaks each word as ``word_ms`` of a 440 Hz tone, in pieces of ``piece_ms``.

    The pieces are made in the caller's thread.

    Args:
        word_ms: length of every word.
        piece_ms: length of every piece but the last.
        rate_hz: samples per second.
        fail_after_pieces: raise EngineError after that many pieces of each clause.
        before_piece: called before each piece is made.
    """

    def __init__(
        self,
        *,
        word_ms: int = 100,
        piece_ms: int = 20,
        rate_hz: int = 16_000,
        fail_after_pieces: int | None = None,
        before_piece: Callable[[], None] = lambda: None,
    ) -> None:
        self.rate_hz = rate_hz
        self.word_ms = word_ms
        self.fail_after_pieces = fail_after_pieces
        self.clauses: list[str] = []
        self.stopped_at_ms: list[int] = []
        self._piece_samples = ms_to_samples(piece_ms, rate_hz)
        self._before_piece = before_piece

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        self.clauses.append(text)
        words = [word.written for word in plain_words(text)]
        times = tuple(
            WordTime(word, i * self.word_ms, (i + 1) * self.word_ms) for i, word in enumerate(words)
        )
        total = ms_to_samples(len(words) * self.word_ms, self.rate_hz)
        tone = 0.5 * np.sin(2 * np.pi * 440 / self.rate_hz * (np.arange(total) + 0.5))
        for count, start in enumerate(range(0, total, self._piece_samples)):
            if self.fail_after_pieces is not None and count >= self.fail_after_pieces:
                raise EngineError("the tone broke off", engine="tone")
            self._before_piece()
            pcm = float_to_pcm16(tone[start : start + self._piece_samples].astype(np.float32))
            if not sink(SpeechPiece(pcm, () if start else times)):
                self.stopped_at_ms.append(start * 1000 // self.rate_hz)
                return False
        return True
