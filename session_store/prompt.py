"""Input of a model for a session: messages made from the timeline, and from nothing else.

Decides order, form and omissions; ``compaction`` decides what is summarised, and ``memory`` the state. Pure:
the same events give the same messages, in whatever order they come. Any process can therefore discard the
view and make it again at any time.

* Turns are in order of event time, whether spoken, typed or from a phone call. A reply is placed where it
  began to be heard, so that a turn that interrupts it comes after it.
* Pictures of a turn precede its words, as references (``core.pictures``). Of many pictures only the newest
  are included, the others are remarks: see ``first_shown``.
* A reply is included as far as it was heard. One that was cut off carries a remark with the part that was not
  heard.
* A tool call without a recorded result has the result "unknown". Most providers refuse a list of messages in
  which a call has no result.
* An event that names the turn it belongs to (``turn``: the answer to a typed turn, a tool call) is placed in
  that turn, however late it came.
* A summary takes the place of the turns that it covers.
* Notes (``core.prompt_notes``) precede the words of the person's messages. They are not a system message,
  because an instruction of the service would replace that, in Pipecat's adapters and in our own. They are not
  a message of their own either, because servers whose chat template demands alternating roles refuse two of a
  kind.
* The first message has notes on what came before it: the summary, and the state at its end. What a later
  event adds to the state is noted in the turn in which it came, and the explanation of remarks where they
  begin. So the view of the next turn begins with the view of this one, and a model's cache of it stays valid
  (docs/adr/0017). A withdrawn fact is in no notes, also where that changes earlier text.

Budget: whole turns are left out, the oldest first; the notes before the first message then have what was
learned in them. These notes may take half of the budget that the newest turn leaves. The newest turn is
always included.

An invalid payload (of an import) never breaks a view. Its invalid parts are left out, a tool call that cannot
be read is not a call, and arguments are always an object (``memory.odd_events``).
"""

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import ceil
from typing import Any, Literal, TypeVar

from parley.core.pictures import NO_LONGER_SHOWN, OF_SCREEN, SCREEN, UNSEEN, is_picture_key, reference
from parley.core.prompt_notes import PromptNotes, merge_notes, without_note_marks, write_notes
from parley.core.timeline import EnrichedToken, ProsodyPayload, VisionPayload
from parley.language.facts import FactRules
from parley.sequencer.rendering import render, tags
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.memory import (
    SessionState,
    StateChange,
    clean,
    covered_seq,
    current_events,
    newest_summary,
    state_history,
    text_in,
)

CountTokens = Callable[[str], int]

# Every provider's template adds a role and separators around the words of a message: 3 to 5 tokens.
MESSAGE_TOKENS = 5
UNKNOWN_RESULT = "No result was recorded. Nobody knows whether it took effect."
# Value of ``by`` in the payload of a reply that a human wrote, and the remark by which a model recognises it.
BY_HUMAN = "human"
# The same for a phrase of the deployment that stands in place of an answer.
BY_DEPLOYMENT = "deployment"
SAID_BY_HUMAN = "[said by a human colleague]"
# Enough for the model to avoid repeating itself; the whole of a long answer would push turns out.
_UNHEARD_WORDS = 60
_OUTCOMES = ("done", "failed", "unknown")
# Pattern that every provider accepts as the name and as the id of a call.
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_P = TypeVar("_P", ProsodyPayload, VisionPayload)


