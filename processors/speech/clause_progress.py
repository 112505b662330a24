"""Account of a clause that a service voice speaks: what has been passed on, and what is left to say.

Takes the pieces of the voice, whose words have a beginning and no end, and returns pieces whose words have
both. Decides which words count as said when the voice breaks off: a word whose half was passed on, which is
also when it counts as heard. Another voice then says the rest, so no word is heard twice, and none is lost
except the end of the one in which the voice broke off.

Leading silence is held back until a sound comes, so a voice that sends silence has passed on nothing. Pure.
"""

import re
import string
from collections import deque
from dataclasses import dataclass

import numpy as np

from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, samples_to_ms
from parley.models.tts import SpeechPiece
from parley.processors.playout.word_times import estimate_word_times, spoken_us

# A sample above -45 dBFS is a sound: below it lie the dither and the breath with which voices begin.
AUDIBLE = 184
_US_PER_MS = 1_000
# Marks and spaces between two words, or a word that a voice leaves out.
_SEARCH_CHARS = 12
_TOKEN = re.compile(r"\s*\S+")


@dataclass(frozen=True, slots=True)
class BrokenClause:
    """State of a clause whose voice broke off.

    Attributes:
        words: words that count as said and were not passed on before.
        rest: text that is left to say; empty when all was said.
    """

    words: tuple[WordTime, ...]
    rest: str


class ClauseProgress:
    """Progress of one clause with one voice.

    Args:
        text: the clause.
        rate_hz: rate of the audio.
        offset_ms: audio of the clause that another voice has spoken before.
    """

    def __init__(self, text: str, rate_hz: int, *, offset_ms: int = 0) -> None:
        self._text = text
        self._rate_hz = rate_hz
        self._offset_ms = offset_ms
        self._silence = bytearray()
        self._has_sound = False
        self._passed_samples = 0
        # Words that were not passed on, with their beginnings. A word ends where the next one begins.
        self._waiting: deque[tuple[str, int]] = deque()
        # Place in the text after the last word that was passed on, and its end in the audio.
        self._place = 0
        self._said_ms = 0

    @property
    def has_sound(self) -> bool:
        """True when a sound was passed on."""
        return self._has_sound

    @property
    def passed_ms(self) -> int:
        """Audio that was passed on."""
        return samples_to_ms(self._passed_samples, self._rate_hz)

    @property
    def silence_ms(self) -> int:
        """Leading silence that is held back."""
        return samples_to_ms(len(self._silence) // PCM_BYTES_PER_SAMPLE, self._rate_hz)

    def add(self, piece: SpeechPiece) -> SpeechPiece | None:
        """Take the next piece of the voice; return what may be passed on, or None for nothing yet."""
        self._waiting.extend((word.text, word.start_ms) for word in piece.words)
        pcm = piece.pcm
        if not self._has_sound:
            self._silence += pcm
            if not _is_audible(pcm):
                return None
            self._has_sound = True
            pcm = bytes(self._silence)
            self._silence.clear()
        self._passed_samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        words = self._due_words()
        return SpeechPiece(pcm, words) if pcm or words else None

    def finish(self) -> SpeechPiece | None:
        """Return the words that are left, at the end of the clause; None when there are none."""
        words = []
        while self._waiting:
            text, start_ms = self._waiting.popleft()
            end_ms = self._waiting[0][1] if self._waiting else max(start_ms, self.passed_ms)
            words.append(self._said(text, start_ms, end_ms))
        return SpeechPiece(b"", tuple(words)) if words else None

    def break_off(self) -> BrokenClause:
        """Return what counts as said, and the rest: the voice gives no more."""
        words = list(self._due_words())
        begun = self._waiting.popleft() if self._waiting else None
        if begun is not None and not self._waiting:
            # Its end is not known.
            text, start_ms = begun
            # Without the pause after it.
            end_ms = start_ms + spoken_us(text.rstrip(string.punctuation)) // _US_PER_MS
            if self._is_due(start_ms, end_ms):
                words.append(self._said(text, start_ms, min(end_ms, self.passed_ms)))
                begun = None
        if begun is None:
            words += self._estimated()
        self._waiting.clear()
        return BrokenClause(tuple(words), self._text[self._place :].strip())

    def _due_words(self) -> tuple[WordTime, ...]:
        words = []
        while len(self._waiting) > 1 and self._is_due(self._waiting[0][1], self._waiting[1][1]):
            text, start_ms = self._waiting.popleft()
            words.append(self._said(text, start_ms, self._waiting[0][1]))
        return tuple(words)

    def _is_due(self, start_ms: int, end_ms: int) -> bool:
        return self._has_sound and self.passed_ms >= start_ms + (end_ms - start_ms) // 2

    def _said(self, text: str, start_ms: int, end_ms: int, *, estimated: bool = False) -> WordTime:
        self._place = self._after(text)
        self._said_ms = end_ms
        return WordTime(
            text, self._offset_ms + start_ms, self._offset_ms + max(start_ms, end_ms), estimated=estimated
        )

    def _after(self, word: str) -> int:
        """Return the place in the text after a word that follows the present place."""
        start = self._place
        found = self._text.find(word, start, start + len(word) + _SEARCH_CHARS)
        if found >= 0:
            return found + len(word)
        # A voice may spell a word in another way, as "5 dollars" for "$5": it is not said again.
        token = _TOKEN.match(self._text, start)
        return token.end() if token else start

    def _estimated(self) -> list[WordTime]:
        """Return the words of the audio after the last known one, by an ordinary pace.

        A voice without word times has none that is known, and one with them may send them after the audio.
        """
        rest = self._text[self._place :]
        if not rest.strip():
            return []
        from_us = self._said_ms * _US_PER_MS
        words = []
        for placed in estimate_word_times(rest, from_us, from_us + spoken_us(rest)):
            start_ms, end_ms = placed.start_us // _US_PER_MS, placed.end_us // _US_PER_MS
            if not self._is_due(start_ms, end_ms):
                break
            words.append(self._said(placed.text, start_ms, min(end_ms, self.passed_ms), estimated=True))
        return words


def _is_audible(pcm: bytes) -> bool:
    samples = np.frombuffer(pcm, dtype="<i2").astype(np.int32)
    return bool(samples.size) and int(np.abs(samples).max()) >= AUDIBLE
