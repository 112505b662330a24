"""Transcripts and pieces of speech as facts and bytes of the worker link. Pure."""

from collections.abc import Mapping
from typing import Any

from parley.core.errors import PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime
from parley.models.stt import Transcript
from parley.models.tts import SpeechPiece
from parley.protocols.facts import from_facts, to_facts

# Limit for one message; an utterance or a clause has fewer.
MOST_WORDS = 10_000


def to_transcript(facts: object) -> Transcript:
    """Return the transcript that was received.

    Raises:
        PeerError: the facts are not a valid transcript.
    """
    transcript = from_facts(Transcript, facts)
    _check(transcript.words, transcript.confidence)
    return transcript


def of_piece(piece: SpeechPiece) -> tuple[dict[str, Any], bytes]:
    """Return the facts and the payload of a piece of speech."""
    return to_facts(piece, without=("pcm",)), piece.pcm


def to_piece(facts: Mapping[str, Any], payload: bytes) -> SpeechPiece:
    """Return the piece of speech that was received.

    Raises:
        PeerError: the message is not a valid piece of speech.
    """
    if len(payload) % PCM_BYTES_PER_SAMPLE:
        raise PeerError("the speech ends within a sample")
    piece = from_facts(SpeechPiece, facts, pcm=payload)
    _check(piece.words)
    return piece


def _check(words: tuple[WordTime, ...], *shares: float) -> None:
    if len(words) > MOST_WORDS:
        raise PeerError(f"{len(words)} words in one message")
    if not all(0 <= share <= 1 for share in (*shares, *(word.confidence for word in words))):
        raise PeerError("a confidence is outside 0 to 1")
