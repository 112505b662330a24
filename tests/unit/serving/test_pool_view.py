"""A worker's state in the words of the tools that read it."""

from typing import Any

import pytest

from parley.serving.gateway.admin.pool_view import status_of
from parley.serving.pool.pool import WorkerStatus
from parley.serving.scheduler.types import Lease, Running, Task, WorkerState
from parley.serving.worker.lifecycle import LifecycleState


def seen(state: str | None, task: Task | None = None, **more: Any) -> WorkerStatus:
    runs = () if task is None else (Running("t", Lease("s", "w", "i", 0), task, 0, 0),)
    facts = {} if state is None else {"state": state}
    known = {"is_starting": False, "is_silent": False, "heard_s": 0.0, "placed": 0, **more}
    return WorkerStatus("w", "ws://127.0.0.1:1", None, facts, WorkerState.READY, runs=runs, **known)


@pytest.mark.parametrize(
    ("state", "task", "status"),
    [
        (LifecycleState.LOADING, None, "loading"),
        (LifecycleState.IDLE, None, "idle"),
        (LifecycleState.IDLE, Task.CHAT, "busy_chat"),
        (LifecycleState.BUSY, Task.CHAT, "busy_chat"),
        (LifecycleState.BUSY, Task.HALF_DUPLEX, "busy_half_duplex"),
        # It cleans up after a call, or another client holds it.
        (LifecycleState.BUSY, Task.OMNI_DUPLEX, "busy"),
        (LifecycleState.BUSY, None, "busy"),
        (LifecycleState.DUPLEX_ACTIVE, Task.AUDIO_DUPLEX, "duplex_active"),
        (LifecycleState.DUPLEX_ACTIVE, None, "duplex_active"),
        (LifecycleState.DUPLEX_PAUSED, Task.OMNI_DUPLEX, "duplex_paused"),
        (LifecycleState.DRAINING, Task.OMNI_DUPLEX, "duplex_active"),
        (LifecycleState.DRAINING, None, "busy"),
        (LifecycleState.SUSPECT, Task.OMNI_DUPLEX, "error"),
        (LifecycleState.DEAD, None, "offline"),
    ],
)
def test_a_state_has_a_word_of_theirs(state: LifecycleState, task: Task | None, status: str):
    assert status_of(seen(state.value, task)) == status


def test_every_state_has_one():
    words = {status_of(seen(state.value, task)) for state in LifecycleState for task in (None, *Task)}
    assert words == {
        *("loading", "idle", "busy", "busy_chat", "busy_half_duplex"),
        *("duplex_active", "duplex_paused", "error", "offline"),
    }


@pytest.mark.parametrize("state", list(LifecycleState))
def test_one_that_says_nothing_is_not_taken_at_its_last_word(state: LifecycleState):
    expected = "offline" if state is LifecycleState.DEAD else "error"
    assert status_of(seen(state.value, is_silent=True)) == expected


def test_one_that_is_not_there_is_offline_until_its_process_is_started():
    assert status_of(seen(None)) == "offline"
    assert status_of(seen(None, is_starting=True)) == "loading"
