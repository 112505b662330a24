"""Redact what is stored of a session: the last door, through which everything of a conversation passes.

The words of calls were redacted where they came in. Here the rest is: typed turns, arguments and results of
tools, notes and summaries, and words that came in by a way that nothing else watches. In a private pause
words are replaced as a whole, and so are the arguments and results of tools, whatever they hold. Pure.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from parley.language.personal_data import Redactor
from parley.session_store.events import Draft, Kind

PRIVATE = "[private]"
# Arguments and result of a tool's call in a private pause.
PRIVATE_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})
PRIVATE_RESULT: Mapping[str, Any] = MappingProxyType({"result": PRIVATE})
_PRIVATE_FIELDS: Mapping[Kind, Mapping[str, Any]] = MappingProxyType(
    {Kind.TOOL_CALL: {"arguments": PRIVATE_ARGUMENTS}, Kind.TOOL_RESULT: {"result": PRIVATE_RESULT}}
)
# Marks of a private pause, with which the words of a turn can be found for the model.
_PRIVATE_MARK = "[private-"
# Fields with words, by whose words they are.
_OF_CALLER: dict[Kind, tuple[str, ...]] = {
    Kind.USER_TURN: ("text", "rendered", "tokens"),
    Kind.TOOL_CALL: ("arguments",),
    Kind.STATE: ("slots", "intent"),
    Kind.TIER: ("note", "cause"),
    Kind.SUMMARY: ("text", "state"),
    Kind.ANNOTATION: ("body",),
}
_OF_AGENT: dict[Kind, tuple[str, ...]] = {
    Kind.HEARD: ("text", "rest"),
    Kind.BOT_TURN: ("text", "unheard"),
    Kind.TOOL_RESULT: ("result",),
}
# Of these a number may be personal data; of others it is a time or a count.
_WITH_NUMBERS = frozenset({Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.STATE})
# Words of these are not made anew in a pause: notes of a human, and what older turns were.
_NOT_OF_PAUSE = frozenset({Kind.SUMMARY, Kind.TIER})
_LEAST_NUMBER = 1_000_000


def redacted_draft(draft: Draft, redactor: Redactor) -> Draft:
    """Return a draft whose words hide personal data."""
    payload = draft.payload
    for fields, hide in (
        (_OF_CALLER.get(draft.kind, ()), redactor.of_caller),
        (_OF_AGENT.get(draft.kind, ()), redactor.of_agent),
    ):
        payload = _mapped(payload, fields, hide, numbers=draft.kind in _WITH_NUMBERS)
    return draft if payload is draft.payload else replace(draft, payload=payload)


def private_draft(draft: Draft) -> Draft:
    """Return a draft without its words."""
    if draft.kind in _NOT_OF_PAUSE:
        return draft
    if draft.kind in _PRIVATE_FIELDS:
        whole = {name: dict(value) for name, value in _PRIVATE_FIELDS[draft.kind].items()}
        return replace(draft, payload={**draft.payload, **whole})
    fields = (*_OF_CALLER.get(draft.kind, ()), *_OF_AGENT.get(draft.kind, ()))
    payload = _mapped(draft.payload, fields, _hidden, numbers=True)
    return draft if payload is draft.payload else replace(draft, payload=payload)


def private_words(text: str) -> str:
    """Return the mark in place of words of a private pause."""
    return _hidden(text)


def _hidden(text: str) -> str:
    return text if not text or text.startswith(_PRIVATE_MARK) else PRIVATE


def _mapped(
    payload: Mapping[str, Any], fields: tuple[str, ...], hide: Callable[[str], str], *, numbers: bool
) -> Mapping[str, Any]:
    changed = {
        name: new
        for name in fields
        if name in payload and (new := _value(payload[name], hide, numbers=numbers)) != payload[name]
    }
    return {**payload, **changed} if changed else payload


def _value(value: Any, hide: Callable[[str], str], *, numbers: bool) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, Mapping):
        return {key: _value(each, hide, numbers=numbers) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_value(each, hide, numbers=numbers) for each in value]
    if numbers and isinstance(value, int) and not isinstance(value, bool) and value >= _LEAST_NUMBER:
        shown = hide(str(value))
        return value if shown == str(value) else shown
    return value
