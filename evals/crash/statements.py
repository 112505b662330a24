"""What the server said, or showed by what it did, to be durable; and whether it is. Pure.

A ``Statement`` is one event that somebody outside of the server may rely on:

* ``200`` and ``turn`` of a typed turn: the person's turn. ``done``: the answer.
* a request that an endpoint got: the call of the tool, which is committed before it runs.
* a result that the model was shown: that result, which is committed before the model goes on.
* ``bot-llm-started`` in a call: the model is asked, so what was understood of the person is committed.
* ``heard`` in a call says what has happened already, and is committed in order behind it: it may be relied on
  once something that was sent after it is acknowledged. One that the kill came too soon for is counted apart.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evals.latency.client import Message

TEXT, WEBRTC = "text", "webrtc"
# Of the rows, the one whose statements tell no key: two of the same words are two turns.
SPOKEN = "spoken"


@dataclass(frozen=True, slots=True)
class Statement:
    """One event that must be in the timeline.

    Attributes:
        said_by: how it was said.
        row: statements of one row were made in the order of their commits.
        kind: of the event.
        fields: what the event, or its payload, must hold.
    """

    said_by: str
    row: str
    kind: str
    fields: Mapping[str, object]

    def is_of(self, event: Mapping[str, Any]) -> bool:
        """Whether the event is the one that was stated."""
        held = {**event["payload"], **{name: event[name] for name in ("seq", "key")}}
        return event["kind"] == self.kind and all(
            _same(held.get(name), value) for name, value in self.fields.items()
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Statements beside a timeline.

    Attributes:
        stated: how many.
        lost: what is not there.
        out_of_order: what lies before something that was stated earlier.
    """

    stated: int
    lost: tuple[Statement, ...]
    out_of_order: tuple[Statement, ...]


def judge(statements: Sequence[Statement], events: Sequence[Mapping[str, Any]]) -> Verdict:
    """Find each statement's own event.

    Args:
        statements: in the order in which they were made.
        events: of the timeline, in any order.
    """
    by_seq = sorted(events, key=lambda event: event["seq"])
    taken: set[int] = set()
    newest: dict[str, int] = {}
    lost: list[Statement] = []
    out_of_order: list[Statement] = []
    for statement in statements:
        free = (event for event in by_seq if statement.row != SPOKEN or event["seq"] not in taken)
        seq = next((event["seq"] for event in free if statement.is_of(event)), None)
        if seq is None:
            lost.append(statement)
            continue
        taken.add(seq)
        if seq < newest.get(statement.row, 0):
            out_of_order.append(statement)
        newest[statement.row] = max(seq, newest.get(statement.row, 0))
    return Verdict(len(statements), tuple(lost), tuple(out_of_order))


def doubles(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is in a timeline more than once: turns, whole answers, tool calls and their results."""
    found = Counter(identity for event in events for identity in _identity(event))
    return [identity for identity, count in found.items() for _ in range(count - 1)]


def gaps(events: Sequence[Mapping[str, Any]]) -> int:
    """How many numbers are missing, or given twice."""
    seqs = [event["seq"] for event in events]
    return len(set(range(1, max(seqs, default=0) + 1)) - set(seqs)) + len(seqs) - len(set(seqs))


def spoken_turns(messages: Sequence[Message]) -> list[Statement]:
    """What a call's messages say to be committed of the person's words."""
    stated: list[Statement] = []
    words: list[str] = []
    for message in messages:
        body = message.body
        if body.get("type") == "user-transcription" and body["data"].get("final"):
            words.append(str(body["data"]["text"]))
        elif body.get("type") == "bot-llm-started" and words:
            fields = {"text": " ".join(words), "transport": WEBRTC}
            stated.append(Statement("bot-llm-started", SPOKEN, "user_turn", fields))
            words = []
    return stated


def heard_replies(messages: Sequence[Message], *, settled_us: int) -> tuple[list[Statement], list[Statement]]:
    """What a call's messages say of replies: what may be relied on, and what the kill came too soon for.

    Args:
        messages: of the call.
        settled_us: what arrived before is settled, on the client's clock.
    """
    settled: list[Statement] = []
    open_: list[Statement] = []
    for message in messages:
        data = message.body.get("data")
        if message.body.get("type") != "server-message" or not isinstance(data, Mapping):
            continue
        if data.get("kind") == "heard" and data["in_context"]:
            fields = {name: data[name] for name in ("reply_id", "text", "truncated", "unheard")}
            statement = Statement("heard", "heard", "bot_turn", fields)
            (settled if message.at_us < settled_us else open_).append(statement)
    return settled, open_


def _same(held: object, stated: object) -> bool:
    if isinstance(held, str) and isinstance(stated, str):
        # Recognised words may come in several lines.
        return held.split() == stated.split()
    return held == stated


def _identity(event: Mapping[str, Any]) -> Iterator[str]:
    """What makes the event the same as another one; nothing where repeating is no fault."""
    payload, kind = event["payload"], event["kind"]
    match kind:
        case "user_turn" if payload["transport"] == TEXT:
            # Every text that is typed here is typed once.
            yield f"{kind} {payload['text']}"
        case "user_turn":
            yield f"{kind} {payload['text']} at {event['event_us']}"
        case "bot_turn" if payload.get("transport") == TEXT:
            if not payload["truncated"]:
                # ``reply.<key>`` and, for another attempt, ``reply.<key>.2``.
                yield f"{kind} {'.'.join(payload['reply_id'].split('.')[:2])}"
        case "bot_turn":
            yield f"{kind} {payload['reply_id']}"
        case "tool_call":
            yield f"{kind} {payload['name']} {json.dumps(payload['arguments'], sort_keys=True)}"
        case "tool_result":
            yield f"{kind} {payload['call_id']}"
        case "joined" | "left":
            yield f"{kind} {payload['call_id']}"
