"""Tension of the caller's voice in the turns of a session."""

from typing import Any

import pytest

from parley.session_store.tension import judged_stretches


def token(start_us: int, **prosody: float) -> dict[str, Any]:
    return {"text": "fine", "prosody": {"start_us": start_us, "end_us": start_us + 2, **prosody}}


def test_stretches_of_a_turn_are_counted_once_with_their_higher_score() -> None:
    tokens = [token(5, stress=0.3, anger=0.7), token(1, stress=0.9), token(5, stress=0.3, anger=0.7)]
    assert judged_stretches({"text": "fine fine", "tokens": tokens}) == [(1, 3, 0.9), (5, 7, 0.7)]


@pytest.mark.parametrize(
    "tokens",
    [
        None,
        "tense",
        [{"text": "[tense]"}, 1],
        [token(1)],
        [{"text": "fine", "prosody": "tense"}],
        [{"text": "fine", "prosody": {"start_us": 1, "end_us": 2, "stress": True}}],
    ],
)
def test_a_turn_without_judged_speech_has_none(tokens: object) -> None:
    assert judged_stretches({"text": "fine", "rendered": "fine [tense]", "tokens": tokens}) == []


def test_the_score_of_a_report_without_a_place_is_kept() -> None:
    assert judged_stretches({"tokens": [{"prosody": {"end_us": "late", "anger": 1}}]}) == [(0, 0, 1.0)]
