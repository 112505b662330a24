"""Whole sound of a text in a voice, for evaluations that do not stream it."""

from parley.models.tts import SpeechPiece, TextToSpeech


def pieces_of(voice: TextToSpeech, text: str) -> list[SpeechPiece]:
    """Return all pieces of a text, in order."""
    pieces: list[SpeechPiece] = []

    def take(piece: SpeechPiece) -> bool:
        pieces.append(piece)
        return True

    voice.synthesize(text, take)
    return pieces


def synthesised(voice: TextToSpeech, text: str) -> bytes:
    """Return the whole sound of a text: 16-bit PCM at the rate of the voice."""
    return b"".join(piece.pcm for piece in pieces_of(voice, text))
