"""Replies under load against the same replies unloaded, and lateness around the start of a call."""

from pathlib import Path

import pytest

from parley.audio.audible import AudibleSpan
from parley.evals.harness.webrtc_caller import now_us
from parley.evals.latency.call_start import Disturbance, disturbance, summary
from parley.evals.latency.capacity import Step, _largest
from parley.evals.latency.replies import Reply, least_stretch, reply, stretch
from parley.evals.latency.stolen import StolenTime

RATE_HZ = 48_000
MS = 48


def heard(*stretches_ms: tuple[int, int], text: str = "answer") -> Reply:
    return reply(text, [AudibleSpan(a * MS, b * MS) for a, b in stretches_ms], RATE_HZ, 0)


UNLOADED = heard((0, 500), (700, 1_200))


def test_same_reply_is_not_stretched() -> None:
    result = stretch(heard((100, 600), (800, 1_300)), UNLOADED)
    assert (result.inserted_us, result.audible_gaps) == (0, 0)


def test_inserted_silence_is_found_alongside_the_voices_own_pause() -> None:
    result = stretch(heard((0, 300), (390, 590), (790, 1_290)), UNLOADED)
    assert (result.inserted_us, result.audible_gaps) == (90_000, 1)


def test_lengthened_pause_counts_by_what_it_has_more() -> None:
    result = stretch(heard((0, 500), (735, 1_235)), UNLOADED)
    assert (result.inserted_us, result.audible_gaps) == (35_000, 0)


def test_inserted_silence_counts_even_when_the_reply_keeps_its_length() -> None:
    result = stretch(heard((0, 300), (360, 560), (700, 1_200)), UNLOADED)
    assert result.inserted_us == 60_000


def test_holes_that_are_taken_for_material_move_no_pause_after_them() -> None:
    words = [(at, at + 200) for at in range(0, 3_000, 300)]
    unloaded = heard(*words)
    # Ten milliseconds of silence within each word: too short to be detected, one hundred in all.
    loaded = heard(*((begin + 10 * n, end + 10 * (n + 1)) for n, (begin, end) in enumerate(words)))
    result = stretch(loaded, unloaded)
    assert result.audible_gaps == 0
    assert result.inserted_us == 100_000


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
    assert (found.added_us, found.control_us, found.worst_at_us) == (25_000, 4_000, 200_000)


def test_disturbance_needs_packets_on_both_sides() -> None:
    assert disturbance([2_000_000], [0], offer_us=1_000_000) is None


def test_all_starts_decide_and_those_from_which_the_host_stole_nothing_are_reported_too() -> None:
    seen = [
        Disturbance(3_000, 1_000, 0),
        Disturbance(54_000, 2_000, 30_000),
        Disturbance(9_000, 1_000, 10_000),
    ]
    report = summary(seen)
    assert (report["starts"], report["added_ms"]["max"], report["met"]) == (3, 54.0, False)
    assert (report["nothing_stolen"]["starts"], report["nothing_stolen"]["added_ms"]["max"]) == (2, 9.0)
    assert summary([Disturbance(3_000, 1_000)])["nothing_stolen"] == {"starts": 0, "added_ms": None}


async def test_stolen_time_is_what_the_counter_grew_by(tmp_path: Path) -> None:
    stat = tmp_path / "stat"

    def write(ticks: int) -> None:
        stat.write_text(f"cpu  1 2 3 4 5 6 7 {ticks} 9 10\ncpu0 1 2 3 4 5 6 7 8 9 10\n")

    write(100)
    async with StolenTime(stat) as stolen:
        start_us = now_us()
        write(103)
        stolen.sample()
        end_us = now_us()
    assert stolen.between(start_us, end_us) == 30_000
    assert stolen.between(end_us, end_us + 1_000) == 0


async def test_where_nothing_is_counted_nothing_is_known(tmp_path: Path) -> None:
    async with StolenTime(tmp_path / "none") as stolen:
        assert stolen.between(0, now_us()) is None


@pytest.mark.parametrize(
    ("late_us", "stretch_us", "unanswered", "passed"),
    [(40_000, 40_000, 0, True), (41_000, 0, 0, False), (0, 41_000, 0, False), (0, 0, 1, False)],
)
def test_step_passes_only_when_no_one_notices(
    late_us: int, stretch_us: int, unanswered: int, passed: bool
) -> None:
    step = Step(
        3,
        lateness_us=[late_us],
        stretches_us=[stretch_us],
        answers_us=[400_000],
        alone_us=400_000,
        asked=9,
        unanswered=unanswered,
    )
    assert step.passed is passed


@pytest.mark.parametrize(
    ("answers_us", "alone_us", "passed"),
    [
        ([600_000] * 20, 400_000, True),
        ([601_000] * 20, 400_000, False),
        # Of twenty the slowest one is beyond p95, two are not.
        ([400_000] * 19 + [2_300_000], 400_000, True),
        ([400_000] * 18 + [2_300_000] * 2, 400_000, False),
        ([400_000] * 20, None, False),
        ([], 400_000, False),
    ],
)
def test_a_step_passes_only_when_answers_come_about_as_soon_as_in_a_call_alone(
    answers_us: list[int], alone_us: int | None, passed: bool
) -> None:
    step = Step(3, lateness_us=[0], stretches_us=[0], answers_us=answers_us, alone_us=alone_us, asked=20)
    assert step.passed is passed
    assert step.punctual


def test_capacity_ends_before_the_first_number_of_calls_that_never_passed() -> None:
    assert _largest([2, 3, 3, 4, 5], {2, 3, 5}) == 3
    assert _largest([2], set()) == 0
    assert _largest([], set()) == 0


def test_late_packets_and_torn_replies_are_told_apart_and_so_is_what_the_host_took() -> None:
    torn = Step(3, lateness_us=[1_000], stretches_us=[41_000], asked=9, stolen_share=0.021)
    assert (torn.punctual, torn.passed, torn.was_disturbed) == (True, False, True)
    late = Step(3, lateness_us=[41_000], asked=9, stolen_share=0.02)
    assert (late.punctual, late.was_disturbed) == (False, False)
    assert not Step(3, broken="refused").punctual


def test_a_step_in_which_the_clients_themselves_stood_is_not_evidence() -> None:
    assert Step(3, lateness_us=[41_000], asked=9, client_lag_us=[900, 30_000]).was_disturbed
    assert not Step(3, lateness_us=[41_000], asked=9, client_lag_us=[900, 29_000]).was_disturbed
