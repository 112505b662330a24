"""Recogniser of an installed package: reports the same words for every utterance.

Useless on calls, and the smallest complete example of an engine: settings, shared weights, one stream for
each caller. The interface and its rules are in ``models/stt/__init__.py`` of Parley.
"""

from pydantic import BaseModel, Field

from parley.core.errors import EngineError
from parley.models.stt import Transcript


class ParrotSettings(BaseModel, frozen=True, extra="forbid"):
    """Settings of the parrot."""

    phrase: str = Field("hello", min_length=1, description="words that it reports for every utterance")


class ParrotStream:
    """Stream of one caller."""

    def __init__(self, phrase: str) -> None:
        self._phrase = phrase
        self._has_utterance = False

    def start(self) -> None:
        """Begin an utterance; an open one is discarded."""
        self._has_utterance = True

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM; return no partial transcript."""
        self._require_utterance()
        return None

    def finish(self) -> Transcript:
        """End the utterance and return its final transcript."""
        self._require_utterance()
        self._has_utterance = False
        return Transcript(self._phrase, confidence=1.0, final=True)

    def discard(self) -> None:
        """End the utterance without a transcript."""
        self._has_utterance = False

    def close(self) -> None:
        """Release the stream."""

    def _require_utterance(self) -> None:
        if not self._has_utterance:
            raise EngineError("parrot: no utterance is open", engine="parrot")


class ParrotStt:
    """Recogniser with nothing to load; ``rate_hz`` is the rate of the PCM that its streams take."""

    rate_hz = 16_000

    def __init__(self, settings: ParrotSettings | None = None) -> None:
        self._settings = settings or ParrotSettings()

    def open_stream(self) -> ParrotStream:
        """Open a stream for one caller."""
        return ParrotStream(self._settings.phrase)
