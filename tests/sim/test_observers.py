"""Observers of other packages in whole calls on virtual time."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from loguru import logger

from parley.core.call_events import (
    CallBegan,
    CallEnded,
    CallerJoined,
    CallEvent,
    ReplyFinished,
    TurnEnded,
    WaitBegan,
)
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.session_store.events import Kind
from tests.sim.call import SimulatedCall, silence, simulate, voice

QUESTION = (silence(200), voice(800), silence(2_500))


class Notebook:
    """Observer that notes every event."""

    opened: ClassVar[list["Notebook"]] = []

    def __init__(self, events: CallEvents, call: ObservedCall) -> None:
        self.call = call
        self.events: list[CallEvent] = []
        self.is_closed = False
        events.subscribe(CallEvent, self.events.append)
        self.opened.append(self)

    def close(self) -> None:
        self.is_closed = True


class Refuses:
    """Observer that cannot be created."""

    def __init__(self, events: CallEvents, call: ObservedCall) -> None:
        raise RuntimeError("no disk")

    def close(self) -> None: ...


class Breaks:
    """Observer that fails on every turn and at the end."""

    def __init__(self, events: CallEvents, call: ObservedCall) -> None:
        events.subscribe(TurnEnded, self._on_turn_ended)

    def close(self) -> None:
        raise RuntimeError("already closed")

    def _on_turn_ended(self, event: TurnEnded) -> None:
        raise RuntimeError("no words")


class Logs:
    """Observer that logs a line in each turn."""

    def __init__(self, events: CallEvents, call: ObservedCall) -> None:
        events.subscribe(TurnEnded, lambda _event: logger.warning("a turn is over"))

    def close(self) -> None: ...


@pytest.fixture(autouse=True)
def _no_notebooks() -> None:
    Notebook.opened.clear()


@pytest.fixture
def errors() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="ERROR")
    yield lines
    logger.remove(sink)


def kinds(notebook: Notebook) -> list[type[CallEvent]]:
    return [type(event) for event in notebook.events]


def check_observed(call: SimulatedCall, mode: str = "cascade") -> None:
    [notebook] = Notebook.opened
    identity = call.call
    assert notebook.call == ObservedCall(identity.conversation.session_id, identity.call_id, "file", mode)
    seen = kinds(notebook)
    assert seen.index(CallerJoined) < seen.index(TurnEnded) < seen.index(ReplyFinished)
    assert seen.index(CallBegan) < seen.index(CallerJoined) < seen.index(CallEnded)
    assert seen.count(CallBegan) == seen.count(CallEnded) == 1
    assert notebook.is_closed


@pytest.mark.parametrize("omni", [None, []], ids=["cascade", "full duplex"])
def test_an_observer_sees_the_call_from_the_first_event_to_the_last(tmp_path: Path, omni: list | None):
    call = simulate(QUESTION, tmp_path, observers=[Notebook], omni=omni)
    check_observed(call, "cascade" if omni is None else "duplex")
    assert call.turns[-1].bot_text


def test_an_observer_that_fails_is_logged_and_harms_nothing(tmp_path: Path, errors: list[str]):
    without = simulate(QUESTION, tmp_path / "without")
    call = simulate(QUESTION, tmp_path / "with", observers=[Refuses, Breaks, Notebook], failures=1)
    check_observed(call)
    assert [turn.bot_text for turn in call.turns] == [turn.bot_text for turn in without.turns]
    assert [event.kind for event in call.events] == [event.kind for event in without.events]
    assert call.events[-1].kind is Kind.LEFT
    assert errors == [
        "an observer could not be created: RuntimeError",
        "Breaks._on_turn_ended failed on TurnEnded: RuntimeError",
        "Breaks failed at the end of a call: RuntimeError",
    ]


def test_two_calls_have_observers_of_their_own(tmp_path: Path):
    for name in ("first", "second"):
        simulate(QUESTION, tmp_path / name, observers=[Notebook])
    first, second = Notebook.opened
    assert first.call.call_id != second.call.call_id
    assert WaitBegan in kinds(first) and len(first.events) == len(second.events)


def test_lines_of_the_log_say_which_call_they_are_about(tmp_path: Path):
    found: list[dict] = []
    sink = logger.add(
        lambda message: found.append(message.record["extra"]),
        filter=lambda record: record["message"] == "a turn is over",
    )
    try:
        call = simulate(QUESTION, tmp_path, observers=[Logs]).call
    finally:
        logger.remove(sink)
    assert found == [{"session": call.conversation.shown_id, "call": call.call_id[:8]}]
