"""Transcripts and pieces of speech on the worker link: decoded unchanged, or refused."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.errors import PeerError
from parley.core.media import WordTime
from parley.models.hosted.speech import of_piece, to_piece, to_transcript
from parley.models.stt import Transcript
from parley.models.tts import SpeechPiece
from parley.protocols.facts import to_facts

SHARES = st.floats(0, 1)
TIMES = st.integers(0, 10**9)
WORDS = st.lists(st.builds(WordTime, st.text(max_size=20), TIMES, TIMES, SHARES, st.booleans()), max_size=20)
TRANSCRIPTS = st.builds(
    Transcript,
    st.text(max_size=100),
    WORDS.map(tuple),
    SHARES,
    st.booleans(),
    st.none() | st.floats(allow_nan=False, allow_infinity=False),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=5), inner, max_size=5),
    max_leaves=10,
)
WHOLE = to_facts(Transcript("hello", (WordTime("hello", 0, 10),), 0.5, final=True))


def crossed(facts: dict[str, Any]) -> dict[str, Any]:
    received: dict[str, Any] = json.loads(json.dumps(facts))
    return received


@given(TRANSCRIPTS)
def test_a_transcript_arrives_as_it_was(transcript: Transcript) -> None:
    assert to_transcript(crossed(to_facts(transcript))) == transcript


@given(WORDS, st.binary(max_size=100).map(lambda data: data[: len(data) // 2 * 2]))
def test_a_piece_arrives_as_it_was(words: list[WordTime], pcm: bytes) -> None:
    piece = SpeechPiece(pcm, tuple(words))
    facts, payload = of_piece(piece)
    assert to_piece(crossed(facts), payload) == piece


def test_numbers_of_numpy_are_sent_as_numbers() -> None:
    word = WordTime("hello", int(np.int64(1)), np.int64(2), np.float32(0.5))  # type: ignore[arg-type]
    sent = crossed(to_facts(Transcript("hello", (word,), np.float32(0.5))))  # type: ignore[arg-type]
    assert to_transcript(sent).words == (WordTime("hello", 1, 2, 0.5),)


@given(st.sampled_from(sorted(WHOLE)), JSON)
def test_a_fact_of_another_kind_is_refused_or_is_what_it_says(name: str, value: Any) -> None:
    """No error of another class is raised: the sender is on the other side of a socket."""
    try:
        heard = to_transcript(WHOLE | {name: value})
    except PeerError:
        return
    assert isinstance(heard.text, str) and 0 <= heard.confidence <= 1
    assert all(word.start_ms >= 0 and 0 <= word.confidence <= 1 for word in heard.words)


@pytest.mark.parametrize(
    "change",
    [
        {"confidence": 1.5},
        {"confidence": True},
        {"confidence": float("nan")},
        {"text": 5},
        {"final": 1},
        {"words": [["hello", 0, 10, 1.0]]},
        {"words": [["hello", -1, 10, 1.0, False]]},
        {"words": [["hello", 0.5, 10, 1.0, False]]},
        {"words": [["hello", True, 10, 1.0, False]]},
        {"words": [["hello", 0, 10, 1.0, 0]]},
        {"words": [[["hello"], 0, 10, 1.0, False]]},
        {"words": {}},
        {"words": [["x", 0, 1, 1.0, False]] * 10_001},
        {"floor_log_odds": "high"},
    ],
)
def test_what_no_engine_says_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(PeerError):
        to_transcript(WHOLE | change)


@pytest.mark.parametrize("name", sorted(WHOLE))
def test_a_transcript_without_one_of_its_facts_is_refused(name: str) -> None:
    with pytest.raises(PeerError):
        to_transcript({key: value for key, value in WHOLE.items() if key != name})


@pytest.mark.parametrize(
    ("facts", "payload"), [({"words": []}, b"\0"), ({}, b""), ({"words": [[]]}, b""), ({"words": None}, b"")]
)
def test_speech_that_cannot_be_is_refused(facts: dict[str, Any], payload: bytes) -> None:
    with pytest.raises(PeerError):
        to_piece(facts, payload)
