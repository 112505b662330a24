"""Pieces of speech as facts and bytes of the worker link. Pure."""

from collections.abc import Mapping
from typing import Any

from core.errors import PeerError
from core.media import PCM_BYTES_PER_SAMPLE
from models.hosted.words import of_words, to_words
from models.tts import SpeechPiece


def of_piece(piece: SpeechPiece) -> tuple[dict[str, Any], bytes]:
    """To be sent."""
    return {"words": of_words(piece.words)}, piece.pcm


def to_piece(facts: Mapping[str, Any], payload: bytes) -> SpeechPiece:
    """As it was received.

    Raises:
        PeerError: it is none.
    """
    if len(payload) % PCM_BYTES_PER_SAMPLE:
        raise PeerError("half a sample of speech")
    try:
        return SpeechPiece(payload, to_words(facts["words"]))
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"a piece of speech that cannot be read: {type(error).__name__}") from error
