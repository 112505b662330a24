"""Durable events by the server's statements or actions, and their check against a timeline. Pure.

A ``Statement`` is one event on which a client of the server may rely:

* ``200`` and ``turn`` of a typed turn: the user's turn. ``done``: the answer.
* A request to an endpoint: the call of the tool, which is committed before it runs.
* A result that the model was shown: that result, which is committed before the model goes on.
* ``bot-llm-started`` in a call: the model is asked, so the recognised words of the caller are committed.
* ``heard`` in a call reports a past event, which is committed after the report, in order. It may be relied on
  once something that was sent after it is acknowledged. One that the kill came too soon for is counted
  separately.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from parley.evals.harness.webrtc_caller import Message

TEXT, WEBRTC = "text", "webrtc"
# The row whose statements have no key: two of the same words are two turns.
SPOKEN = "spoken"


@dataclass(frozen=True, slots=True)
class Statement:
    """An event that must be in the timeline.

    Attributes:
        said_by: origin of the statement.
        row: statements of one row were made in the order of their commits.
        kind: of the event.
        fields: required values of the event, or of its payload.
    """

    said_by: str
    row: str
    kind: str
    fields: Mapping[str, object]

    def is_of(self, event: Mapping[str, Any]) -> bool:
        """Return whether the event is the one that was stated."""
        held = {**event["payload"], **{name: event[name] for name in ("seq", "key")}}
        return event["kind"] == self.kind and all(
            _same(held.get(name), value) for name, value in self.fields.items()
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of the comparison of statements with a timeline.

    Attributes:
        stated: number of statements.
        lost: statements without an event.
        out_of_order: statements whose event lies before one that was stated earlier.
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
    """Return the items that are in a timeline again: turns, whole answers, tool calls and their results."""
    found = Counter(identity for event in events for identity in _identity(event))
    return [identity for identity, count in found.items() for _ in range(count - 1)]


def gaps(events: Sequence[Mapping[str, Any]]) -> int:
    """Return the number of sequence numbers that are missing, or given twice."""
    seqs = [event["seq"] for event in events]
    return len(set(range(1, max(seqs, default=0) + 1)) - set(seqs)) + len(seqs) - len(set(seqs))


def spoken_turns(messages: Sequence[Message]) -> list[Statement]:
    """Return the statements of a call's messages about the caller's words."""
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
    """Return the statements of a call's messages about replies: the settled ones, and those too close to the
    kill.

    Args:
        messages: of the call.
        settled_us: messages that arrived before are settled, on the client's clock.
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
    """Yield the identity of an event; nothing when its repetition is no fault."""
    payload, kind = event["payload"], event["kind"]
    match kind:
        case "user_turn" if payload["transport"] == TEXT:
            # Every typed text is typed once here.
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
