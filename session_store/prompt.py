"""What a model is given of a session: messages made from the timeline, and from nothing else.

Decides order, form and what is left out; ``compaction`` decides what is summarised, ``memory`` what is known.
Pure: the same events give the same messages, in whatever order they come in, so the view can be thrown away
and made again at any time, by any process.

* Turns stand in order of event time: what was said, typed or phoned in lies in one row. A reply stands where
  it began to be heard, so that who interrupts it comes behind it.
* A reply is remembered as far as it was heard. One that was cut off says so, with what was not heard.
* A tool call whose result nobody recorded has the result "unknown": a list of messages in which a call has
  no result is refused by most providers.
* A summary stands in the place of the turns that it covers.
* Notes (``core.notes``) stand at the front of the first message of the person and not in a system message: an
  instruction of the service would take the place of that one, in Pipecat's adapters and in our own. They come
  in no message of their own: servers whose chat template demands that roles alternate refuse two of a kind.

Budget: whole turns are left out, the oldest first; notes may take half of what the newest turn leaves over.
The newest turn is always there.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import ceil
from typing import Any, Literal, TypeVar

from core.notes import Notes, write_notes
from core.timeline import EnrichedToken, ProsodyPayload, VisionPayload
from sequencer.rendering import render, tags
from session_store.events import Event, Kind
from session_store.memory import SessionState, current_events, fold_state, newest_summary

CountTokens = Callable[[str], int]

# Around the words of a message, every provider's template adds a role and separators: 3 to 5 tokens.
MESSAGE_TOKENS = 5
UNKNOWN_RESULT = "No result was recorded. Nobody knows whether it took effect."
# Enough for the model to know what it need not say again; the whole of a long answer would push turns out.
_UNHEARD_WORDS = 60
_P = TypeVar("_P", ProsodyPayload, VisionPayload)


@dataclass(frozen=True, slots=True)
class PromptView:
    """A session as a model is given it.

    Attributes:
        messages: role and content, in the form of OpenAI's chat completions, which Pipecat's ``LLMContext``
            takes.
        tokens: of the messages, as counted.
        dropped: turns that did not fit.
        until_seq: events up to this one are in the summary; 0 without a summary.
        state: what is known.
    """

    messages: tuple[dict[str, Any], ...]
    tokens: int
    dropped: int
    until_seq: int
    state: SessionState


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A call of a tool with what came of it, as JSON texts."""

    call_id: str
    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing in the row of a conversation.

    Attributes:
        at: event time and seq, by which entries are ordered.
        seqs: the events that it is made of.
        role: who.
        text: what they said, with remarks.
        uses: calls that were made at once; of role "tools" only.
        open: one of them has no result yet.
        remarked: whether ``text`` holds a remark in brackets.
    """

    at: tuple[int, int]
    seqs: frozenset[int]
    role: Literal["user", "assistant", "tools"]
    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    open: bool = False
    remarked: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """What the person said, and everything up to what they say next. The first may lack the person."""

    entries: tuple[Entry, ...]

    @property
    def open(self) -> bool:
        """Whether a tool call in it waits for its result."""
        return any(entry.open for entry in self.entries)

    @property
    def seqs(self) -> frozenset[int]:
        """The events that it is made of."""
        return frozenset().union(*(entry.seqs for entry in self.entries))


def approximate_tokens(text: str) -> int:
    """Tokens of a text, without a tokenizer: one for three bytes, which is more than English needs (four
    bytes) and about what Cyrillic and Chinese do.
    """
    return ceil(len(text.encode()) / 3)


def prompt_view(
    events: Iterable[Event],
    *,
    budget_tokens: int,
    instruction: str | None = None,
    count_tokens: CountTokens = approximate_tokens,
) -> PromptView:
    """The messages that the events give.

    Args:
        events: of one session; those that a summary covers may be missing.
        budget_tokens: of all messages; exceeded only when instruction and newest turn alone are longer.
        instruction: how to answer, as the system message; None where the service has its own.
        count_tokens: of a text.
    """
    known = list(events)
    summary = newest_summary(current_events(known))
    until_seq = int(summary.payload["until_seq"]) if summary is not None else 0
    state = fold_state(known)
    notes = Notes(
        summary=str(summary.payload.get("text", "")) if summary is not None else "",
        facts=state.values,
        intent=state.intent,
        speaker=None if "name" in state.slots else state.speaker,
    )
    turns = turns_of(known)
    fitting = _Fitting(budget_tokens, instruction, count_tokens)
    messages, kept = fitting.fit(notes, turns)
    return PromptView(
        messages=tuple(messages),
        tokens=fitting.tokens(messages),
        dropped=len(turns) - kept,
        until_seq=until_seq,
        state=state,
    )


def turns_of(events: Iterable[Event]) -> list[Turn]:
    """The turns that no summary covers, the oldest first."""
    current = current_events(events)
    summary = newest_summary(current)
    until_seq = int(summary.payload["until_seq"]) if summary is not None else 0
    entries = [*_user_entries(current), *_reply_entries(current), *_tool_entries(current)]
    turns: list[list[Entry]] = []
    for entry in sorted(entries, key=lambda entry: entry.at):
        if max(entry.seqs) <= until_seq:
            continue
        if entry.role == "user" or not turns:
            turns.append([])
        turns[-1].append(entry)
    return [Turn(tuple(entries)) for entries in turns]


def turn_tokens(turn: Turn, count_tokens: CountTokens = approximate_tokens) -> int:
    """Tokens of a turn's messages; a little more where messages are merged."""
    return sum(_message_tokens(message, count_tokens) for message in _messages_of([turn]))


