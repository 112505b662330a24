"""State of a conversation: the speaker, the purpose, and the facts that the person stated.

Decides how events fold into a ``SessionState``: later statements win, and a correction changes the fact that
it corrects. ``StateHistory`` holds what each event adds, for notes at its place. ``language`` extracts the
statements of a sentence; ``prompt`` decides how a model receives the state. Pure.

The state is derived and can be folded again at any time. Two kinds of events carry it: STATE events, by which
any component may add to it, and the person's turns where a deployment extracts facts from them. A SUMMARY
carries the state as it was at the turns that it covers, so that folding does not need them any more.

A timeline may be imported, with any JSON as a payload. A reader of a payload uses the valid parts and treats
the rest as absent; ``odd_events`` finds such events.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from parley.core.client_rules import CLIENT_TEXT
from parley.language.facts import ExtractedFacts, FactRules
from parley.session_store.events import Event, Kind

# Number of recent turns to whose statements a correction ("no, it's ...") may refer.
RECENT_TURNS = 3
# Types of a slot's value; a list or an object is not valid.
_VALUES = (str, int, float)

# Events from which the view of a model is made.
IN_VIEW = frozenset(
    {
        *(Kind.USER_TURN, Kind.HEARD, Kind.BOT_TURN, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.STATE),
        *(Kind.SUMMARY, Kind.TIER),
    }
)


@dataclass(frozen=True, slots=True)
class FactSlot:
    """Known fact.

    Attributes:
        value: in words or digits.
        seq: of the event that states it.
    """

    value: str
    seq: int


@dataclass(frozen=True, slots=True)
class SessionState:
    """State at one point of a conversation.

    Attributes:
        speaker: identity of the person, as a specialist or a STATE event reports it.
        intent: purpose of the person: "a lost card", "to close my account".
        language: tag of the language that a call switched to, in which later calls are spoken to as well.
        slots: name -> value, the oldest first.
        recent: name -> number of the person's turns since it was stated, the newest first; for corrections.
    """

    speaker: str | None = None
    intent: str | None = None
    language: str | None = None
    slots: Mapping[str, FactSlot] = field(default_factory=dict)
    recent: Mapping[str, int] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, str]:
        """Values of the slots: name -> value."""
        return {name: slot.value for name, slot in self.slots.items()}


@dataclass(frozen=True, slots=True)
class StateChange:
    """Addition of one event to the state.

    Attributes:
        at: event time and seq of the event.
        slots: name -> value of the slots that are new or have another value since.
        intent: the purpose, where it is new or another one; else None.
        speaker: the same of the speaker, where no slot has the name.
        withdrawn: slots that the event removes.
    """

    at: tuple[int, int]
    slots: Mapping[str, str]
    intent: str | None
    speaker: str | None
    withdrawn: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StateHistory:
    """State of a conversation from the newest summary on.

    Attributes:
        start: at the turns that the summary covers; empty without a summary that carries a state.
        changes: after it, in order. A slot that was withdrawn later is in none of them, nor in ``start``.
        end: after all of them.
    """

    start: SessionState
    changes: tuple[StateChange, ...]
    end: SessionState


def text_in(payload: Mapping[str, Any], name: str) -> str:
    """Return a text of a payload; empty where it is missing or of another type."""
    given = payload.get(name)
    return clean(given) if isinstance(given, str) else ""


def clean(text: str) -> str:
    """Return the text without lone surrogates, which JSON can hold and no provider accepts."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def covered_seq(summary: Event) -> int | None:
    """Return the seq up to which a SUMMARY covers events; None where it gives none, and so covers nothing."""
    until_seq = summary.payload.get("until_seq")
    return until_seq if type(until_seq) is int and 0 <= until_seq < summary.seq else None


def odd_events(events: Iterable[Event]) -> list[int]:
    """Return the seqs of events that no release writes in this form; their invalid parts count as absent."""
    known = list(events)
    calls = {text_in(event.payload, "call_id") for event in known if event.kind is Kind.TOOL_CALL} - {""}
    return [event.seq for event in known if _is_odd(event, calls)]


def fold_state(events: Iterable[Event], facts: FactRules | None = None) -> SessionState:
    """Return the state that the events give, in whatever order they come.

    Args:
        events: of one session.
        facts: rules by which facts are extracted from the person's turns; None: they are not.
    """
    return state_history(events, facts).end


