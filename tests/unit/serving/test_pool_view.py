"""A worker's state in the words of the tools that read it."""

from typing import Any

import pytest

from serving.gateway.pool_view import status_of
from serving.pool.pool import SeenWorker
from serving.scheduler.wants import Lease, Running, Standing, Task
from serving.worker.lifecycle import State


def seen(state: str | None, task: Task | None = None, **more: Any) -> SeenWorker:
    runs = () if task is None else (Running("t", Lease("s", "w", "i", 0), task, 0, 0),)
    facts = {} if state is None else {"state": state}
    known = {"is_starting": False, "is_silent": False, "heard_s": 0.0, "placed": 0, **more}
    return SeenWorker("w", "ws://127.0.0.1:1", None, facts, Standing.READY, runs=runs, **known)


@pytest.mark.parametrize(
    ("state", "task", "status"),
    [
        (State.LOADING, None, "loading"),
        (State.IDLE, None, "idle"),
        (State.IDLE, Task.CHAT, "busy_chat"),
        (State.BUSY, Task.CHAT, "busy_chat"),
        (State.BUSY, Task.HALF_DUPLEX, "busy_half_duplex"),
        # It cleans up after a call, or another client holds it.
        (State.BUSY, Task.OMNI_DUPLEX, "busy"),
        (State.BUSY, None, "busy"),
        (State.DUPLEX_ACTIVE, Task.AUDIO_DUPLEX, "duplex_active"),
        (State.DUPLEX_ACTIVE, None, "duplex_active"),
        (State.DUPLEX_PAUSED, Task.OMNI_DUPLEX, "duplex_paused"),
        (State.DRAINING, Task.OMNI_DUPLEX, "duplex_active"),
        (State.DRAINING, None, "busy"),
        (State.SUSPECT, Task.OMNI_DUPLEX, "error"),
        (State.DEAD, None, "offline"),
    ],
)
def test_a_state_has_a_word_of_theirs(state: State, task: Task | None, status: str):
    assert status_of(seen(state.value, task)) == status


def test_every_state_has_one():
    words = {status_of(seen(state.value, task)) for state in State for task in (None, *Task)}
    assert words == {
        *("loading", "idle", "busy", "busy_chat", "busy_half_duplex"),
        *("duplex_active", "duplex_paused", "error", "offline"),
    }


@pytest.mark.parametrize("state", list(State))
def test_one_that_says_nothing_is_not_taken_at_its_last_word(state: State):
    expected = "offline" if state is State.DEAD else "error"
    assert status_of(seen(state.value, is_silent=True)) == expected


def test_one_that_is_not_there_is_offline_until_its_process_is_started():
    assert status_of(seen(None)) == "offline"
    assert status_of(seen(None, is_starting=True)) == "loading"
