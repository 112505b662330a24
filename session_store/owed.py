"""Words that a conversation owes its caller when its call broke off. Pure.

Input: the events of a session, whose last call ended without an end of its own: its process died, or its
connection was lost. Output: the rest of the reply that was being said, from the first clause that is not
recorded as heard; or that the last turn has no answer yet. Words that the caller was saying are lost with the
call. What was typed has its own answer, and is not considered.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from parley.session_store.events import Event, Kind
from parley.session_store.memory import current_events, text_in
from parley.session_store.prompt import BY_DEPLOYMENT, BY_HUMAN

TEXT = "text"


@dataclass(frozen=True, slots=True)
class OwedWords:
    """Part of a conversation that is still to be said.

    Attributes:
        rest: of the reply; empty where nothing of it is known.
        by_human: a human wrote it.
        answer: the last turn is to be answered, or answered to its end.
    """

    rest: str = ""
    by_human: bool = False
    answer: bool = False


def owed_of(events: Iterable[Event]) -> OwedWords:
    """Return what the last call of a session still owed its caller."""
    known = _spoken(events)
    turns = [place for place, event in enumerate(known) if event.kind is Kind.USER_TURN]
    since = known[turns[-1] + 1 :] if turns else known
    replies: dict[str, list[Event]] = {}
    for event in since:
        if _is_reply(event) and "turn" not in event.payload:
            replies.setdefault(text_in(event.payload, "reply_id") or event.key, []).append(event)
    if not replies:
        return OwedWords(answer=bool(turns))
    newest = list(replies.values())[-1]
    last = max(newest, key=lambda event: (event.kind is Kind.BOT_TURN, event.event_us, event.seq))
    is_over = last.kind is Kind.BOT_TURN
    rest = text_in(last.payload, "unheard" if is_over else "rest").strip()
    # Tools were called after it, whose results have no answer yet.
    is_called = any(each.kind is Kind.TOOL_CALL and each.seq > last.seq for each in since)
    if is_over and not last.payload.get("truncated"):
        return OwedWords(answer=is_called)
    # The model is asked for an answer that it was still writing, which is more than the known rest.
    is_unwritten = bool(turns) and (
        bool(last.payload.get("unwritten")) if is_over else last.payload.get("rest") is None
    )
    if rest and not is_unwritten:
        return OwedWords(rest, by_human=last.payload.get("by") == BY_HUMAN, answer=is_called)
    return OwedWords(answer=is_called or is_unwritten)


def is_begun(events: Iterable[Event]) -> bool:
    """Return whether a call has come past the phrases of its deployment: something was said or heard."""
    return any(event.kind is Kind.USER_TURN or _is_reply(event) for event in _spoken(events))


def _spoken(events: Iterable[Event]) -> list[Event]:
    return [event for event in current_events(events) if event.payload.get("transport") != TEXT]


def _is_reply(event: Event) -> bool:
    return event.kind in (Kind.HEARD, Kind.BOT_TURN) and event.payload.get("by") != BY_DEPLOYMENT
