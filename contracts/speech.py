"""Spoken input of the contract tests: callers by flite, the same in every run."""

from functools import cache

from parley.models.stt import SpeechStream, Transcript
from parley.models.tts import SpeechPiece
from parley.models.tts.flite import FliteSettings, FliteTts

RATE_HZ = 16_000
# 20 ms of 16-bit samples.
PIECE_BYTES = 640


@cache
def _voice(name: str) -> FliteTts:
    return FliteTts(FliteSettings.model_validate({"voice": name}))


@cache
def say(text: str, voice: str = "rms") -> bytes:
    """Return 16-bit mono PCM at 16 kHz of ``text``."""
    pieces: list[bytes] = []

    def sink(piece: SpeechPiece) -> bool:
        pieces.append(piece.pcm)
        return True

    _voice(voice).synthesize(text, sink)
    return b"".join(pieces)


def silence(duration_ms: int) -> bytes:
    """Return 16-bit mono PCM at 16 kHz, all zero."""
    return bytes(RATE_HZ * duration_ms // 1000 * 2)


def question() -> bytes:
    """Return a short question between two silences of 200 ms."""
    return silence(200) + say("what is your pin") + silence(200)


def play(stream: SpeechStream, pcm: bytes, piece_bytes: int = PIECE_BYTES) -> list[Transcript]:
    """Feed audio in pieces; return the partial transcripts."""
    partials = [stream.feed(pcm[at : at + piece_bytes]) for at in range(0, len(pcm), piece_bytes)]
    return [partial for partial in partials if partial is not None]


def understand(stream: SpeechStream, pcm: bytes, piece_bytes: int = PIECE_BYTES) -> Transcript:
    """Feed one utterance from start to finish, and return its final transcript."""
    stream.start()
    play(stream, pcm, piece_bytes)
    return stream.finish()