def state_history(events: Iterable[Event], facts: FactRules | None = None) -> StateHistory:
    """Return how the state came about, in whatever order the events come.

    A slot that an event withdraws (value None) is taken out of what came before, so that nothing made of the
    history shows it any more. A slot that got another value stays in the change that stated the earlier one.

    Args:
        events: as for ``fold_state``.
        facts: as for ``fold_state``.
    """
    current = current_events(events)
    start, until_seq = _at_summary(current)
    state, changes = start, list[StateChange]()
    for event in current:
        if event.seq <= until_seq or event.kind not in (Kind.STATE, Kind.USER_TURN):
            continue
        before = state
        if event.kind is Kind.STATE:
            state = _with_payload(state, event.payload, event.seq)
        else:
            state = _with_turn(state, event, facts)
        change = _change(before, state, (event.event_us, event.seq))
        if change is not None:
            changes.append(change)
    withdrawn: set[str] = set()
    for place in reversed(range(len(changes))):
        change = changes[place]
        changes[place] = replace(change, slots=_without(change.slots, withdrawn))
        withdrawn |= change.withdrawn
    start = replace(start, slots=_without(start.slots, withdrawn))
    return StateHistory(start, tuple(changes), state)


def learn(text: str, state: SessionState, facts: FactRules | None) -> dict[str, Any]:
    """Return the payload of the STATE event for a turn of the person; empty when the turn adds nothing.

    Args:
        text: of the turn.
        state: before it.
        facts: as for ``fold_state``.
    """
    found = _learnt(text, state, facts)
    slots = {name: value for name, value in found.facts.items() if state.values.get(name) != value}
    payload: dict[str, Any] = {"slots": slots} if slots else {}
    if found.intent is not None and found.intent != state.intent:
        payload["intent"] = found.intent
    return payload


def state_payload(state: SessionState) -> dict[str, Any]:
    """Return a state as JSON, with the event of each slot; a SUMMARY carries it."""
    slots = {name: {"value": slot.value, "seq": slot.seq} for name, slot in state.slots.items()}
    return {
        "speaker": state.speaker,
        "intent": state.intent,
        "language": state.language,
        "slots": slots,
    }


def current_events(events: Iterable[Event]) -> list[Event]:
    """Return the events that are not superseded, in order of event time and then of commit.

    ``supersedes`` in a payload names an event by its seq or its key, or several in a list.
    """
    known = list(events)
    gone: set[object] = set()
    for event in known:
        named = event.payload.get("supersedes")
        names = named if isinstance(named, (list, tuple)) else [named]
        gone.update(name for name in names if type(name) in (int, str))
    kept = [event for event in known if event.seq not in gone and event.key not in gone]
    return sorted(kept, key=lambda event: (event.event_us, event.seq))


def newest_summary(events: Sequence[Event]) -> Event | None:
    """Return the summary that counts: the one committed last among those that name the events they cover."""
    summaries = [event for event in events if event.kind is Kind.SUMMARY and covered_seq(event) is not None]
    return max(summaries, key=lambda event: event.seq, default=None)


def has_client_text(events: Iterable[Event]) -> bool:
    """Return whether a client's text has shaped the session, or the client has supplied replies."""
    return any(
        event.payload.get(CLIENT_TEXT) or (event.kind is Kind.BOT_TURN and event.payload.get("brought"))
        for event in events
    )


def _is_odd(event: Event, calls: Collection[str]) -> bool:
    payload = event.payload
    match event.kind:
        case Kind.USER_TURN | Kind.HEARD | Kind.BOT_TURN:
            return not isinstance(payload.get("text"), str)
        case Kind.TOOL_CALL:
            named = text_in(payload, "call_id") and text_in(payload, "name")
            return not named or not isinstance(payload.get("arguments"), Mapping)
        case Kind.TOOL_RESULT:
            return text_in(payload, "call_id") not in calls
        case Kind.STATE:
            texts = [payload.get(name) for name in ("speaker", "intent", "language")]
            return not all(text is None or isinstance(text, str) for text in texts) or not isinstance(
                payload.get("slots", {}), Mapping
            )
        case Kind.SUMMARY:
            return covered_seq(event) is None or not isinstance(payload.get("text"), str)
    return False


