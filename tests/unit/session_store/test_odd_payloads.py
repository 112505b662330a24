"""A timeline with payloads that no release writes: from an import, a foreign tool, a fault."""

import asyncio
import json
import math
import random
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from loguru import logger

from parley.core.prompt_notes import parse_notes
from parley.language import find_language
from parley.models.tools.arguments import argument_faults
from parley.processors.dialogue.durable_tools import DurableTools, open_calls
from parley.session_store.compaction import Compactor, covered_until
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.memory import fold_state, odd_events
from parley.session_store.prompt import prompt_view, turns_of
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time
from tests.fakes.timeline import Timeline
from tests.fakes.tools import FakeTool

NAMES = (
    *("text", "transport", "tokens", "rendered", "reply_id", "truncated", "unheard", "call_id", "name"),
    *("arguments", "idempotent", "effect_key", "result", "outcome", "speaker", "intent", "slots", "turn"),
    *("until_seq", "state", "supersedes", "value", "seq", "event_us", "prosody", "visual", "anger", "ref"),
    *("start_us", "end_us", "speaker_id", "certainty", "gesture"),
)
TEXTS = (
    "my name is Ada",
    "done",
    "c1",
    "\ud800",
    "key.1",
    "",
    "no, it's 5",
    "[",
    "]",
    "\0",
    "\u2028",
    "é",
    "文",
    "😀",
)
# Fields that are read of an event of a kind, in which odd values can do harm.
READ = {
    Kind.USER_TURN: ("text", "tokens", "rendered", "supersedes"),
    Kind.HEARD: ("text", "reply_id", "turn"),
    Kind.BOT_TURN: ("text", "reply_id", "truncated", "unheard", "turn", "supersedes"),
    Kind.TOOL_CALL: ("call_id", "name", "arguments", "idempotent", "effect_key", "turn"),
    Kind.TOOL_RESULT: ("call_id", "name", "result", "outcome"),
    Kind.STATE: ("speaker", "intent", "language", "slots", "supersedes"),
    Kind.SUMMARY: ("text", "until_seq", "state"),
}
MAX_CHARS = 12
MAX_LEAVES = 8


