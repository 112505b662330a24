"""Choice of the call that a client may go on with, by the newest events of its session."""

import pytest

from parley.pipelines.lifecycle import BY_OPERATOR, EXPIRED, LIMITED, USED_UP
from parley.processors.turns.idle import GOODBYE, SILENCE
from parley.protocols.client_protocol import SHUTDOWN
from parley.session_store.events import Event, Kind
from parley.session_store.lost_calls import BOUNDS, LEFT_S, SILENT_S, TURNS, US_PER_S, name_of_lost
from tests.fakes.timeline import Timeline


def joined(timeline: Timeline, call_id: str, transport: str = "webrtc", **more: str) -> None:
    timeline.add(Kind.JOINED, {"call_id": call_id, "transport": transport, **more})


def left(line: Timeline, call_id: str, transport: str = "webrtc", **more: str) -> None:
    line.add(Kind.LEFT, {"call_id": call_id, "transport": transport, **more})


def lost(events: list[Event], *, after_s: float = 1) -> str | None:
    newest = list(reversed(events))
    return name_of_lost(
        [each for each in newest if each.kind in BOUNDS],
        [each for each in newest if each.kind in TURNS],
        now_us=(newest[0].arrival_us if newest else 0) + round(after_s * US_PER_S),
    )


@pytest.mark.parametrize(("after_s", "found"), [(LEFT_S, "1"), (LEFT_S + 1, None)])
def test_a_call_that_ended_just_now_goes_on(after_s: float, found: str | None) -> None:
    line = Timeline()
    joined(line, "1")
    left(line, "1")
    assert lost(line.events, after_s=after_s) == found


ENDS = {
    SILENCE[0]: None,
    GOODBYE[0]: None,
    LIMITED: None,
    USED_UP[0]: None,
    EXPIRED[0]: None,
    BY_OPERATOR[0]: None,
}


@pytest.mark.parametrize(("reason", "found"), [*ENDS.items(), (SHUTDOWN, "1"), ("error", "1")])
def test_a_call_that_ended_with_a_goodbye_or_at_a_limit_is_over_and_a_broken_one_is_not(
    reason: str, found: str | None
) -> None:
    line = Timeline()
    joined(line, "1")
    left(line, "1", reason=reason)
    assert lost(line.events) == found


@pytest.mark.parametrize(("after_s", "found"), [(SILENT_S, "1"), (SILENT_S + 1, None)])
def test_a_call_whose_end_is_not_recorded_goes_on_after_its_last_record(
    after_s: float, found: str | None
) -> None:
    line = Timeline()
    joined(line, "1")
    line.said("What do you have?")
    assert lost(line.events, after_s=after_s) == found


def test_a_session_that_goes_on_in_writing_does_not_prolong_its_call() -> None:
    line = Timeline()
    joined(line, "1")
    last = line.said("What do you have?")
    line.said("typed", transport="text", at_us=last.event_us + (SILENT_S + 5) * US_PER_S)
    assert lost(line.events) is None


@pytest.mark.parametrize("shown", ["camera", "screen"])
def test_what_a_call_shows_is_not_the_call(shown: str) -> None:
    line = Timeline()
    joined(line, "1")
    joined(line, "1", shown)
    left(line, "1", shown)
    assert lost(line.events, after_s=LEFT_S + 5) == "1"


def test_a_call_keeps_its_name_over_all_its_connections() -> None:
    line = Timeline()
    joined(line, "1")
    left(line, "1")
    joined(line, "2", line="1")
    left(line, "2")
    assert lost(line.events) == "1"


def test_only_the_newest_call_goes_on_and_no_phone_call() -> None:
    line = Timeline()
    joined(line, "1")
    left(line, "1")
    joined(line, "2", "phone", line="a")
    left(line, "2", "phone")
    assert lost(line.events) is None


def test_a_session_without_calls_has_none() -> None:
    assert lost([]) is None
    line = Timeline()
    line.said("typed", transport="text")
    assert lost(line.events) is None


def test_a_call_after_whose_end_a_session_went_on_in_writing_counts_from_its_end() -> None:
    line = Timeline()
    joined(line, "1")
    left(line, "1")
    line.add(Kind.USER_TURN, {"text": "typed"}, at_us=line.events[-1].event_us + (LEFT_S + 5) * US_PER_S)
    assert lost(line.events) is None