def without_remarks(text: str) -> str:
    """``text`` without remarks in brackets."""
    return " ".join(re.sub(r"\[[^\]]*\]", " ", text).split())


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Chooses what fits."""

    budget_tokens: int
    instruction: str | None
    count: CountTokens

    def fit(self, notes: Notes, turns: Sequence[Turn]) -> tuple[list[dict[str, Any]], int]:
        """The messages, and how many turns are in them."""
        costs = [turn_tokens(turn, self.count) for turn in turns]
        spare = self.budget_tokens - self._instruction_tokens() - (costs[-1] if costs else 0)
        notes = self._shrink(notes, max(spare // 2, spare - sum(costs[:-1])))
        spare -= self.count(write_notes(notes))
        kept = min(1, len(turns))
        while kept < len(turns) and costs[-1 - kept] <= spare:
            spare -= costs[-1 - kept]
            kept += 1
        # A sum of parts may differ from the whole, which is what counts.
        while True:
            messages = self._assemble(notes, turns[len(turns) - kept :])
            if self.tokens(messages) <= self.budget_tokens:
                return messages, kept
            if kept > 1:
                kept -= 1
            elif notes:
                notes = Notes()
            else:
                return self._assemble(notes, turns[len(turns) - kept :], explain=False), kept

    def tokens(self, messages: Iterable[Mapping[str, Any]]) -> int:
        return sum(_message_tokens(message, self.count) for message in messages)

    def _instruction_tokens(self) -> int:
        return self.count(self.instruction) + MESSAGE_TOKENS if self.instruction else 0

    def _shrink(self, notes: Notes, budget_tokens: int) -> Notes:
        """Notes without their oldest parts: first of the summary, then of the facts."""
        while notes and self.count(write_notes(notes)) + MESSAGE_TOKENS > budget_tokens:
            if notes.summary:
                notes = replace(notes, summary="\n".join(_sentences(notes.summary)[1:]))
            elif notes.facts:
                notes = replace(notes, facts=dict(list(notes.facts.items())[1:]))
            else:
                notes = Notes()
        return notes

    def _assemble(self, notes: Notes, turns: Sequence[Turn], *, explain: bool = True) -> list[dict[str, Any]]:
        messages = _messages_of(turns)
        starts_late = bool(messages) and messages[0]["role"] != "user"
        remarked = explain and any(entry.remarked for turn in turns for entry in turn.entries)
        front = write_notes(replace(notes, opened=starts_late, remarks=remarked))
        if front and messages and not starts_late:
            messages[0]["content"] = f"{front}\n\n{messages[0]['content']}"
        elif front:
            messages.insert(0, {"role": "user", "content": front})
        if self.instruction:
            messages.insert(0, {"role": "system", "content": self.instruction})
        return messages


def _messages_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for entry in (entry for turn in turns for entry in turn.entries):
        if entry.role == "tools":
            messages.extend(_tool_messages(entry.uses))
        elif messages and messages[-1]["role"] == entry.role and "tool_calls" not in messages[-1]:
            # A blank line: a reader can tell two turns from two lines of one.
            messages[-1]["content"] += f"\n\n{entry.text}"
        else:
            messages.append({"role": entry.role, "content": entry.text})
    return messages


def _tool_messages(uses: Sequence[ToolUse]) -> list[dict[str, Any]]:
    calls = [
        {"id": use.call_id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}
        for use in uses
    ]
    results = [{"role": "tool", "tool_call_id": use.call_id, "content": use.result} for use in uses]
    return [{"role": "assistant", "tool_calls": calls}, *results]


def _message_tokens(message: Mapping[str, Any], count: CountTokens) -> int:
    tokens = MESSAGE_TOKENS + count(str(message.get("content") or ""))
    for call in message.get("tool_calls", ()):
        tokens += MESSAGE_TOKENS + count(call["id"])
        tokens += count(call["function"]["name"]) + count(call["function"]["arguments"])
    return tokens + (count(message["tool_call_id"]) if "tool_call_id" in message else 0)


def _user_entries(events: Iterable[Event]) -> Iterable[Entry]:
    for event in events:
        if event.kind is not Kind.USER_TURN:
            continue
        text, remarked = _user_text(event.payload)
        if text:
            at = (event.event_us, event.seq)
            yield Entry(at, frozenset({event.seq}), "user", text, remarked=remarked)


def _user_text(payload: Mapping[str, Any]) -> tuple[str, bool]:
    """The words, with what was perceived about them in brackets; and whether there is any of that."""
    text = str(payload.get("text", "")).strip()
    rendered = str(payload.get("rendered") or "").strip()
    if not rendered and isinstance(payload.get("tokens"), Sequence):
        tokens = [_token(token) for token in payload["tokens"] if isinstance(token, Mapping)]
        speakers = {token.speaker_id for token in tokens} - {None}
        adds = len(speakers) > 1 or any(tags(token) for token in tokens)
        rendered = render(tokens) if adds else ""
    return (rendered, rendered != text) if rendered else (text, False)


def _token(stored: Mapping[str, Any]) -> EnrichedToken:
    """A token from its JSON; what an older or newer release wrote besides is left out."""
    return EnrichedToken(
        event_us=int(stored.get("event_us") or 0),
        text=str(stored.get("text") or ""),
        speaker_id=stored.get("speaker_id"),
        prosody=_of_type(ProsodyPayload, stored.get("prosody")),
        visual=_of_type(VisionPayload, stored.get("visual")),
        truncated=bool(stored.get("truncated")),
    )


def _of_type(made: type[_P], stored: object) -> _P | None:
    if not isinstance(stored, Mapping):
        return None
    given = {field.name: stored[field.name] for field in fields(made) if field.name in stored}
    return made(**{"start_us": 0, "end_us": 0, **given})


def _reply_entries(events: Iterable[Event]) -> Iterable[Entry]:
    replies: dict[str, list[Event]] = {}
    for event in events:
        if event.kind in (Kind.HEARD, Kind.BOT_TURN):
            replies.setdefault(str(event.payload.get("reply_id", event.key)), []).append(event)
    for reply in replies.values():
        # Checkpoints may be committed late; what was heard last counts, and a finished reply above all.
        last = max(reply, key=lambda event: (event.kind is Kind.BOT_TURN, event.event_us, event.seq))
        first = min(reply, key=lambda event: (event.event_us, event.seq))
        text, remarked = _reply_text(last)
        if text:
            seqs = frozenset(event.seq for event in reply)
            yield Entry((first.event_us, first.seq), seqs, "assistant", text, remarked=remarked)


def _reply_text(event: Event) -> tuple[str, bool]:
    """What was heard of a reply, and whether a remark stands behind it."""
    heard = str(event.payload.get("text", "")).strip()
    if event.kind is Kind.BOT_TURN and not event.payload.get("truncated"):
        return heard, False
    unheard = _plain(event.payload.get("unheard") or "")
    words = unheard.split()
    if len(words) > _UNHEARD_WORDS:
        unheard = " ".join([*words[:_UNHEARD_WORDS], "..."])
    if unheard:
        remark = f'[interrupted by the person here, who did not hear: "{unheard}"]'
    elif heard:
        remark = "[cut off here; the person heard no more of this reply]"
    else:
        return "", False
    return f"{heard} {remark}".strip(), True


def _tool_entries(events: Iterable[Event]) -> Iterable[Entry]:
    results: dict[str, Event] = {}
    known = list(events)
    for event in known:
        if event.kind is Kind.TOOL_RESULT:
            results[str(event.payload.get("call_id"))] = event
    group: list[Event] = []
    asked: set[str] = set()
    for event in known:
        if event.kind is Kind.TOOL_CALL and str(event.payload.get("call_id")) not in asked:
            asked.add(str(event.payload.get("call_id")))
            group.append(event)
        elif group and event.kind in (Kind.TOOL_RESULT, Kind.USER_TURN, Kind.HEARD, Kind.BOT_TURN):
            # Calls that were made before any of them was answered were made at once.
            yield _tool_entry(group, results)
            group = []
    if group:
        yield _tool_entry(group, results)


def _tool_entry(calls: Sequence[Event], results: Mapping[str, Event]) -> Entry:
    uses = []
    seqs = {call.seq for call in calls}
    is_open = False
    for call in calls:
        call_id = str(call.payload.get("call_id"))
        result = results.get(call_id)
        if result is not None:
            seqs.add(result.seq)
        is_open = is_open or result is None
        arguments = _arguments(call.payload.get("arguments"))
        uses.append(ToolUse(call_id, str(call.payload.get("name", "")), arguments, _result(result)))
    return Entry((calls[0].event_us, calls[0].seq), frozenset(seqs), "tools", uses=tuple(uses), open=is_open)


def _arguments(given: object) -> str:
    """A JSON object, which is what providers take."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            given = {"text": given}
    if given is None:
        given = {}
    return _json(given if isinstance(given, Mapping) else {"value": given})


def _result(event: Event | None) -> str:
    if event is None:
        return _json({"outcome": "unknown", "result": UNKNOWN_RESULT})
    outcome, result = event.payload.get("outcome", "done"), event.payload.get("result")
    if outcome == "done":
        return result if isinstance(result, str) and result else _json(result)
    if outcome == "unknown" and result is None:
        result = UNKNOWN_RESULT
    return _json({"outcome": outcome, "result": result})


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(text: object) -> str:
    """Without brackets, which end a remark, and in one line."""
    return " ".join(str(text).replace("[", "(").replace("]", ")").replace('"', "'").split())


def _sentences(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in re.split(r"(?<=[.!?])\s+", line) if part.strip()]
