"""The panel of tau2-bench, clip by clip."""

import pytest

from parley.evals.duplex_bench.clips import Event, Kind
from parley.evals.duplex_bench.panel import LEAST, Counted, count, panel
from parley.evals.duplex_bench.spoken import Segment, Spoken

LENGTH_MS = 12_000


def counted(events: list[Event], *talk: tuple[int, int], clips: int = LEAST) -> Counted:
    into = Counted()
    for _ in range(clips):
        count(events, Spoken(LENGTH_MS, tuple(Segment(*each) for each in talk)), into)
    return into


def figures(events: list[Event], *talk: tuple[int, int], clips: int = LEAST) -> dict[str, float | None]:
    return panel(counted(events, *talk, clips=clips))


TURN = Event(Kind.TURN, 1_000, 3_000)
INTERRUPTION = Event(Kind.INTERRUPTION, 6_000, 8_000)


def test_an_answer_is_timed_from_the_end_of_the_turn_on_ticks_of_200_ms() -> None:
    found = figures([TURN], (3_500, 6_000))
    assert found["R_R"] == 1.0 and found["L_R"] == pytest.approx(0.4) and found["I_A"] == 0.0


def test_who_says_nothing_answers_nothing() -> None:
    found = figures([TURN])
    assert found["R_R"] == 0.0 and found["L_R"] is None


def test_a_hum_is_no_answer() -> None:
    assert figures([TURN], (3_500, 4_000))["R_R"] == 0.0


def test_an_answer_after_the_next_turn_is_none_of_the_first() -> None:
    found = counted([TURN, Event(Kind.TURN, 5_000, 6_000)], (7_000, 9_000), clips=1)
    assert found.turns == 2 and found.responses_ms == [1_000]


def test_who_begins_while_the_caller_speaks_interrupts() -> None:
    assert figures([TURN], (2_000, 6_000))["I_A"] == 1.0


def test_a_pause_inside_a_turn_is_the_callers() -> None:
    pauses = [Event(Kind.PAUSE, 3_000, 4_000), Event(Kind.PAUSE, 6_000, 6_500)]
    assert figures(pauses, (3_600, 5_500))["I_A"] == 1.0
    assert figures(pauses)["I_A"] == 0.0


def test_a_stop_is_timed_from_the_begin_of_the_interruption() -> None:
    found = figures([TURN, INTERRUPTION], (3_400, 6_500), (8_600, 11_000))
    assert found["R_Y"] == 1.0 and found["L_Y"] == pytest.approx(0.6)
    assert found["R_R"] == 1.0


def test_who_stops_after_two_seconds_did_not_yield() -> None:
    found = figures([TURN, INTERRUPTION], (3_400, 8_500))
    assert found["R_Y"] == 0.0 and found["L_Y"] == pytest.approx(2.6)


def test_an_interruption_of_a_silent_bot_is_none() -> None:
    assert counted([TURN, INTERRUPTION], (3_400, 5_000), clips=1).interruptions == 0


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Kind.BACKCHANNEL, "S_BC"),
        (Kind.TIC, "S_VT"),
        (Kind.TALKING_TO_OTHER, "S_ND"),
        (Kind.BACKGROUND, "S_ND"),
    ],
)
def test_what_is_not_meant_is_left_alone(kind: Kind, name: str) -> None:
    event = Event(kind, 5_000, 5_600)
    # The bot speaks on; it stops within a second; it stops later.
    assert figures([event], (2_000, 9_000))[name] == 1.0
    assert figures([event], (2_000, 5_500))[name] == 0.0
    assert figures([event], (2_000, 6_300))[name] == 1.0
    # The bot is silent and stays so for two seconds, or begins within them.
    assert figures([event], (7_400, 9_000))[name] == 1.0
    assert figures([event], (6_500, 9_000))[name] == 0.0


def test_a_clip_that_is_over_too_soon_says_nothing_of_who_was_left_alone() -> None:
    # 400 ms before the end of the clip.
    event = Event(Kind.TIC, LENGTH_MS - 400, LENGTH_MS - 200)
    assert counted([event]).selective["S_VT"] == []
    assert counted([event], (5_000, LENGTH_MS)).selective["S_VT"] == []
    # A bot that stops at once has reacted, however soon the clip ends.
    assert counted([event], (5_000, LENGTH_MS - 300)).selective["S_VT"] == [False] * LEAST


def test_few_events_are_no_figure() -> None:
    assert figures([TURN], (3_500, 6_000), clips=LEAST - 1)["R_R"] is None
