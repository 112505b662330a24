"""Helpers of the voices' tests: let a voice speak, alone and to several calls, and join the pieces."""

import threading
from collections.abc import Callable, Sequence

from parley.models.tts import SpeechPiece, TextToSpeech


def speak(engine: TextToSpeech, text: str) -> list[SpeechPiece]:
    """Speak a text to its end and return the pieces."""
    pieces: list[SpeechPiece] = []
    assert engine.synthesize(text, lambda piece: pieces.append(piece) is None)
    return pieces


def pcm(pieces: list[SpeechPiece]) -> bytes:
    """Return the audio of all pieces."""
    return b"".join(piece.pcm for piece in pieces)


def at_once(speak: Callable[[str], bytes], texts: Sequence[str]) -> dict[str, bytes]:
    """Speak each text in a thread of its own, all at the same time; return the audio by text."""
    spoken: dict[str, bytes] = {}
    start = threading.Barrier(len(texts))

    def run(text: str) -> None:
        start.wait(timeout=10)
        spoken[text] = speak(text)

    threads = [threading.Thread(target=run, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return spoken
