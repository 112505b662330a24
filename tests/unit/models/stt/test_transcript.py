"""Confidences of a transcript's words."""

import pytest

from parley.core.media import WordTime
from parley.models.stt import Transcript


def words(*confidences: tuple[str, float]) -> tuple[WordTime, ...]:
    return tuple(WordTime(text, 0, 1, confidence) for text, confidence in confidences)


@pytest.mark.parametrize(
    ("transcript", "confidences"),
    [
        (Transcript("the fee", words(("the", 0.9), ("fee", 0.4)), 0.65), (0.9, 0.4)),
        # One entry of the recogniser may have several words.
        (Transcript("twenty five", words(("twenty five", 0.8)), 0.8), (0.8, 0.8)),
        # A partial without words, and words that are not those of the text.
        (Transcript("the fee"), (0.0,)),
        (Transcript("the fee", words(("the", 0.9)), 0.7), (0.7,)),
        (Transcript(""), ()),
    ],
)
def test_each_word_has_its_confidence_or_all_have_one(
    transcript: Transcript, confidences: tuple[float, ...]
) -> None:
    assert transcript.confidences == confidences
