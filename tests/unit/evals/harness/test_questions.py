"""The callers' plan of questions."""

import pytest

from parley.evals.harness.questions import MAX_PAUSE_MS, MIN_PAUSE_MS, PAUSED, plan


@pytest.mark.parametrize("turns", [1, 5, 20, 40, 100])
def test_at_least_30_percent_of_the_turns_hold_a_pause(turns: int) -> None:
    paused = [utterance for utterance in plan(turns, seed=3) if utterance.pause_ms]
    assert len(paused) >= 0.3 * turns
    assert all(MIN_PAUSE_MS <= utterance.pause_ms <= MAX_PAUSE_MS for utterance in paused)
    assert all(len(utterance.parts) == 2 for utterance in paused)


def test_same_seed_gives_the_same_plan_and_another_seed_another() -> None:
    assert plan(40, seed=1) == plan(40, seed=1)
    assert plan(40, seed=1) != plan(40, seed=2)


def test_no_caller_speaks_with_the_voice_of_the_bot() -> None:
    assert "slt" not in {utterance.voice for utterance in plan(40, seed=1)}


def test_every_pause_stands_after_a_filler_or_a_conjunction() -> None:
    words = {"and,", "but,", "so,", "because,", "um,", "uh,"}
    assert all(first.split()[-1] in words for first, _ in PAUSED)
