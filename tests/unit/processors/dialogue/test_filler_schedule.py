"""Announcements to a caller who waits, and their times."""

import pytest

from parley.processors.dialogue.filler_schedule import FillerSchedule, Phrase, WaitTuning

M, F, T, A = Phrase.MASK, Phrase.FILLER, Phrase.TROUBLE, Phrase.APOLOGY


def wait(
    *, model_asked_ms: int | None = None, mask_ms: int | None = None, **chosen: int
) -> list[tuple[int, Phrase]]:
    """Return all announcements of a wait without an end, whose question came at 1 s."""
    watch = FillerSchedule(WaitTuning.model_validate(chosen), asked_ms=1_000, mask_ms=mask_ms)
    received: list[tuple[int, Phrase]] = []
    while (deadline_ms := watch.deadline_ms()) is not None:
        if model_asked_ms is not None and model_asked_ms <= deadline_ms:
            watch.on_model_asked(model_asked_ms)
            model_asked_ms = None
            continue
        received.append((deadline_ms, watch.say(deadline_ms)))
    return received


def test_fillers_come_further_and_further_apart_and_then_the_truth_and_then_the_end():
    assert wait() == [(1_500, F), (5_500, F), (11_500, F), (19_500, F), (27_500, T), (61_000, A)]


def test_pauses_grow_and_are_never_longer_than_they_may_be():
    received = wait(max_fillers=8, longest_gap_ms=30_000, give_up_ms=600_000)
    gaps_ms = [
        later - earlier for (earlier, _), (later, _) in zip(received[:-2], received[1:-1], strict=True)
    ]
    assert gaps_ms == [4_000, 6_000, 9_000, 13_500, 20_250, 30_000, 30_000, 30_000]


@pytest.mark.parametrize("fillers", [0, 1, 2, 20])
def test_no_more_fillers_are_said_than_may_be(fillers: int):
    phrases = [phrase for _, phrase in wait(max_fillers=fillers, give_up_ms=600_000)]
    assert phrases == [F] * fillers + [T, A]


def test_the_end_comes_when_it_is_due_however_many_fillers_are_left():
    assert wait(max_fillers=50, give_up_ms=20_000) == [
        (1_500, F), (5_500, F), (11_500, F), (19_500, F), (21_000, A),
    ]  # fmt: skip


def test_a_model_that_has_the_question_is_left_alone_for_a_while():
    # Requested at once: the first filler waits for the model.
    assert wait(model_asked_ms=1_100)[:2] == [(4_100, F), (8_100, F)]
    # Requested after a long wait: the next filler waits as well.
    assert wait(model_asked_ms=10_000)[:4] == [(1_500, F), (5_500, F), (13_000, F), (21_000, F)]
    # Requested just after a filler: the next one is further away than that.
    assert wait(model_asked_ms=5_600)[:3] == [(1_500, F), (5_500, F), (11_500, F)]


def test_the_first_silence_is_covered_once_and_the_fillers_come_after_it():
    assert wait(mask_ms=1_320)[:3] == [(1_320, M), (5_320, F), (9_320, F)]
    # The same while the model has the request: it causes the wait.
    assert wait(mask_ms=1_320, model_asked_ms=1_010)[:2] == [(1_320, M), (5_320, F)]


def test_a_filler_that_comes_first_covers_the_silence_too():
    assert wait(mask_ms=1_700)[:2] == [(1_500, F), (5_500, F)]
    assert M not in [phrase for _, phrase in wait(mask_ms=70_000)]
