"""Transcripts as facts of the worker link. Pure."""

from collections.abc import Mapping
from typing import Any

from core.errors import PeerError
from models.hosted.words import of_words, to_share, to_words
from models.stt import Transcript


def of_transcript(transcript: Transcript) -> dict[str, Any]:
    """To be sent."""
    floor = transcript.floor_log_odds
    return {
        "text": transcript.text,
        "words": of_words(transcript.words),
        "confidence": float(transcript.confidence),
        "final": bool(transcript.final),
        "floor_log_odds": None if floor is None else float(floor),
    }


def to_transcript(facts: Mapping[str, Any]) -> Transcript:
    """As it was received.

    Raises:
        PeerError: it is none.
    """
    try:
        text, final, floor = facts["text"], facts["final"], facts["floor_log_odds"]
        if not isinstance(text, str) or not isinstance(final, bool):
            raise ValueError("a fact of another kind")
        if floor is not None and (isinstance(floor, bool) or not isinstance(floor, int | float)):
            raise ValueError("a fact of another kind")
        return Transcript(
            text,
            to_words(facts["words"]),
            to_share(facts["confidence"]),
            final,
            None if floor is None else float(floor),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise PeerError(f"a transcript that cannot be read: {type(error).__name__}") from error