def _at_summary(events: Sequence[Event]) -> tuple[SessionState, int]:
    """Return the state of the newest summary, and the seq up to which it applies.

    Without one, that is an empty state and 0.
    """
    summary = newest_summary(events)
    carried = summary.payload.get("state") if summary is not None else None
    if summary is None or not isinstance(carried, Mapping):
        return SessionState(), 0
    state = _with_payload(SessionState(), carried, summary.seq)
    return replace(state, recent={}), covered_seq(summary) or 0


_V = TypeVar("_V")


def _without(named: Mapping[str, _V], names: Collection[str]) -> dict[str, _V]:
    return {name: value for name, value in named.items() if name not in names}


def _change(before: SessionState, after: SessionState, at: tuple[int, int]) -> StateChange | None:
    """Return the difference of two states; None when there is none."""
    known = before.values
    slots = {name: value for name, value in after.values.items() if known.get(name) != value}
    intent = after.intent if after.intent != before.intent else None
    is_named = after.speaker == before.speaker or "name" in after.slots
    withdrawn = frozenset(known.keys() - after.slots.keys())
    change = StateChange(at, slots, intent, None if is_named else after.speaker, withdrawn)
    return change if slots or intent or change.speaker or withdrawn else None


def _with_payload(state: SessionState, payload: Mapping[str, Any], seq: int) -> SessionState:
    slots = dict(state.slots)
    recent = dict(state.recent)
    stated = payload.get("slots")
    for raw, given in stated.items() if isinstance(stated, Mapping) else ():
        name, own_seq = clean(raw), seq
        if isinstance(given, Mapping):
            own_seq = given["seq"] if type(given.get("seq")) is int else seq
            given = given.get("value")
        if given is None:
            slots.pop(name, None)
            recent.pop(name, None)
            continue
        value = clean(str(given)) if isinstance(given, _VALUES) else None
        if value is not None and (name not in slots or slots[name].value != value):
            # A changed value becomes the newest; a repeated one keeps the event that stated it first.
            slots.pop(name, None)
            slots[name] = FactSlot(value, own_seq)
            recent = {name: 0, **{other: ago for other, ago in recent.items() if other != name}}
    return SessionState(
        speaker=text_in(payload, "speaker") or state.speaker,
        intent=text_in(payload, "intent") or state.intent,
        language=text_in(payload, "language") or state.language,
        slots=slots,
        recent=recent,
    )


def _with_turn(state: SessionState, turn: Event, facts: FactRules | None) -> SessionState:
    found = _learnt(text_in(turn.payload, "text"), state, facts)
    aged = {name: ago + 1 for name, ago in state.recent.items() if ago + 1 < RECENT_TURNS}
    said = dict.fromkeys(reversed(list(found.facts)), 0)
    state = replace(state, recent={**said, **{name: ago for name, ago in aged.items() if name not in said}})
    payload = {"slots": found.facts, "intent": found.intent, "speaker": turn.speaker}
    return _with_payload(state, payload, turn.seq)


def _learnt(text: str, state: SessionState, facts: FactRules | None) -> ExtractedFacts:
    if facts is None:
        return ExtractedFacts()
    return facts.extract_facts(text, state.values, tuple(state.recent))


def from_last_summary(events: Sequence[Event]) -> list[Event]:
    """Return the events without those that the newest summary replaces."""
    summary = newest_summary(current_events(events))
    tier = newest_tier(events)
    until_seq = stands_until(summary)
    return [event for event in events if event.seq > until_seq or event is summary or event is tier]


def newest_tier(events: Sequence[Event]) -> Event | None:
    """Return the newest record of a tier, which no summary replaces."""
    changes = [event for event in events if event.kind is Kind.TIER]
    return max(changes, key=lambda event: event.seq, default=None)


def stands_until(summary: Event | None) -> int:
    """Return the seq up to which a summary replaces the events; 0 when it replaces none.

    A summary always replaces the turns. The state of the conversation is in those events as well, and only a
    summary that carries the state can replace it. Those of ``compaction`` do; an imported one may not.
    """
    if summary is None or not isinstance(summary.payload.get("state"), Mapping):
        return 0
    return covered_seq(summary) or 0
