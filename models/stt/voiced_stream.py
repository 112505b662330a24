"""Base of streams of recognisers that hallucinate: no audio is decoded before a voice.

Input: 16-bit mono PCM of one utterance at a time. Output: partials whose text changed, and the final
transcript. This class decides when an utterance is open, and which partials are reported. The recogniser
decides when to read, how much, and where to cut a long utterance. Until the first voice only the last second
is kept.
"""

from abc import ABC, abstractmethod

from parley.core.errors import EngineError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime
from parley.models.stt import Transcript
from parley.models.stt.voice import RATE_HZ, UtteranceVoice, VoiceFilter

# Audio kept before the first voice of an utterance.
NOISE_BYTES = RATE_HZ * PCM_BYTES_PER_SAMPLE


class VoicedStream(ABC):
    """Stream of one caller; implements ``models.stt.SpeechStream``. Not thread-safe.

    Args:
        engine: registry name, for errors.
        voices: distinguishes voice from noise.
    """

    def __init__(self, engine: str, voices: VoiceFilter) -> None:
        self._name = engine
        self._voices = voices
        # None outside an utterance.
        self._voice: UtteranceVoice | None = None
        self._partial = ""

    def start(self) -> None:
        """Begin an utterance. Discards an open one.

        Raises:
            EngineError: the library failed.
        """
        self.discard()
        self._partial = ""
        voice = self._voices.open()
        self._begin()
        self._voice = voice

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM at 16 kHz; return a partial when one was due and the text changed.

        Raises:
            EngineError: outside an utterance, or the library failed.
            ShapeError: an odd number of bytes.
        """
        voice = self._open_voice()
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
        self._keep(pcm)
        if not voice.hear(pcm):
            self._forget_noise()
            return None
        text = self._read(len(pcm))
        if text is None or text == self._partial:
            return None
        self._partial = text
        return Transcript(text)

    def finish(self) -> Transcript:
        """End the utterance; return its words with times.

        Raises:
            EngineError: outside an utterance, or the library failed.
        """
        self._open_voice()
        try:
            words = self._last_words()
        finally:
            self.discard()
        confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
        return Transcript(" ".join(word.text for word in words), words, confidence, final=True)

    def discard(self) -> None:
        """End the utterance without a transcript. Allowed outside one."""
        if self._voice is not None:
            self._voice = None
            self._end()

    def close(self) -> None:
        """Release the stream."""
        self.discard()

    def _open_voice(self) -> UtteranceVoice:
        if self._voice is None:
            raise EngineError("no utterance is open", engine=self._name, retryable=False)
        return self._voice

    def _listen_anew(self, pcm: bytes) -> None:
        """Restart voice detection after a part was read to its end: the rest, so far ``pcm``, may be
        silence.
        """
        self._voice = self._voices.open()
        self._voice.hear(pcm)

    @abstractmethod
    def _begin(self) -> None:
        """Begin an utterance; when this raises, no utterance is open."""

    @abstractmethod
    def _keep(self, pcm: bytes) -> None:
        """Append audio of the utterance."""

    @abstractmethod
    def _forget_noise(self) -> None:
        """Drop all but the last ``NOISE_BYTES`` of the audio, because there was no voice so far."""

    @abstractmethod
    def _read(self, new_bytes: int) -> str | None:
        """Return the text of the utterance so far after new audio with a voice; None when none is due."""

    @abstractmethod
    def _last_words(self) -> tuple[WordTime, ...]:
        """Read the rest; return the words of the whole utterance."""

    @abstractmethod
    def _end(self) -> None:
        """Release the resources of ``_begin``."""
