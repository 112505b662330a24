"""Confidence of a whole turn."""

import pytest

from parley.turn_taking.turn_confidence import TurnConfidence


def test_the_words_of_all_stretches_of_a_turn_count_once() -> None:
    turn = TurnConfidence()
    turn.on_words((0.2, 0.4))
    turn.on_words((0.6,))
    assert turn.take() == pytest.approx(0.4)
    assert turn.take() is None


def test_words_without_confidence_or_that_were_not_meant_do_not_count() -> None:
    turn = TurnConfidence()
    turn.on_words(None)
    assert turn.take() is None
    turn.on_words((0.1,))
    turn.forget()
    turn.on_words((0.9,))
    assert turn.take() == pytest.approx(0.9)
