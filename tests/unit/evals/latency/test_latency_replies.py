"""Replies under load against the same replies unloaded, and lateness around the start of a call."""

import pytest

from audio.audible import AudibleSpan
from evals.latency.call_start import disturbance
from evals.latency.capacity import Step
from evals.latency.replies import Reply, least_stretch, reply, stretch

RATE_HZ = 48_000
MS = 48


def heard(*stretches_ms: tuple[int, int], text: str = "answer") -> Reply:
    return reply(text, [AudibleSpan(a * MS, b * MS) for a, b in stretches_ms], RATE_HZ, 0)


UNLOADED = heard((0, 500), (700, 1_200))


def test_same_reply_is_not_stretched() -> None:
    result = stretch(heard((100, 600), (800, 1_300)), UNLOADED)
    assert (result.inserted_us, result.audible_gaps) == (0, 0)


def test_inserted_silence_is_found_beside_the_voices_own_pause() -> None:
    result = stretch(heard((0, 300), (390, 590), (790, 1_290)), UNLOADED)
    assert (result.inserted_us, result.audible_gaps) == (90_000, 1)


def test_lengthened_pause_counts_by_what_it_has_more() -> None:
    result = stretch(heard((0, 500), (735, 1_235)), UNLOADED)
    assert (result.inserted_us, result.audible_gaps) == (35_000, 0)


def test_inserted_silence_counts_even_when_the_reply_keeps_its_length() -> None:
    result = stretch(heard((0, 300), (360, 560), (700, 1_200)), UNLOADED)
    assert result.inserted_us == 60_000


def test_edges_that_move_by_a_hop_are_no_stretch() -> None:
    assert stretch(heard((0, 490), (700, 1_200)), UNLOADED).inserted_us == 0


def test_most_alike_unloaded_reply_of_the_same_answer_is_the_reference() -> None:
    slow = heard((0, 500), (760, 1_260))
    result = least_stretch(heard((0, 500), (750, 1_250)), [UNLOADED, slow])
    assert result is not None
    assert result.inserted_us == 0
    assert least_stretch(heard((0, 500), (700, 1_200), text="else"), [UNLOADED]) is None
    assert least_stretch(heard((0, 300)), [UNLOADED]) is None


def test_disturbance_is_the_worst_packet_over_the_calm_median() -> None:
    arrivals = list(range(0, 3_000_000, 20_000))
    late = [2_000] * len(arrivals)
    late[60], late[30], late[140] = 27_000, 6_000, 90_000
    found = disturbance(arrivals, late, offer_us=1_000_000)
    assert found is not None
    assert (found.added_us, found.control_us) == (25_000, 4_000)


def test_disturbance_needs_packets_on_both_sides() -> None:
    assert disturbance([2_000_000], [0], offer_us=1_000_000) is None


@pytest.mark.parametrize(
    ("late_us", "stretch_us", "unanswered", "passed"),
    [(40_000, 40_000, 0, True), (41_000, 0, 0, False), (0, 41_000, 0, False), (0, 0, 1, False)],
)
def test_step_passes_only_when_nobody_notices(
    late_us: int, stretch_us: int, unanswered: int, passed: bool
) -> None:
    step = Step(3, lateness_us=[late_us], stretches_us=[stretch_us], asked=9, unanswered=unanswered)
    assert step.passed is passed