@dataclass(frozen=True, slots=True)
class PromptView:
    """Session as a model receives it.

    Attributes:
        messages: role and content, in the form of OpenAI's chat completions, which Pipecat's ``LLMContext``
            takes.
        tokens: counted tokens of the messages.
        dropped: number of turns that did not fit.
        until_seq: events up to this one are in the summary; 0 without a summary.
        state: known facts.
    """

    messages: tuple[dict[str, Any], ...]
    tokens: int
    dropped: int
    until_seq: int
    state: SessionState


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Tool call with its result, as JSON texts."""

    call_id: str
    name: str
    arguments: str
    result: str


@dataclass(frozen=True, slots=True)
class Entry:
    """Element of the sequence of a conversation.

    Attributes:
        at: event time and seq, by which entries are ordered.
        seqs: of the events from which it is made.
        role: speaker, or "tools".
        text: words, with remarks.
        pictures: keys of the pictures that precede the words.
        screens: those of them that show a shared screen.
        uses: calls that were made at once; for the role "tools" only.
        open: true when one of them has no result yet.
        remarked: true when ``text`` holds a remark in brackets.
        turn: seq of the person's turn to which it belongs, where that is known.
        notes: of the words of the person, on what was learned with them.
    """

    at: tuple[int, int]
    seqs: frozenset[int]
    role: Literal["user", "assistant", "tools"]
    text: str = ""
    pictures: tuple[str, ...] = ()
    screens: frozenset[str] = frozenset()
    uses: tuple[ToolUse, ...] = ()
    open: bool = False
    remarked: bool = False
    turn: int | None = None
    notes: PromptNotes = field(default_factory=PromptNotes)

    @property
    def content(self) -> str:
        """Text with its notes."""
        return "\n\n".join(part for part in (write_notes(self.notes), self.text) if part)


@dataclass(frozen=True, slots=True)
class PictureRef:
    """Picture that a turn of the person names.

    Attributes:
        key: of its event.
        number: in the session, from 0.
        is_screen: it shows a shared screen.
    """

    key: str
    number: int
    is_screen: bool = False


@dataclass(frozen=True, slots=True)
class Turn:
    """Words of the person, and everything up to their next words. The first turn may lack the person."""

    entries: tuple[Entry, ...]

    @property
    def open(self) -> bool:
        """True when a tool call in it waits for its result."""
        return any(entry.open for entry in self.entries)

    @property
    def seqs(self) -> frozenset[int]:
        """Seqs of the events from which it is made."""
        return frozenset().union(*(entry.seqs for entry in self.entries))


def approximate_tokens(text: str) -> int:
    """Return the number of tokens of a text, without a tokenizer: one per three bytes.

    That is more than English needs (four bytes) and about right for Cyrillic and Chinese.
    """
    return ceil(len(text.encode(errors="surrogatepass")) / 3)


def prompt_view(
    events: Iterable[Event],
    *,
    budget_tokens: int,
    turn: int | None = None,
    instruction: str | None = None,
    count_tokens: CountTokens = approximate_tokens,
    facts: FactRules | None = None,
    whisper: str = "",
    pictures: int = 0,
) -> PromptView:
    """Return the messages that the events give.

    Args:
        events: of one session; those that a summary covers may be missing.
        budget_tokens: of all messages; exceeded only when the instruction and the newest turn alone are
            longer.
        turn: seq of a turn of the person to be answered now; the view is that of its moment. Later words of
            the person are left out, and so are earlier answers to the turn. Its tool calls are included, and
            it or they come last. A seq that is not among the events has no effect.
        instruction: how to answer, as the system message; None where the service has its own.
        count_tokens: of a text.
        facts: rules by which facts are extracted from the person's turns; None: they are not.
        whisper: instruction of a human at the desk for this answer, which no event holds.
        pictures: number of pictures at most; 0 for a model that sees none. They do not count as tokens.
    """
    known = list(events)
    asked = next((event for event in known if event.seq == turn and event.kind is Kind.USER_TURN), None)
    if asked is not None:
        known = _to_answer(known, asked)
    summary = newest_summary(current_events(known))
    until_seq = (covered_seq(summary) or 0) if summary is not None else 0
    history = state_history(known, facts)
    front = PromptNotes(
        summary=text_in(summary.payload, "text") if summary is not None else "",
        facts=history.start.values,
        intent=history.start.intent,
        speaker=None if "name" in history.start.slots else history.start.speaker,
    )
    seen_from = first_shown(known, pictures) if pictures else None
    learned = [(change.at, _learned(change)) for change in history.changes]
    front, turns = _noted(
        front, turns_of(known, pictures_from=seen_from), sorted([*learned, *_handed_back(known)], key=_place)
    )
    front, turns = _with_whisper(front, turns, whisper)
    if asked is not None:
        turns = [*turns[:-1], *map(_asking, turns[-1:])]
    fitting = _Fitting(budget_tokens, instruction, count_tokens)
    messages, kept = fitting.fit(front, turns)
    return PromptView(
        messages=tuple(messages),
        tokens=fitting.tokens(messages),
        dropped=len(turns) - kept,
        until_seq=until_seq,
        state=history.end,
    )


def _handed_back(events: Iterable[Event]) -> list[tuple[tuple[int, int], PromptNotes]]:
    """Return the notes of humans who handed the session back, with event time and seq of their change.

    Every later change keeps the note, so that the newest alone has it where a summary covers the others.
    """
    changes = sorted((event for event in events if event.kind is Kind.TIER), key=lambda event: event.seq)
    found: list[tuple[tuple[int, int], PromptNotes]] = []
    known = ""
    for event in changes:
        note = clean(text_in(event.payload, "note"))
        if note and note != known:
            found.append(((event.event_us, event.seq), PromptNotes(handed_back=note)))
        known = note
    return found


def pictures_in(turn: Event | Draft) -> list[PictureRef]:
    """Return the pictures that a turn of the person names."""
    named = turn.payload.get("pictures")
    found: list[PictureRef] = []
    for each in named if isinstance(named, Sequence) and not isinstance(named, str) else ():
        key, number = (each.get("key"), each.get("number")) if isinstance(each, Mapping) else (None, None)
        if isinstance(key, str) and is_picture_key(key) and type(number) is int:
            found.append(PictureRef(key, number, each.get("source") == SCREEN))
    return found


def next_picture(events: Iterable[Event]) -> int:
    """Return the number of the session's next picture."""
    turns = (event for event in events if event.kind is Kind.USER_TURN)
    return max((one.number for turn in turns for one in pictures_in(turn)), default=-1) + 1


