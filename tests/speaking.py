"""Helpers of the voices' tests: let a voice speak, and join the pieces."""

from parley.models.tts import SpeechPiece, TextToSpeech


def speak(engine: TextToSpeech, text: str) -> list[SpeechPiece]:
    """Speak a text to its end and return the pieces."""
    pieces: list[SpeechPiece] = []
    assert engine.synthesize(text, lambda piece: pieces.append(piece) is None)
    return pieces


def pcm(pieces: list[SpeechPiece]) -> bytes:
    """Return the audio of all pieces."""
    return b"".join(piece.pcm for piece in pieces)