class Odd:
    """Payloads of any JSON, from a generator of its own.

    Hypothesis takes a tenth of a second for such a timeline, this generator a thousandth.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def timeline(self) -> list[tuple[Kind, dict[str, Any], int]]:
        chance = self._chance
        kinds = list(Kind)
        drawn = [chance.choice(kinds) for _ in range(chance.randint(0, 12))]
        return [(kind, self.payload(kind), chance.randint(0, 9)) for kind in drawn]

    def payload(self, kind: Kind) -> dict[str, Any]:
        chance = self._chance
        names = [name for name in READ.get(kind, ()) if chance.random() < 0.7]
        names += chance.sample(NAMES, k=chance.randint(0, 3))
        return {name: self._value(MAX_LEAVES) for name in names}

    def _value(self, leaves: int) -> Any:
        chance = self._chance
        # Half of the values are leaves, so that a name often has a value that is nearly right.
        if leaves < 2 or chance.random() < 0.5:
            return self._leaf()
        if chance.random() < 0.5:
            return [self._value(leaves // 3) for _ in range(chance.randint(0, 3))]
        names = [
            chance.choice(NAMES) if chance.random() < 0.7 else self._text()
            for _ in range(chance.randint(0, 5))
        ]
        return {name: self._value(leaves // 3) for name in names}

    def _leaf(self) -> Any:
        match self._chance.randrange(8):
            case 0:
                return None
            case 1:
                return self._chance.random() < 0.5
            case 2 | 3:
                return self._number()
            case _:
                return self._text()

    def _number(self) -> float:
        chance = self._chance
        match chance.randrange(4):
            case 0:
                return chance.randint(-(2**70), 2**70)
            case 1:
                # Any double that is a number: NaN and infinities are not JSON.
                [number] = struct.unpack("d", chance.randbytes(8))
                return number if math.isfinite(number) else 0.0
            case _:
                # Possible values of a seq, a key or a time here.
                return chance.randint(-3, 30)

    def _text(self) -> str:
        chance = self._chance
        if chance.random() < 0.5:
            return chance.choice(TEXTS)
        # Characters from every plane, lone surrogates among them, and from the usual ranges.
        ends = (0x80, 0x3000, 0x110000)
        return "".join(
            chr(chance.randrange(chance.choice(ends))) for _ in range(chance.randint(0, MAX_CHARS))
        )


def line_of(script: list[tuple[Kind, dict[str, Any], int]]) -> list[Event]:
    line = Timeline()
    for kind, payload, at_us in script:
        line.add(kind, payload, at_us=at_us)
    return line.events


# A seed's size means nothing: there is nothing to shrink.
@settings(max_examples=300, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.integers(0, 2**32 - 1), st.integers(0, 12), st.integers(1, 500))
def test_no_payload_breaks_what_a_session_is_read_with(seed: int, turn: int, budget_tokens: int) -> None:
    events = line_of(Odd(seed).timeline())
    # In the form in which they come out of the store.
    events = [
        Event(
            e.session_id, e.seq, e.epoch, e.kind, json.loads(json.dumps(e.payload)), e.event_us, e.arrival_us,
            e.source, e.speaker, e.final, e.confidence, e.key,
        )
        for e in events
    ]  # fmt: skip
    for view in (
        prompt_view(events, budget_tokens=budget_tokens),
        prompt_view(events, budget_tokens=budget_tokens, turn=turn),
    ):
        # A provider gets JSON in UTF-8, with names and ids that it accepts, and arguments that are objects.
        json.dumps(list(view.messages), ensure_ascii=False, allow_nan=False).encode()
        for message in view.messages:
            assert isinstance(message.get("content", ""), str)
            for call in message.get("tool_calls", ()):
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["function"]["name"])
                assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", call["id"])
                assert isinstance(json.loads(call["function"]["arguments"]), dict)
    state = fold_state(events)
    assert all(isinstance(value, str) for value in state.values.values())
    assert all(isinstance(part, str | None) for part in (state.speaker, state.intent))
    covered_until(turns_of(events), keep_turns=1)
    Compactor(budget_tokens=1).due_until(events)
    for call in open_calls(events):
        assert isinstance(call.digest, str) and isinstance(call.is_whole, bool)
        argument_faults(FakeTool().parameters, call.arguments)
    assert set(odd_events(events)) <= {event.seq for event in events}


def test_what_is_wrong_in_a_payload_is_left_out_and_the_rest_is_there() -> None:
    line = Timeline()
    line.add(Kind.USER_TURN, {"transport": "text"})
    line.said("my name is Ada")
    line.add(Kind.SUMMARY, {"text": "Nobody knows of what."})
    line.add(Kind.SUMMARY, {"text": "Of everything.", "until_seq": "2"})
    line.add(Kind.SUMMARY, {"text": "Of what is to come.", "until_seq": 10**9})
    line.add(Kind.STATE, {"slots": {"tier": ["gold"], "home": "Berlin"}, "intent": 5, "speaker": {}})
    line.add(Kind.STATE, {"slots": "none"})
    line.add(Kind.TOOL_CALL, {"name": "order", "arguments": {}})
    line.add(Kind.TOOL_CALL, {"call_id": "a b", "name": "look up", "arguments": "{not json"})
    line.answered("nobody called", 7)
    line.add(Kind.BOT_TURN, {"reply_id": ["r"], "text": None, "truncated": True, "unheard": 3})
    line.replied("Hello Ada.")
    view = prompt_view(line.events, budget_tokens=5_000, facts=find_language("en").facts)
    assert [message["role"] for message in view.messages] == ["user", "assistant", "tool", "assistant"]
    notes, words = parse_notes(view.messages[0]["content"])
    assert words == "my name is Ada"
    assert dict(notes.facts) == {"name": "Ada", "home": "Berlin"}
    assert (notes.summary, notes.intent, notes.speaker, view.until_seq) == ("", None, None, 0)
    [call] = view.messages[1]["tool_calls"]
    assert call == {
        "id": "call_9",
        "type": "function",
        "function": {"name": "look_up", "arguments": '{"text": "{not json"}'},
    }
    assert json.loads(view.messages[2]["content"])["outcome"] == "unknown"
    assert odd_events(line.events) == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]


def test_what_a_release_writes_is_not_odd() -> None:
    line = Timeline()
    line.said("my name is Ada")
    line.state(slots={"tier": "gold"}, intent="a lost card")
    line.called("c1", item="tea")
    line.answered("c1", {"number": 7})
    line.heard("r", "It is")
    line.replied("It is ordered.", reply_id="r")
    line.summary("They met.", 2, state={"slots": {}})
    assert odd_events(line.events) == []


ODD = (
    (Kind.USER_TURN, {"transport": "text"}),
    (Kind.SUMMARY, {"text": "Of what?", "state": {"slots": {}}}),
    (Kind.TOOL_CALL, {"name": "order", "arguments": {"item": "tea"}}),
    (Kind.TOOL_CALL, {"call_id": ["c"], "name": "order", "arguments": {}, "idempotent": True}),
    (Kind.TOOL_CALL, {"call_id": "c1", "name": "order", "arguments": "{", "idempotent": True}),
    (Kind.TOOL_CALL, {"call_id": "c2", "name": "order", "idempotent": True}),
    (Kind.TOOL_RESULT, {"call_id": "c9", "outcome": "splendid"}),
    (Kind.STATE, {"slots": 3, "intent": []}),
)


@pytest.mark.parametrize("last", range(len(ODD)), ids=lambda at: f"{ODD[at][0].value} {at}")
def test_a_session_with_odd_events_opens_with_one_warning_and_goes_on(tmp_path: Path, last: int) -> None:
    warnings: list[str] = []

    async def scenario() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
        conversations = Conversations(store, compactor=Compactor())
        session_id = (await store.create()).id
        writer = await store.claim(session_id)
        # A good turn, and the odd ones up to this one.
        for kind, payload in ((Kind.USER_TURN, {"text": "Hello.", "transport": "text"}), *ODD[: last + 1]):
            now_us = writer.clock.now_us()
            await writer.append(Draft(kind, payload, now_us, now_us, "test"))
        sink = logger.add(lambda message: warnings.append(message.record["message"]), level="WARNING")
        try:
            tool = FakeTool(idempotent=True)
            async with conversations.open(session_id) as conversation:
                tools = DurableTools([tool], conversation)
                await tools.recover()
                await conversation.user_turn("Order tea.", transport="text")
                assert (await tools.call("order", {"item": "tea"})) == {"number": 7}
                shown = conversation.view().messages
                assert "Order tea." in json.dumps(shown)
                assert len(tool.effects) == 1
        finally:
            logger.remove(sink)
        await asyncio.sleep(1)
        await conversations.close()
        await store.close()

    virtual_time.run(scenario())
    assert len([line for line in warnings if "not as any release writes them" in line]) == 1
