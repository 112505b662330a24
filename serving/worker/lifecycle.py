"""Lifecycle of a worker, as a table of transitions. Pure; ``docs/how-to/workers.md`` draws it.

A worker is IDLE only when it has no conversation and everything of the last one is released. Cleaning up is
work (BUSY), and a worker is not granted before it is done. A worker that does not answer in time is SUSPECT:
it is not assigned, and its conversation is moved. It recovers when its call returns and everything is
released, or it ends. DRAINING lets present conversations continue; a separate draining state for each other
state would double the table without a difference in what is permitted. DEAD is the end of the process.
"""

from collections.abc import Mapping
from enum import Enum

from parley.core.errors import IllegalTransition


class LifecycleState(Enum):
    """State of a worker."""

    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    DUPLEX_ACTIVE = "duplex_active"
    DUPLEX_PAUSED = "duplex_paused"
    DRAINING = "draining"
    SUSPECT = "suspect"
    DEAD = "dead"


class LifecycleEvent(Enum):
    """Event of a worker."""

    LOADED = "loaded"
    LOAD_FAILED = "load_failed"
    TURN_LEASED = "turn_leased"
    """The lease is for a turn or for streams: chat, half duplex, recognition, synthesis."""
    DUPLEX_LEASED = "duplex_leased"
    PAUSED = "paused"
    RESUMED = "resumed"
    PAUSE_EXPIRED = "pause_expired"
    ENDING = "ending"
    """The lease is over, and the cleanup begins."""
    CLEANED = "cleaned"
    OVERDUE = "overdue"
    """A call of the engine has not returned in time."""
    RETURNED = "returned"
    """In an engine with many streams, the overdue call has returned and the others continue."""
    DRAIN = "drain"
    EXIT = "exit"


_S, _E = LifecycleState, LifecycleEvent

TRANSITIONS: Mapping[tuple[LifecycleState, LifecycleEvent], LifecycleState] = {
    (_S.LOADING, _E.LOADED): _S.IDLE,
    (_S.LOADING, _E.LOAD_FAILED): _S.DEAD,
    (_S.LOADING, _E.DRAIN): _S.DEAD,
    (_S.LOADING, _E.EXIT): _S.DEAD,
    (_S.IDLE, _E.TURN_LEASED): _S.BUSY,
    (_S.IDLE, _E.DUPLEX_LEASED): _S.DUPLEX_ACTIVE,
    (_S.IDLE, _E.DRAIN): _S.DEAD,
    (_S.IDLE, _E.EXIT): _S.DEAD,
    # An engine with many streams has one more, or one less.
    (_S.BUSY, _E.TURN_LEASED): _S.BUSY,
    (_S.BUSY, _E.ENDING): _S.BUSY,
    (_S.BUSY, _E.CLEANED): _S.IDLE,
    (_S.BUSY, _E.OVERDUE): _S.SUSPECT,
    (_S.BUSY, _E.DRAIN): _S.DRAINING,
    (_S.BUSY, _E.EXIT): _S.DEAD,
    (_S.DUPLEX_ACTIVE, _E.PAUSED): _S.DUPLEX_PAUSED,
    (_S.DUPLEX_ACTIVE, _E.ENDING): _S.BUSY,
    (_S.DUPLEX_ACTIVE, _E.OVERDUE): _S.SUSPECT,
    (_S.DUPLEX_ACTIVE, _E.DRAIN): _S.DRAINING,
    (_S.DUPLEX_ACTIVE, _E.EXIT): _S.DEAD,
    (_S.DUPLEX_PAUSED, _E.RESUMED): _S.DUPLEX_ACTIVE,
    (_S.DUPLEX_PAUSED, _E.PAUSE_EXPIRED): _S.BUSY,
    (_S.DUPLEX_PAUSED, _E.ENDING): _S.BUSY,
    (_S.DUPLEX_PAUSED, _E.OVERDUE): _S.SUSPECT,
    (_S.DUPLEX_PAUSED, _E.DRAIN): _S.DRAINING,
    (_S.DUPLEX_PAUSED, _E.EXIT): _S.DEAD,
    (_S.DRAINING, _E.PAUSED): _S.DRAINING,
    (_S.DRAINING, _E.RESUMED): _S.DRAINING,
    (_S.DRAINING, _E.PAUSE_EXPIRED): _S.DRAINING,
    (_S.DRAINING, _E.ENDING): _S.DRAINING,
    (_S.DRAINING, _E.DRAIN): _S.DRAINING,
    (_S.DRAINING, _E.CLEANED): _S.DEAD,
    (_S.DRAINING, _E.OVERDUE): _S.SUSPECT,
    (_S.DRAINING, _E.EXIT): _S.DEAD,
    # It recovered, and everything is released.
    (_S.SUSPECT, _E.CLEANED): _S.IDLE,
    (_S.SUSPECT, _E.RETURNED): _S.BUSY,
    (_S.SUSPECT, _E.ENDING): _S.SUSPECT,
    (_S.SUSPECT, _E.PAUSE_EXPIRED): _S.SUSPECT,
    (_S.SUSPECT, _E.OVERDUE): _S.SUSPECT,
    (_S.SUSPECT, _E.DRAIN): _S.DEAD,
    (_S.SUSPECT, _E.EXIT): _S.DEAD,
}


def follow(state: LifecycleState, event: LifecycleEvent) -> LifecycleState:
    """Return the state after an event.

    Raises:
        IllegalTransition: the event cannot happen in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state.value, event.value) from None


def diagram() -> str:
    """Return the table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {LifecycleState.LOADING.name}"]
    grouped: dict[tuple[LifecycleState, LifecycleState], list[str]] = {}
    for (before, event), after in TRANSITIONS.items():
        if before is not after:
            grouped.setdefault((before, after), []).append(event.value)
    lines += [
        f"    {before.name} --> {after.name}: {', '.join(events)}"
        for (before, after), events in grouped.items()
    ]
    return "\n".join([*lines, f"    {LifecycleState.DEAD.name} --> [*]"])
