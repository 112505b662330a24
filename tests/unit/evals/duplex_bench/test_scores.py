"""The scores of a system, from written clips."""

import dataclasses
from pathlib import Path

import pytest

from parley.evals.duplex_bench.clips import Clip, Event, Kind, Part
from parley.evals.duplex_bench.figures import interval, joint, share
from parley.evals.duplex_bench.scores import Heard, row
from parley.evals.duplex_bench.spoken import Segment, Spoken

NOWHERE = Path("nowhere")


def heard(part: Part, event: Event | None, *talk: tuple[int, int], length_ms: int = 12_000) -> Heard:
    clip = Clip(part, f"{part.value}/1", NOWHERE, event, () if event is None else (event,))
    return Heard(clip, Spoken(length_ms, tuple(Segment(*each) for each in talk)))


TURN = Event(Kind.TURN, 0, 3_000)
INTERRUPTION = Event(Kind.INTERRUPTION, 5_000, 7_000)


def test_latency_is_signed() -> None:
    found = row("bot", [heard(Part.TURN, TURN, (3_400, 6_000)), heard(Part.TURN, TURN, (2_500, 6_000))])
    assert found["turn_tor"] == 1.0
    assert found["turn_latency_ms"] == {"p50": -500, "p95": 400}


def test_a_bot_that_never_stops_has_the_tor_of_an_answer_and_a_latency_that_tells() -> None:
    found = row("bot", [heard(Part.INTERRUPTION, INTERRUPTION, (0, 12_000))])
    assert found["interruption_tor"] == 1.0 and found["interruption_answered"] == 0.0
    assert found["interruption_latency_ms"]["p50"] == -7_000


def test_an_answer_to_an_interruption_is_timed_from_its_end() -> None:
    found = row("bot", [heard(Part.INTERRUPTION, INTERRUPTION, (2_000, 5_600), (7_450, 11_000))])
    assert found["interruption_answered"] == 1.0
    assert found["interruption_latency_ms"]["p50"] == 450 and found["interruption_stop_ms"]["p50"] == 600


def test_neither_always_nor_never_wins_the_joint_number() -> None:
    always = [heard(Part.PAUSE, None, (0, 5_000)), heard(Part.TURN, TURN, (0, 9_000))]
    never = [heard(Part.PAUSE, None), heard(Part.TURN, TURN)]
    good = [heard(Part.PAUSE, None), heard(Part.TURN, TURN, (3_300, 6_000))]
    assert [row("bot", each)["joint"]["value"] for each in (always, never, good)] == [0.0, 0.0, 1.0]


def test_the_joint_number_by_hand() -> None:
    # One of four pauses taken, three of four turns: 0.75 x 0.75.
    found = joint([True, False, False, False], [True, True, True, False])
    assert found["value"] == pytest.approx(0.5625)
    low, high = found["interval"]
    assert 0 <= low < 0.5625 < high <= 1


def test_what_was_not_measured_is_not_told() -> None:
    found = row("bot", [heard(Part.PAUSE, None)])
    assert found["turn_tor"] is None and found["turn_latency_ms"] == {"p50": None, "p95": None}
    assert found["resume_after_background"] is None and found["panel"]["L_R"] is None
    assert found["backchannel_jsd"] is None


def test_a_bot_that_was_silent_is_not_asked_whether_it_resumes() -> None:
    event = Event(Kind.BACKGROUND, 5_000, 6_000)
    found = row(
        "bot", [heard(Part.BACKGROUND, event, (3_000, 9_000)), heard(Part.BACKGROUND, event, (7_000, 9_000))]
    )
    assert found["resume_after_background"] == 1.0
    assert (found["background"]["events"], found["background"]["speaking"]) == (2, 1)


@pytest.mark.parametrize(
    ("begins_ms", "ends_ms", "is_in_pause"),
    [
        # In the pause, or before its end can be detected; a moment is enough.
        (5_100, 5_900, True),
        (6_150, 8_000, True),
        (6_250, 8_000, False),
        (4_500, 8_000, False),
    ],
)
def test_who_begins_in_a_pause(begins_ms: int, ends_ms: int, is_in_pause: bool) -> None:
    found = row("bot", [heard(Part.PAUSE, Event(Kind.PAUSE, 5_000, 6_000), (begins_ms, ends_ms))])
    assert found["pause_starts"] == float(is_in_pause)


def test_who_hums_in_a_pause_has_not_begun() -> None:
    hums = heard(Part.PAUSE, Event(Kind.PAUSE, 5_000, 6_000), (5_100, 5_400))
    spoken = dataclasses.replace(hums.spoken, words=())
    assert row("bot", [dataclasses.replace(hums, spoken=spoken)])["pause_starts"] == 0.0


def test_a_systems_keys_are_those_that_are_promised() -> None:
    found = row("bot", [heard(Part.PAUSE, None)])
    assert {
        *("name", "pause_tor", "turn_tor", "turn_latency_ms", "interruption_tor", "interruption_latency_ms"),
        *("backchannel_tor", "backchannel_jsd", "backchannel_skill", "resume_after_backchannel"),
        *("resume_after_background", "panel"),
    } <= found.keys()
    assert set(found["panel"]) == {"L_R", "L_Y", "R_R", "R_Y", "I_A", "S_BC", "S_VT", "S_ND"}


def test_an_interval_is_about_as_wide_as_it_should_be() -> None:
    outcomes = [True] * 107 + [False] * 12
    low, high = interval(outcomes)
    # A share of 0.9 of 119: 5.4 points to each side.
    assert share(outcomes) == pytest.approx(0.8992, abs=1e-4)
    assert high - low == pytest.approx(0.108, abs=0.015)
    assert interval([1.0]) is None
