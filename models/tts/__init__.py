"""Text to speech: takes one clause, returns audio pieces with word times.

Synthesis blocks and streams: each piece goes to ``sink`` as soon as it exists, and when the sink returns
False the engine stops within the word. Shared by all calls; an engine that cannot synthesise in parallel
locks itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from parley.core.media import WordTime
from parley.core.registry import Registry, Row


@dataclass(frozen=True, slots=True)
class SpeechPiece:
    """Piece of one clause.

    Attributes:
        pcm: 16-bit mono samples at the engine's rate.
        words: words whose times became known with this piece, from the start of the clause; each word once.
    """

    pcm: bytes
    words: tuple[WordTime, ...] = ()


class TextToSpeech(Protocol):
    """Shared voice. Thread-safe."""

    rate_hz: int

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``. A piece without audio and words only checks for a cancellation.

        Returns True when all of it was spoken, False when the sink stopped it. Raises EngineError when the
        engine fails; text without any pronounceable character is silence, not an error.
        """
        ...


TTS: Registry[TextToSpeech] = Registry(
    "tts engine",
    {
        "hibari": Row(
            "parley.models.tts.hibari:HibariTts", "in process, neural, 13 ms to first audio, US English"
        ),
        "flite": Row("parley.models.tts.flite:FliteTts", "in process, 14 ms to first audio, US English"),
        "espeak": Row("parley.models.tts.espeak:EspeakTts", "in process, many languages, robotic"),
        "kokoro": Row("parley.models.tts.kokoro:KokoroTts", "local neural voice", extra="kokoro"),
        "piper": Row(
            "parley.models.tts.piper:PiperTts", "local neural voice, GPL-3.0 package", extra="piper"
        ),
        "supertonic": Row(
            "parley.models.tts.supertonic:SupertonicTts",
            "local neural voice, 31 languages, OpenRAIL-M weights",
            extra="supertonic",
        ),
        "worker": Row(
            "parley.models.tts.hosted.engine:WorkerTts",
            "any voice in a worker (`python runner.py --role worker`), reached at its url",
        ),
    },
)