def first_shown(events: Iterable[Event], most: int) -> int:
    """Return the number of the first picture that is still included, of ``most`` at most.

    Older ones become remarks half of ``most`` at a time, and stay so. A remark changes the prompt at its
    place, and a provider reads everything after it anew: with one for each new picture it would do so in
    every turn.
    """
    step = max(1, most // 2)
    return max(0, ceil((next_picture(events) - most) / step) * step)


def turns_of(events: Iterable[Event], *, pictures_from: int | None = None) -> list[Turn]:
    """Return the turns that no summary covers, the oldest first.

    Args:
        events: of one session.
        pictures_from: number of the first picture that is included; None for a reader that sees none.
    """
    current = current_events(events)
    summary = newest_summary(current)
    until_seq = (covered_seq(summary) or 0) if summary is not None else 0
    entries = [*_user_entries(current, pictures_from), *_reply_entries(current), *_tool_entries(current)]
    turns: list[list[Entry]] = []
    of_person: dict[int, list[Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.at):
        if max(entry.seqs) <= until_seq:
            continue
        own = None if entry.turn is None else of_person.get(entry.turn)
        if own is None and (entry.role == "user" or not turns):
            own = []
            turns.append(own)
            if entry.role == "user":
                of_person.update(dict.fromkeys(entry.seqs, own))
        (turns[-1] if own is None else own).append(entry)
    return [Turn(tuple(entries)) for entries in turns]


def turn_tokens(turn: Turn, count_tokens: CountTokens = approximate_tokens) -> int:
    """Return the tokens of a turn's messages; slightly too many where messages are merged."""
    return sum(_message_tokens(message, count_tokens) for message in _messages_of([turn]))


def without_remarks(text: str) -> str:
    """Return ``text`` without remarks in brackets."""
    # Only up to the last closing bracket: after it, each opening one would be searched to the end.
    end = text.rfind("]") + 1
    return " ".join((re.sub(r"\[[^\]]*\]", " ", text[:end]) + text[end:]).split())


def _learned(change: StateChange) -> PromptNotes:
    return PromptNotes(facts=change.slots, intent=change.intent, speaker=change.speaker)


def _place(noted: tuple[tuple[int, int], PromptNotes]) -> tuple[int, int]:
    return noted[0]


def _with_whisper(front: PromptNotes, turns: Sequence[Turn], whisper: str) -> tuple[PromptNotes, list[Turn]]:
    """Return the notes and turns with an instruction for the next answer at the newest words of the person.

    There, what the model has read before stays as it was.
    """
    noted, shown = PromptNotes(whisper=whisper), list(turns)
    if not whisper:
        return front, shown
    for place, turn in reversed(list(enumerate(shown))):
        for at, entry in reversed(list(enumerate(turn.entries))):
            if entry.role == "user":
                words = replace(entry, notes=merge_notes(entry.notes, noted))
                shown[place] = Turn((*turn.entries[:at], words, *turn.entries[at + 1 :]))
                return front, shown
    return merge_notes(front, noted), shown


def _noted(
    front: PromptNotes, turns: Sequence[Turn], changes: Iterable[tuple[tuple[int, int], PromptNotes]]
) -> tuple[PromptNotes, list[Turn]]:
    """Return the notes before all turns, and the turns with notes on what was learned in them.

    A change is noted with the last words before it, its own included. Noted with the next ones, it would be
    in no view until these come; and with the last ones that there are, it would move.
    """
    words = sorted(entry.at for turn in turns for entry in turn.entries if entry.role == "user")
    learned: dict[tuple[int, int], PromptNotes] = {}
    for changed, notes in changes:
        place = bisect_right(words, changed)
        if place:
            at = words[place - 1]
            learned[at] = merge_notes(learned.get(at, PromptNotes()), notes)
        else:
            front = merge_notes(front, notes)
    return front, [
        Turn(
            tuple(
                replace(entry, notes=learned[entry.at])
                if entry.role == "user" and entry.at in learned
                else entry
                for entry in turn.entries
            )
        )
        for turn in turns
    ]


def _explained(turns: Sequence[Turn]) -> list[Turn]:
    """Return the turns with an explanation of remarks before the first words with or after one."""
    shown: list[Turn] = []
    begun = False
    for place, turn in enumerate(turns):
        for at, entry in enumerate(turn.entries):
            begun = begun or entry.remarked
            if begun and entry.role == "user":
                noted = replace(entry, notes=replace(entry.notes, remarks=True))
                entries = (*turn.entries[:at], noted, *turn.entries[at + 1 :])
                return [*shown, Turn(entries), *turns[place + 1 :]]
        shown.append(turn)
    return shown


def _to_answer(events: Sequence[Event], asked: Event) -> list[Event]:
    """Return the events of the moment at which a turn of the person is to be answered."""
    place = (asked.event_us, asked.seq)
    later = [(event.event_us, event.seq) for event in events if event.kind is Kind.USER_TURN]
    ends = min((other for other in later if other > place), default=None)

    def counts(event: Event) -> bool:
        if event.kind is Kind.SUMMARY:
            return (covered_seq(event) or 0) < asked.seq
        if event.kind is Kind.TOOL_RESULT:
            # It is placed with its call, whenever it came.
            return True
        if _turn(event) == asked.seq and event.kind in (Kind.TOOL_CALL, Kind.HEARD, Kind.BOT_TURN):
            return event.kind is Kind.TOOL_CALL
        return ends is None or (event.event_us, event.seq) < ends

    return [event for event in events if counts(event)]


def _asking(turn: Turn) -> Turn:
    """Return a turn that ends with the entry from which the model continues.

    That is the person's words, or tool results. Speech of the bot after that entry was generated before it.
    The beginning of a response that then called a tool may be heard after the tool has ended, and a reply to
    speech may be heard while the person types. A message of the assistant at the end would be a beginning to
    be continued, which newer models refuse.
    """
    entries = list(turn.entries)
    last = max((at for at, entry in enumerate(entries) if entry.role != "assistant"), default=None)
    if last is None:
        return turn
    return Turn((*entries[:last], *entries[last + 1 :], entries[last]))


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Selection of the parts that fit the budget."""

    budget_tokens: int
    instruction: str | None
    count: CountTokens

    def fit(self, front: PromptNotes, turns: Sequence[Turn]) -> tuple[list[dict[str, Any]], int]:
        """Return the messages, and the number of turns in them.

        Args:
            front: notes on what came before all turns.
            turns: all of them, with their notes.
        """
        whole = self._assemble(front, turns)
        costs = [turn_tokens(turn, self.count) for turn in turns]
        spare = self.budget_tokens - self._instruction_tokens() - (costs[-1] if costs else 0)
        limit = max(spare // 2, spare - sum(costs[:-1]))
        if self._cost(front) <= limit and self.tokens(whole) <= self.budget_tokens:
            return whole, len(turns)
        fronts = _fronts(front, turns)
        # With the notes on everything: those that are needed take no more room.
        spare -= self.count(write_notes(self._shrink(fronts[-1], limit)))
        kept = min(1, len(turns))
        while kept < len(turns) and costs[-1 - kept] <= spare:
            spare -= costs[-1 - kept]
            kept += 1
        # The sum of the parts may differ from the whole, and the whole counts.
        while True:
            notes = self._shrink(fronts[len(turns) - kept], limit)
            messages = self._assemble(notes, turns[len(turns) - kept :])
            if self.tokens(messages) <= self.budget_tokens:
                return messages, kept
            if kept <= 1:
                return self._assemble_alone(notes, turns[len(turns) - kept :]), kept
            kept -= 1

    def _assemble_alone(self, notes: PromptNotes, turns: Sequence[Turn]) -> list[dict[str, Any]]:
        """Return the newest turn with what fits of the notes; it alone where nothing does."""
        bare = [Turn(tuple(replace(entry, notes=PromptNotes()) for entry in turn.entries)) for turn in turns]
        for shown, known in ((turns, PromptNotes()), (bare, notes)):
            messages = self._assemble(known, shown)
            if self.tokens(messages) <= self.budget_tokens:
                return messages
        return self._assemble(PromptNotes(), bare, explain=False)

    def tokens(self, messages: Iterable[Mapping[str, Any]]) -> int:
        return sum(_message_tokens(message, self.count) for message in messages)

    def _instruction_tokens(self) -> int:
        return self.count(self.instruction) + MESSAGE_TOKENS if self.instruction else 0

    def _shrink(self, notes: PromptNotes, budget_tokens: int) -> PromptNotes:
        """Return the notes without their oldest parts: first of the summary, then of the facts."""
        while notes and self._cost(notes) > budget_tokens:
            if notes.summary:
                notes = replace(notes, summary="\n".join(_sentences(notes.summary)[1:]))
            elif notes.facts:
                notes = replace(notes, facts=dict(list(notes.facts.items())[1:]))
            else:
                notes = PromptNotes()
        return notes

    def _cost(self, notes: PromptNotes) -> int:
        return self.count(write_notes(notes)) + MESSAGE_TOKENS

    def _assemble(
        self, notes: PromptNotes, turns: Sequence[Turn], *, explain: bool = True
    ) -> list[dict[str, Any]]:
        if explain:
            turns = _explained(turns)
        first = turns[0].entries[0] if turns else None
        if first is not None and first.role == "user":
            noted = replace(first, notes=merge_notes(notes, first.notes))
            turns = [Turn((noted, *turns[0].entries[1:])), *turns[1:]]
            notes = PromptNotes()
        elif first is not None:
            notes = replace(notes, opened=True)
        messages = _messages_of(turns)
        if notes:
            messages.insert(0, {"role": "user", "content": write_notes(notes)})
        if self.instruction:
            messages.insert(0, {"role": "system", "content": self.instruction})
        return messages


def _fronts(front: PromptNotes, turns: Sequence[Turn]) -> list[PromptNotes]:
    """Return the notes before the turns for every number of them that is left out, from none to all."""
    fronts = [front]
    for turn in turns:
        for entry in turn.entries:
            front = merge_notes(front, entry.notes) if entry.notes else front
        fronts.append(front)
    return fronts


def _messages_of(turns: Sequence[Turn]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []
    for entry in (entry for turn in turns for entry in turn.entries):
        if entry.role == "tools":
            messages.extend(_tool_messages(entry.uses))
        elif messages and messages[-1]["role"] == entry.role and "tool_calls" not in messages[-1]:
            # A blank line, so that two turns can be distinguished from two lines of one.
            messages[-1]["content"] = _joined(messages[-1]["content"], _content_of(entry))
        else:
            messages.append({"role": entry.role, "content": _content_of(entry)})
    return messages


def _content_of(entry: Entry) -> str | list[dict[str, Any]]:
    """Return the content of an entry's message: a text, or pictures and a text."""
    if not entry.pictures:
        return entry.content
    notes = [_text_part(write_notes(entry.notes))] if entry.notes else []
    words = [_text_part(entry.text)] if entry.text else []
    shown: list[dict[str, Any]] = []
    for key in entry.pictures:
        shown += [*([_text_part(OF_SCREEN)] if key in entry.screens else []), reference(key)]
    return [*notes, *shown, *words]


def _joined(first: str | list[dict[str, Any]], second: str | list[dict[str, Any]]) -> Any:
    """Return the contents of two messages as that of one."""
    if isinstance(first, str) and isinstance(second, str):
        return f"{first}\n\n{second}"
    parts = [[_text_part(content)] if isinstance(content, str) else content for content in (first, second)]
    return [*parts[0], *parts[1]]


def _text_part(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _tool_messages(uses: Sequence[ToolUse]) -> list[dict[str, Any]]:
    calls = [
        {"id": use.call_id, "type": "function", "function": {"name": use.name, "arguments": use.arguments}}
        for use in uses
    ]
    results = [{"role": "tool", "tool_call_id": use.call_id, "content": use.result} for use in uses]
    return [{"role": "assistant", "tool_calls": calls}, *results]


def _message_tokens(message: Mapping[str, Any], count: CountTokens) -> int:
    content = message.get("content") or ""
    texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
    tokens = MESSAGE_TOKENS + sum(count(text) for text in texts)
    for call in message.get("tool_calls", ()):
        tokens += MESSAGE_TOKENS + count(call["id"])
        tokens += count(call["function"]["name"]) + count(call["function"]["arguments"])
    return tokens + (count(message["tool_call_id"]) if "tool_call_id" in message else 0)


def _user_entries(events: Iterable[Event], pictures_from: int | None) -> Iterable[Entry]:
    for event in events:
        if event.kind is not Kind.USER_TURN:
            continue
        text, remarked = _user_text(event.payload)
        text = without_note_marks(text)
        pictures: list[str] = []
        screens: set[str] = set()
        remarks: list[str] = []
        for picture in pictures_in(event):
            if pictures_from is not None and picture.number >= pictures_from:
                pictures.append(picture.key)
                screens |= {picture.key} if picture.is_screen else set()
            else:
                remarks.append(UNSEEN if pictures_from is None else NO_LONGER_SHOWN)
        text = " ".join([*remarks, text]).strip()
        if text or pictures:
            at = (event.event_us, event.seq)
            seqs, shown = frozenset({event.seq}), frozenset(screens)
            yield Entry(at, seqs, "user", text, tuple(pictures), shown, remarked=remarked)


def _user_text(payload: Mapping[str, Any]) -> tuple[str, bool]:
    """Return the words, with the perception of them in brackets, and whether there is any."""
    text = text_in(payload, "text").strip()
    rendered = text_in(payload, "rendered").strip()
    if not rendered and isinstance(payload.get("tokens"), Sequence):
        tokens = [_token(token) for token in payload["tokens"] if isinstance(token, Mapping)]
        speakers = {token.speaker_id for token in tokens} - {None}
        adds = len(speakers) > 1 or any(tags(token) for token in tokens)
        rendered = clean(render(tokens)) if adds else ""
    return (rendered, rendered != text) if rendered else (text, False)


def _token(stored: Mapping[str, Any]) -> EnrichedToken:
    """Return a token from its JSON; fields of an older or newer release are left out."""
    event_us, confidence = stored.get("event_us"), stored.get("mood_confidence")
    return EnrichedToken(
        event_us=event_us if type(event_us) is int else 0,
        text=text_in(stored, "text"),
        speaker_id=text_in(stored, "speaker_id") or None,
        prosody=_of_type(ProsodyPayload, stored.get("prosody")),
        visual=_of_type(VisionPayload, stored.get("visual")),
        truncated=bool(stored.get("truncated")),
        also=text_in(stored, "also") or None,
        mood_confidence=float(confidence) if isinstance(confidence, int | float) else None,
    )


def _of_type(made: type[_P], stored: object) -> _P | None:
    if not isinstance(stored, Mapping):
        return None
    given: dict[str, Any] = {"start_us": 0, "end_us": 0}
    others: tuple[type, ...] = (int, float) if made is ProsodyPayload else (str,)
    for each in fields(made):
        value = stored.get(each.name)
        counts = each.name in given or each.name == "faces"
        if isinstance(value, (int,) if counts else others) and not isinstance(value, bool):
            given[each.name] = value
    return made(**given)


def _reply_entries(events: Iterable[Event]) -> Iterable[Entry]:
    replies: dict[str, list[Event]] = {}
    for event in events:
        if event.kind in (Kind.HEARD, Kind.BOT_TURN):
            replies.setdefault(text_in(event.payload, "reply_id") or event.key, []).append(event)
    for reply in replies.values():
        # Checkpoints may be committed late. The last one heard counts, and a finished reply above all.
        last = max(reply, key=lambda event: (event.kind is Kind.BOT_TURN, event.event_us, event.seq))
        first = min(reply, key=lambda event: (event.event_us, event.seq))
        text, remarked = _reply_text(last)
        if text:
            seqs = frozenset(event.seq for event in reply)
            at = (first.event_us, first.seq)
            yield Entry(at, seqs, "assistant", text, remarked=remarked, turn=_turn(last))


def _reply_text(event: Event) -> tuple[str, bool]:
    """Return the part of a reply that was heard, and whether it has a remark."""
    heard = text_in(event.payload, "text").strip()
    is_human = event.payload.get("by") == BY_HUMAN and bool(heard)
    heard = f"{SAID_BY_HUMAN} {heard}" if is_human else heard
    if event.kind is Kind.BOT_TURN and not event.payload.get("truncated"):
        return heard, is_human
    unheard = _plain(text_in(event.payload, "unheard"))
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
            results[text_in(event.payload, "call_id")] = event
    group: list[Event] = []
    asked = {""}
    for event in known:
        if event.kind is Kind.TOOL_CALL:
            call_id = text_in(event.payload, "call_id")
            if call_id in asked or not text_in(event.payload, "name"):
                continue
            asked.add(call_id)
            if group and _turn(group[0]) != _turn(event):
                yield _tool_entry(group, results)
                group = []
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
        call_id = text_in(call.payload, "call_id")
        result = results.get(call_id)
        if result is not None:
            seqs.add(result.seq)
        is_open = is_open or result is None
        name = _NOT_IN_NAMES.sub("_", text_in(call.payload, "name"))[:64]
        given_id = call_id if _NAME.fullmatch(call_id) else f"call_{call.seq}"
        arguments = _arguments(call.payload.get("arguments"))
        uses.append(ToolUse(given_id, name, arguments, _result(result)))
    at = (calls[0].event_us, calls[0].seq)
    turn = _turn(calls[0])
    return Entry(at, frozenset(seqs), "tools", uses=tuple(uses), open=is_open, turn=turn)


def _turn(event: Event) -> int | None:
    """Return the seq of the person's turn that an event names."""
    turn = event.payload.get("turn")
    return turn if type(turn) is int else None


def _arguments(given: object) -> str:
    """Return the arguments as a JSON object, which providers require."""
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = {"text": given}
    if given is None:
        given = {}
    return as_shown(given if isinstance(given, Mapping) else {"value": given})


def _result(event: Event | None) -> str:
    if event is None:
        return as_shown({"outcome": "unknown", "result": UNKNOWN_RESULT})
    outcome, result = event.payload.get("outcome", "done"), event.payload.get("result")
    if outcome not in _OUTCOMES:
        outcome = "unknown"
    if outcome == "done":
        return clean(result) if isinstance(result, str) and result else as_shown(result)
    if outcome == "unknown" and result is None:
        result = UNKNOWN_RESULT
    # In the form in which the model received it at first.
    told = {"outcome": outcome, **(result if isinstance(result, Mapping) else {"result": result})}
    return as_shown({**told, "outcome": outcome})


def as_shown(value: object) -> str:
    """Return arguments or a result of a tool as the model reads them."""
    return clean(json.dumps(value, ensure_ascii=False, default=str))


def _plain(text: str) -> str:
    """Return the text on one line and without brackets, which would end a remark."""
    return " ".join(text.replace("[", "(").replace("]", ")").replace('"', "'").split())


def _sentences(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in split_sentences(line)]


def split_sentences(line: str) -> list[str]:
    """Return the sentences of a line. Scripts without spaces have none between sentences either."""
    return [part for part in re.split(r"(?<=[.!?])\s+|(?<=[。！？])\s*", line) if part.strip()]
