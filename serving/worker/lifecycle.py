"""What a worker is doing, as a table. Pure; ``docs/workers.md`` has its picture, which is made from it.

A worker is IDLE only when nobody has it and everything of the last conversation is given back: cleaning up
is work (BUSY), and a worker that was told to clean up is not granted before it has. One that does not answer
in time is SUSPECT: nobody gets it, and who has it is moved; it comes back when its call returns and all is
given back, or ends. DRAINING lets what is on go on; a state for each of them would double the table and
change nothing that anybody may ask. DEAD is the end of the process.
"""

from collections.abc import Mapping
from enum import Enum

from core.errors import IllegalTransition


class State(Enum):
    """What a worker is doing."""

    LOADING = "loading"
    IDLE = "idle"
    BUSY = "busy"
    DUPLEX_ACTIVE = "duplex_active"
    DUPLEX_PAUSED = "duplex_paused"
    DRAINING = "draining"
    SUSPECT = "suspect"
    DEAD = "dead"


class Event(Enum):
    """What happens to it."""

    LOADED = "loaded"
    LOAD_FAILED = "load_failed"
    TURN_LEASED = "turn_leased"
    """For a turn or for streams: chat, half duplex, recognition, synthesis."""
    DUPLEX_LEASED = "duplex_leased"
    PAUSED = "paused"
    RESUMED = "resumed"
    PAUSE_EXPIRED = "pause_expired"
    ENDING = "ending"
    """The lease is over, and cleaning up begins."""
    CLEANED = "cleaned"
    OVERDUE = "overdue"
    """A call of the engine has not returned in time."""
    RETURNED = "returned"
    """Of an engine with many streams: the call that was overdue has returned, and others go on."""
    DRAIN = "drain"
    EXIT = "exit"


_S, _E = State, Event

TRANSITIONS: Mapping[tuple[State, Event], State] = {
    (_S.LOADING, _E.LOADED): _S.IDLE,
    (_S.LOADING, _E.LOAD_FAILED): _S.DEAD,
    (_S.LOADING, _E.DRAIN): _S.DEAD,
    (_S.LOADING, _E.EXIT): _S.DEAD,
    (_S.IDLE, _E.TURN_LEASED): _S.BUSY,
    (_S.IDLE, _E.DUPLEX_LEASED): _S.DUPLEX_ACTIVE,
    (_S.IDLE, _E.DRAIN): _S.DEAD,
    (_S.IDLE, _E.EXIT): _S.DEAD,
    # Of an engine with many streams: one more, or one less.
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
    # It came back after all, and everything is given back.
    (_S.SUSPECT, _E.CLEANED): _S.IDLE,
    (_S.SUSPECT, _E.RETURNED): _S.BUSY,
    (_S.SUSPECT, _E.ENDING): _S.SUSPECT,
    (_S.SUSPECT, _E.PAUSE_EXPIRED): _S.SUSPECT,
    (_S.SUSPECT, _E.OVERDUE): _S.SUSPECT,
    (_S.SUSPECT, _E.DRAIN): _S.DEAD,
    (_S.SUSPECT, _E.EXIT): _S.DEAD,
}


def follow(state: State, event: Event) -> State:
    """The state behind an event.

    Raises:
        IllegalTransition: it cannot happen in this state.
    """
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise IllegalTransition(state.value, event.value) from None


def diagram() -> str:
    """The table as a Mermaid state diagram."""
    lines = ["stateDiagram-v2", f"    [*] --> {State.LOADING.name}"]
    grouped: dict[tuple[State, State], list[str]] = {}
    for (before, event), behind in TRANSITIONS.items():
        if before is not behind:
            grouped.setdefault((before, behind), []).append(event.value)
    lines += [
        f"    {before.name} --> {behind.name}: {', '.join(events)}"
        for (before, behind), events in grouped.items()
    ]
    return "\n".join([*lines, f"    {State.DEAD.name} --> [*]"])
