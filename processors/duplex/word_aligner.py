"""Align the words of an engine's reply with its audio.

Input: the text and the audio of each unit. Output: words with their places. An engine writes tokens, not
words, and reports how much audio a unit has, not where in it a word is. A complete word lies in the units in
which it was written, and the words of a unit share its time by their letters. So a place is an estimate,
accurate to a unit; text often runs a little ahead of its audio.

The module is pure; each reply has one object.
"""

from dataclasses import dataclass

_US_PER_S = 1_000_000


@dataclass(frozen=True, slots=True)
class EngineWordTiming:
    """A word and its place in the audio.

    Attributes:
        text: the word without the spaces around it.
        start_us: its start, from the first sample of the reply.
        end_us: its end.
    """

    text: str
    start_us: int
    end_us: int


@dataclass(slots=True)
class WordAligner:
    """Alignment of one reply.

    Attributes:
        text: all of it, as written.
        audio_us: length of its audio so far.
    """

    text: str = ""
    audio_us: int = 0
    # A word that may continue, and where it began.
    _open: str = ""
    _open_us: int = 0

    def add(self, text: str, samples: int, rate_hz: int) -> list[EngineWordTiming]:
        """Add a unit; return its words that are complete now."""
        start_us, length_us = self.audio_us, samples * _US_PER_S // rate_hz
        self.text += text
        self.audio_us += length_us
        if not text:
            return []
        if not self._open:
            self._open_us = start_us
        done: list[EngineWordTiming] = []
        letters = max(1, len(text))
        for place, letter in enumerate(text):
            at_us = start_us + length_us * place // letters
            if letter.isspace():
                done += self._close(at_us)
                self._open_us = start_us + length_us * (place + 1) // letters
            else:
                self._open += letter
        return done

    def leave_out(self, samples: int, rate_hz: int) -> None:
        """Subtract silence of its audio that is not played."""
        self.audio_us -= samples * _US_PER_S // rate_hz

    def end(self) -> list[EngineWordTiming]:
        """End the reply; return the last word, if it is not returned yet."""
        return self._close(self.audio_us)

    def _close(self, at_us: int) -> list[EngineWordTiming]:
        word, self._open = self._open, ""
        return [EngineWordTiming(word, self._open_us, max(at_us, self._open_us))] if word else []
