"""What is known about a conversation: who speaks, what they want, and what they said of themselves.

Decides how events fold into a ``SessionState``: later statements win, a correction changes what it corrects.
What a sentence states is decided by ``core.statements``; how a state is shown to a model by ``prompt``. Pure.

The state is derived and can be folded again at any time. Two kinds of events carry it: the person's turns
themselves, and STATE events, by which anybody may add to it. A SUMMARY carries the state as it was at the
turns it covers, so that folding does not need them any more.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from core.statements import Learnt, learnt
from session_store.events import Event, Kind

# A correction ("no, it's ...") means something that was said in one of this many turns.
RECENT_TURNS = 3


@dataclass(frozen=True, slots=True)
class Slot:
    """One thing that is known.

    Attributes:
        value: in words or digits.
        seq: of the event that says so.
    """

    value: str
    seq: int


@dataclass(frozen=True, slots=True)
class SessionState:
    """What is known at one point of a conversation.

    Attributes:
        speaker: who talks, as a specialist or a STATE event says.
        intent: what the person wants: "a lost card", "to close my account".
        slots: name -> value, the oldest first.
        recent: name -> how many turns of the person ago it was stated, the newest first; for corrections.
    """

    speaker: str | None = None
    intent: str | None = None
    slots: Mapping[str, Slot] = field(default_factory=dict)
    recent: Mapping[str, int] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """Name -> value."""
        return {name: slot.value for name, slot in self.slots.items()}


def fold_state(events: Iterable[Event]) -> SessionState:
    """The state that the events give, whatever order they come in."""
    current = current_events(events)
    state, until_seq = _at_summary(current)
    for event in current:
        if event.seq <= until_seq:
            continue
        if event.kind is Kind.STATE:
            state = _with_payload(state, event.payload, event.seq)
        elif event.kind is Kind.USER_TURN:
            state = _with_turn(state, event)
    return state


def learn(text: str, state: SessionState) -> dict[str, Any]:
    """The payload of the STATE event for a turn of the person; empty when there is nothing new in it."""
    found = _learnt(text, state)
    slots = {name: value for name, value in found.facts.items() if state.values.get(name) != value}
    payload: dict[str, Any] = {"slots": slots} if slots else {}
    if found.intent is not None and found.intent != state.intent:
        payload["intent"] = found.intent
    return payload


def state_payload(state: SessionState) -> dict[str, Any]:
    """A state as JSON, with the event of each slot; what a SUMMARY carries."""
    slots = {name: {"value": slot.value, "seq": slot.seq} for name, slot in state.slots.items()}
    return {"speaker": state.speaker, "intent": state.intent, "slots": slots}


def current_events(events: Iterable[Event]) -> list[Event]:
    """Events that no other one supersedes, in order of event time and, at the same time, of commit.

    ``supersedes`` in a payload names an event by its seq or its key, or several in a list.
    """
    known = list(events)
    gone: set[object] = set()
    for event in known:
        named = event.payload.get("supersedes")
        gone.update(named if isinstance(named, (list, tuple)) else [named])
    gone.discard(None)
    kept = [event for event in known if event.seq not in gone and event.key not in gone]
    return sorted(kept, key=lambda event: (event.event_us, event.seq))


def newest_summary(events: Sequence[Event]) -> Event | None:
    """The summary that counts: the one that was committed last."""
    summaries = [event for event in events if event.kind is Kind.SUMMARY]
    return max(summaries, key=lambda event: event.seq, default=None)


def _at_summary(events: Sequence[Event]) -> tuple[SessionState, int]:
    """The state that the newest summary carries, and up to which seq; nothing when it carries none."""
    summary = newest_summary(events)
    carried = summary.payload.get("state") if summary is not None else None
    if summary is None or not isinstance(carried, Mapping):
        return SessionState(), 0
    state = _with_payload(SessionState(), carried, summary.seq)
    return replace(state, recent={}), int(summary.payload["until_seq"])


def _with_payload(state: SessionState, payload: Mapping[str, Any], seq: int) -> SessionState:
    slots = dict(state.slots)
    recent = dict(state.recent)
    stated = payload.get("slots")
    for name, given in stated.items() if isinstance(stated, Mapping) else ():
        own_seq = seq
        if isinstance(given, Mapping):
            own_seq, given = int(given.get("seq", seq)), given.get("value")
        if given is None:
            slots.pop(name, None)
            recent.pop(name, None)
        elif name not in slots or slots[name].value != str(given):
            # What changes is the newest; what is only said again keeps the event that said it first.
            slots.pop(name, None)
            slots[name] = Slot(str(given), own_seq)
            recent = {name: 0, **{other: ago for other, ago in recent.items() if other != name}}
    return SessionState(
        speaker=payload.get("speaker") or state.speaker,
        intent=payload.get("intent") or state.intent,
        slots=slots,
        recent=recent,
    )


def _with_turn(state: SessionState, turn: Event) -> SessionState:
    found = _learnt(str(turn.payload.get("text", "")), state)
    aged = {name: ago + 1 for name, ago in state.recent.items() if ago + 1 < RECENT_TURNS}
    said = dict.fromkeys(reversed(list(found.facts)), 0)
    state = replace(state, recent={**said, **{name: ago for name, ago in aged.items() if name not in said}})
    payload = {"slots": found.facts, "intent": found.intent, "speaker": turn.speaker}
    return _with_payload(state, payload, turn.seq)


def _learnt(text: str, state: SessionState) -> Learnt:
    return learnt(text, state.values, tuple(state.recent))
