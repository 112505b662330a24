import pytest

from parley.evals.turns.confidence import Heard, aligned, below, report, separation


def test_words_that_were_said_are_told_from_those_that_were_not():
    assert aligned(["what", "is", "it"], ["what", "is", "it"]) == (0, (True, True, True))
    assert aligned(["what", "is", "it"], ["what", "was", "it"]) == (1, (True, False, True))
    assert aligned(["what", "is", "it"], ["it"]) == (2, (True,))
    assert aligned(["it"], ["what", "is", "it"]) == (2, (False, False, True))
    assert aligned(["it"], []) == (1, ())


def test_separation_is_the_chance_that_right_is_above_wrong():
    assert separation([0.1, 0.2], [0.8, 0.9]) == 1.0
    assert separation([0.8], [0.1]) == 0.0
    assert separation([0.5], [0.5]) == 0.5
    assert separation([0.1, 0.9], [0.5]) == pytest.approx(0.5)


def test_the_report_counts_turns_on_both_sides_of_a_threshold():
    good = Heard(0, 0.0, ((0.9, True), (0.7, True)))
    doubted = Heard(1, 0.0, ((0.35, True),))
    bad = Heard(2, 0.5, ((0.2, False), (0.3, True)))
    text = report("all", [good, doubted, bad])
    assert text.startswith("all: 3 turns, 1 misunderstood; 5 words, 1 wrong")
    assert "below 0.30: 100.0% of misunderstood, 0.0% of understood" in text
    assert "below 0.40: 100.0% of misunderstood, 50.0% of understood" in text


def test_the_share_below_a_threshold():
    assert below([0.1, 0.5, 0.9], 0.5) == pytest.approx(1 / 3)
    assert below([], 0.5) == 0.0
