"""What the tests of voices do with one: let it speak, and put the pieces together."""

from models.tts import SpeechPiece, TextToSpeech


def speak(engine: TextToSpeech, text: str) -> list[SpeechPiece]:
    """A text spoken to its end."""
    pieces: list[SpeechPiece] = []
    assert engine.synthesize(text, lambda piece: pieces.append(piece) is None)
    return pieces


def pcm(pieces: list[SpeechPiece]) -> bytes:
    """The audio of all pieces."""
    return b"".join(piece.pcm for piece in pieces)
