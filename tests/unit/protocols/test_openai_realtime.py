"""OpenAI's realtime protocol without a socket: events read and sent, and the order that clients rely on."""

import base64
import json
import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.realtime import RealtimeResponseUsage

from parley.core.call_choices import VoiceNames
from parley.core.client_rules import CLIENT_HEADING
from parley.core.passage_notes import CitedPassage
from parley.core.usage import Usage
from parley.models.tools.arguments import schema_faults
from parley.pipelines.call import client_prompt
from parley.protocols.client_mcp import (
    McpCallBegan,
    McpCallEnded,
    McpCallRuns,
    McpFault,
    McpListed,
    McpListingBegan,
)
from parley.protocols.client_protocol import (
    Action,
    Began,
    Begin,
    CallerStarted,
    CallerStopped,
    CancelResponse,
    Codec,
    CreateResponse,
    EndTurn,
    Happening,
    Message,
    OutOfBandAnswer,
    OutOfBandRequest,
    Pictures,
    PlaybackTruncated,
    ProtocolError,
    QueueUpdate,
    RecognisedWords,
    ReplyAudio,
    ReplyBegan,
    ReplyCites,
    ReplyOver,
    ReplyUsed,
    ReplyWords,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    ToolAnswer,
    ToolCalled,
    ToolChoice,
    ToolsAnswered,
    Trimmed,
    Typed,
)
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.protocols.openai_realtime.client_events import MOST_PICTURES
from tests.realtime_order import Order

HALF_SECOND = base64.b64encode(bytes(24_000)).decode()
OFF = {"audio": {"input": {"turn_detection": None}}}
TOOL = {"type": "function", "name": "order", "parameters": {"type": "object", "properties": {}}}


class Talk:
    """Conversation, and the state machine that checks all of it.

    Attributes:
        received: all messages to the client.
        done: actions that it requested.
    """

    def __init__(self, *, has_tracks: bool = False) -> None:
        self.protocol = OpenAIRealtime("m", schema_faults=schema_faults, has_tracks=has_tracks)
        self.order = Order()
        self.received: list[Message] = []
        self.done: list[Action] = []
        self.report(Began("session-1"))

    def report(self, *happenings: Happening) -> list[Message]:
        """Report happenings to the protocol; return the resulting messages."""
        received = [message for each in happenings for message in self.protocol.messages_for(each, 0)]
        self._take(received)
        return received

    def say(self, type_: str, **fields: Any) -> list[Action]:
        """Send a client's event; return the actions that it requests."""
        return self.text(json.dumps({"type": type_, **fields}))

    def text(self, text: str, *, refuse: type[Action] | None = None) -> list[Action]:
        """Send a client's event as raw text; an action of the type ``refuse`` is refused."""
        wanted: list[Action] = []
        try:
            for action in self.protocol.read(text, 0):
                if refuse is not None and isinstance(action, refuse):
                    raise ProtocolError("not here", code="not_supported")
                if isinstance(action, Send):
                    self._take([action.message])
                elif not isinstance(action, Begin):
                    wanted.append(action)
        except ProtocolError as refusal:
            self._take(self.protocol.refused(refusal))
        self.done += wanted
        return wanted

    def _take(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self.order.take(json.loads(json.dumps(message)))
        self.received += messages

    def error(self) -> dict[str, Any]:
        """Return the last message, which must be an error."""
        assert self.received[-1]["type"] == "error"
        return self.received[-1]["error"]

    def types(self, since: int = 0) -> list[str]:
        return [message["type"] for message in self.received[since:]]


def message(text: str, role: str = "user", **more: Any) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}], **more}


# Order of events


happenings = st.one_of(
    st.builds(CallerStarted, st.one_of(st.none(), st.integers(0, 10_000))),
    st.builds(CallerStopped, st.one_of(st.none(), st.integers(0, 10_000))),
    st.builds(RecognisedWords, st.sampled_from(["", "tea", "and milk"]), st.booleans()),
    st.builds(ReplyBegan, st.sampled_from("abc"), st.booleans()),
    st.just(ReplyAudio(b"\0\0", 20.0)),
    st.builds(ReplyWords, st.sampled_from(["", "yes", "of course"])),
    st.builds(ReplyOver, st.sampled_from("abc"), st.booleans()),
    st.builds(ToolCalled, st.sampled_from(["call_1", "call_2"]), st.just("order"), st.just('{"a": 1}')),
    st.builds(Trimmed, st.sampled_from("abc"), st.integers(0, 100)),
    st.just(QueueUpdate(2)),
    st.sampled_from(["call", "asked call", "end", "list"]),
)
events = st.one_of(
    st.sampled_from(
        [
            {"type": "input_audio_buffer.append", "audio": HALF_SECOND},
            {"type": "input_audio_buffer.commit"},
            {"type": "input_audio_buffer.clear"},
            {"type": "response.create"},
            {"type": "response.create", "response": {"instructions": "Greet."}},
            {"type": "response.cancel"},
            {"type": "output_audio_buffer.clear"},
            {"type": "session.update", "session": OFF},
            {"type": "session.update", "session": {"audio": {"input": {"turn_detection": {}}}}},
            {"type": "session.update", "session": {"output_modalities": ["text"]}},
            {"type": "session.update", "session": {"output_modalities": ["audio"], "tools": [TOOL]}},
            {"type": "conversation.item.create", "item": message("tea")},
            {"type": "conversation.item.create", "item": message("tea", "system")},
            {"type": "conversation.item.create", "item": message("tea", "assistant")},
            {"type": "conversation.item.create", "item": message("tea", id="mine")},
            {
                "type": "conversation.item.create",
                "item": {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_audio", "audio": HALF_SECOND}],
                },
            },
            {
                "type": "conversation.item.create",
                "item": {"type": "function_call_output", "call_id": "call_1", "output": "{}"},
            },
            {
                "type": "conversation.item.create",
                "item": {
                    "type": "mcp_approval_response",
                    "approval_request_id": "mcpr_0",
                    "approve": True,
                },
            },
            {"type": "conversation.item.delete", "item_id": "mine"},
            {"type": "conversation.item.retrieve", "item_id": "mine"},
            {"type": "conversation.item.truncate", "item_id": "mine", "audio_end_ms": 10},
        ]
    ),
    st.builds(lambda n: {"type": "conversation.item.delete", "number": n}, st.integers(0, 5)),
)


def mcp_happenings(step: str, place: int, calls: deque[str]) -> list[Happening]:
    """Return what happens with a client's MCP servers in a step; ``calls`` are those in progress."""
    if step == "list":
        return [McpListingBegan(f"mcpl_{place}", "shop"), McpListed(f"mcpl_{place}", ())]
    if step != "end":
        calls.append(f"mcp_{place}")
        approval_id = f"mcpr_{place}" if step == "asked call" else ""
        return [McpCallBegan(calls[-1], "shop", "look", "{}", approval_id)]
    if not calls:
        return []
    return [McpCallRuns(calls[0]), McpCallEnded(calls.popleft(), "over")]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.one_of(happenings, events), max_size=40),
    st.sampled_from([None, Speech, SessionUpdate, CancelResponse]),
    st.booleans(),
)
def test_whatever_happens_clients_are_told_in_the_order_that_they_rely_on(
    steps: list[Any], refuse: type[Action] | None, has_tracks: bool
):
    talk = Talk(has_tracks=has_tracks)
    calls: deque[str] = deque()
    for place, step in enumerate(steps):
        if isinstance(step, str):
            talk.report(*mcp_happenings(step, place, calls))
            continue
        if not isinstance(step, dict):
            talk.report(step)
            continue
        number = step.pop("number", None) if "number" in step else None
        if number is not None:
            known = list(talk.order.items)
            step = {**step, "item_id": known[number % len(known)] if known else "none"}
        talk.text(json.dumps(step), refuse=refuse)
    talk.report(SessionEnded("stopped"), *(McpCallEnded(each, fault=McpFault("over")) for each in calls))
    talk.order.over()


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=12), inner, max_size=4)
    ),
    max_leaves=20,
)
FIELDS = (
    "session", "item", "item_id", "audio", "audio_end_ms", "response", "response_id", "content", "role",
    "type", "id", "tools", "output_modalities", "input", "output", "format", "turn_detection", "call_id",
    "instructions", "name", "parameters", "tool_choice", "text", "image_url",
)  # fmt: skip
TYPES = (
    "session.update", "input_audio_buffer.append", "input_audio_buffer.commit", "conversation.item.create",
    "conversation.item.truncate", "conversation.item.retrieve", "conversation.item.delete", "response.create",
    "response.cancel", "message", "function_call_output", "function", "input_text", "input_audio",
    "input_image", "server_vad", "realtime", "user",
)  # fmt: skip
ODD = (None, True, False, 0, 1, -1, 2**70, -0.0, 0.5, 1e308, float("inf"), float("nan"), "")


def any_text(dice: random.Random) -> str:
    """Return up to a dozen characters of any plane."""
    ranges = ((0, 0x80), (0x80, 0xD800), (0xE000, 0x110000))
    return "".join(chr(dice.randrange(*dice.choice(ranges))) for _ in range(dice.randrange(12)))


def any_fields(dice: random.Random, most: int, depth: int = 0) -> dict[str, Any]:
    """Return an object in which most names are those of the protocol."""
    names = [
        dice.choice(FIELDS) if dice.random() < 0.9 else any_text(dice) for _ in range(dice.randint(0, most))
    ]
    fields = {name: any_value(dice, depth + 1) for name in names}
    # Of an unknown type little more is read.
    return fields | {"type": dice.choice(TYPES)} if dice.random() < 0.5 else fields


def any_value(dice: random.Random, depth: int = 0) -> Any:
    """Draw a JSON value that a client could put anywhere, many of its words those of the protocol."""
    if dice.random() < 0.2 + 0.1 * depth:
        kind = dice.randrange(4)
        if kind == 0:
            return dice.choice(TYPES)
        if kind == 1:
            return any_text(dice)
        return dice.choice(ODD) if kind == 2 else dice.randint(-10, 10_000)
    if dice.random() < 0.35:
        return [any_value(dice, depth + 1) for _ in range(dice.randint(0, 3))]
    return any_fields(dice, 5, depth)


# Drawn by hand: Hypothesis takes fifty times as long to draw messages of that width as the protocol to read
# them.
@pytest.mark.parametrize("seed", range(6))
def test_no_message_raises_anything_but_a_refusal(seed: int):
    dice = random.Random(seed)
    for _ in range(1_000):
        text = json.dumps({**any_fields(dice, 6), "type": dice.choice(TYPES)})
        try:
            Talk(has_tracks=seed % 2 == 1).text(text)
        except Exception as error:
            error.add_note(f"reading {text}")
            raise


@settings(max_examples=300, deadline=None)
@given(
    st.one_of(st.text(max_size=60), json_values.map(json.dumps), st.just("[" * 100_000), st.just("9" * 9_999))
)
def test_no_text_raises_anything_but_a_refusal(text: str):
    talk = Talk()
    talk.text(text)
    assert talk.types()[1:] in ([], ["error"])


# Sessions


def test_the_session_is_told_with_what_holds_and_not_with_what_was_wished():
    talk = Talk()
    talk.say(
        "session.update", session={"audio": {"output": {"voice": "marin", "speed": 2}}, "temperature": 1}
    )
    session = talk.received[-1]["session"]
    assert session["id"] == "session-1"
    assert session["audio"]["output"] == {
        "format": {"type": "audio/pcm", "rate": 24_000}, "voice": "parley", "speed": 1.0,
    }  # fmt: skip
    assert "temperature" not in session


VOICES = VoiceNames(("parley", "rms", "cedar"), {"ash": "rms"})


def voiced(name: object) -> dict[str, Any]:
    return {"type": "realtime", "audio": {"output": {"voice": name}}}


@pytest.mark.parametrize(
    ("name", "voice"),
    [
        ("rms", "rms"),
        ({"id": "rms"}, "rms"),
        # A voice of this deployment has the name of one of OpenAI's.
        ("cedar", "cedar"),
        ("ash", "rms"),
        # Clients send OpenAI's voices by default.
        ("marin", "parley"),
        (None, "parley"),
    ],
)
def test_a_voice_of_the_deployment_is_chosen_by_its_name_or_by_that_of_another_provider(
    name: object, voice: str
):
    talk = Talk()
    talk.protocol.permit(instructions=True, voices=VOICES)
    wanted = talk.say("session.update", session=voiced(name))
    assert wanted == ([] if voice == "parley" else [SessionUpdate(voice=voice)])
    assert talk.received[-1]["session"]["audio"]["output"]["voice"] == voice
    talk.report(ReplyBegan("a"))
    [created] = [each for each in talk.received if each["type"] == "response.created"]
    assert created["response"]["audio"]["output"]["voice"] == voice


@pytest.mark.parametrize("name", ["henry", "", 7, {"name": "rms"}, "x" * 300])
def test_an_unknown_voice_is_refused_with_the_known_ones(name: object):
    talk = Talk()
    talk.protocol.permit(instructions=True, voices=VOICES)
    assert talk.say("session.update", session={**voiced(name), "instructions": "Be kind."}) == []
    error = talk.error()
    assert (error["code"], error["param"]) == ("invalid_value", "session.audio.output.voice")
    if name == "henry":
        known = "'parley', 'rms', 'cedar', 'ash'"
        assert error["message"] == f"Invalid value: 'henry'. Supported values are: {known}."
    talk.say("session.update", session={})
    assert talk.received[-1]["session"]["instructions"] == ""


def test_a_voice_cannot_change_once_the_client_has_audio_of_it():
    talk = Talk()
    talk.protocol.permit(instructions=True, voices=VOICES)
    talk.report(ReplyBegan("a"))
    assert talk.say("session.update", session=voiced("rms")) == [SessionUpdate(voice="rms")]
    talk.report(ReplyAudio(b"\0\0", 20.0), ReplyOver("a"))
    assert talk.say("session.update", session={**voiced("cedar"), "instructions": "Be kind."}) == []
    error = talk.error()
    assert error["code"] == "cannot_update_voice"
    assert error["message"] == "Cannot update a conversation's voice if assistant audio is present."
    # Clients repeat their whole session with each change.
    assert talk.say("session.update", session={**voiced("ash"), "instructions": "Be kind."}) == [
        SessionUpdate(instructions="Be kind.")
    ]


def test_a_client_that_reads_may_change_the_voice_at_any_time():
    talk = Talk()
    talk.protocol.permit(instructions=True, voices=VOICES)
    talk.say("session.update", session={"output_modalities": ["text"]})
    talk.report(ReplyBegan("a"), ReplyAudio(b"\0\0", 20.0), ReplyOver("a"))
    assert talk.say("session.update", session=voiced("rms")) == [SessionUpdate(voice="rms")]


SPENT = Usage(prompt_tokens=30, cached_tokens=10, cache_write_tokens=2, completion_tokens=7)
SHOWN = {
    "total_tokens": 49,
    "input_tokens": 42,
    "output_tokens": 7,
    "input_token_details": {"cached_tokens": 10, "text_tokens": 42, "audio_tokens": 0},
    "output_token_details": {"text_tokens": 7, "audio_tokens": 0},
}


def ended(talk: Talk) -> list[Any]:
    """Return the usage of the responses that are over."""
    done = [each["response"]["usage"] for each in talk.received if each["type"] == "response.done"]
    assert all(
        each["response"]["usage"] is None for each in talk.received if each["type"] == "response.created"
    )
    for each in filter(None, done):
        assert RealtimeResponseUsage.model_validate(each).to_dict() == each
    return done


def test_a_response_ends_with_the_tokens_of_its_own_reply():
    talk = Talk()
    talk.report(
        ReplyUsed("a", SPENT),
        ReplyBegan("a"),
        # That of the next one is known while this one is spoken.
        ReplyUsed("b", SPENT + SPENT),
        ReplyOver("a"),
        ReplyBegan("b"),
        ReplyOver("b", was_cut=True),
        ReplyBegan("c"),
        ReplyOver("c"),
    )
    first, second, unknown = ended(talk)
    assert first == SHOWN and second["total_tokens"] == 98 and unknown is None


def test_calls_of_tools_and_a_text_outside_of_the_conversation_have_tokens_too():
    talk = Talk()
    talk.report(ToolCalled("call_1", "order", "{}", SPENT), ToolCalled("call_2", "order", "{}"))
    talk.report(McpCallBegan("mcp_1", "shop", "look", "{}", usage=SPENT))
    talk.say("response.create", response={"conversation": "none", "output_modalities": ["text"]})
    [request] = [each for each in talk.done if isinstance(each, OutOfBandRequest)]
    talk.report(OutOfBandAnswer(request.request_id, "Joy.", usage=SPENT))
    assert ended(talk) == [SHOWN, None, SHOWN, SHOWN]


def test_tokens_of_audio_are_shown_and_no_kinds_that_are_not_known():
    talk = Talk()
    heard = Usage(prompt_tokens=5, audio_prompt_tokens=20, audio_completion_tokens=50, completion_tokens=9)
    talk.report(ReplyUsed("a", heard), ReplyBegan("a"), ReplyOver("a"))
    talk.report(ReplyUsed("b", heard + Usage(cached_tokens=8)), ReplyBegan("b"), ReplyOver("b"))
    plain, cached = ended(talk)
    assert plain["input_token_details"] == {"cached_tokens": 0, "text_tokens": 5, "audio_tokens": 20}
    assert plain["output_token_details"] == {"text_tokens": 9, "audio_tokens": 50}
    assert cached["input_token_details"] == {"cached_tokens": 8} and cached["input_tokens"] == 33


def test_an_update_of_which_one_part_is_wrong_changes_nothing():
    talk = Talk()
    wanted = talk.say("session.update", session={"instructions": "Be kind.", "tools": [{"type": "mcp"}]})
    assert wanted == []
    assert talk.error()["param"] == "session.tools[0].server_label"
    assert talk.say("session.update", session={}) == []
    assert talk.received[-1]["session"]["instructions"] == ""


def test_an_update_that_this_deployment_cannot_follow_changes_nothing():
    talk = Talk()
    talk.text(json.dumps({"type": "session.update", "session": {"tools": [TOOL]}}), refuse=SessionUpdate)
    assert talk.error()["code"] == "not_supported"
    talk.say("session.update", session={})
    assert talk.received[-1]["session"]["tools"] == []


@pytest.mark.parametrize(
    ("session", "param"),
    [
        ({"type": "translation"}, "session.type"),
        (
            {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": "wild"}}}},
            "session.audio.input.turn_detection.eagerness",
        ),
        (
            {"audio": {"input": {"turn_detection": {"type": "semantic_vad", "eagerness": ["low"]}}}},
            "session.audio.input.turn_detection.eagerness",
        ),
        ({"output_modalities": ["audio", "text"]}, "session.output_modalities"),
        (
            {"audio": {"input": {"format": {"type": "audio/pcm", "rate": 16_000}}}},
            "session.audio.input.format.rate",
        ),
        ({"audio": {"output": {"format": "audio/opus"}}}, "session.audio.output.format"),
        (
            {"audio": {"input": {"turn_detection": {"type": "mine"}}}},
            "session.audio.input.turn_detection.type",
        ),
        (
            {"audio": {"input": {"turn_detection": {"interrupt_response": False}}}},
            "session.audio.input.turn_detection.interrupt_response",
        ),
        ({"tool_choice": "required"}, "session.tool_choice"),
        ({"tool_choice": "often"}, "session.tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "mcp", "server_label": "x"}}, "session.tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "cancel"}}, "session.tool_choice"),
        ({"tools": [{**TOOL, "name": "two words"}]}, "session.tools[0].name"),
        ({"tools": [TOOL, TOOL]}, "session.tools"),
        ({"tools": [{**TOOL, "parameters": {"type": "object", "oneOf": []}}]}, "session.tools[0].parameters"),
        ({"tools": [{**TOOL, "parameters": {"enum": [0] * 10_000}}]}, "session.tools"),
        ({"tools": [{**TOOL, "parameters": [{"pattern": "a"}] * 33}]}, "session.tools"),
        ({"instructions": "x" * 40_000}, "instructions"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(session: dict[str, Any], param: str):
    talk = Talk()
    talk.say("session.update", event_id="mine", session=session)
    assert (talk.error()["param"], talk.error()["event_id"]) == (param, "mine")


def test_tools_are_taken_back_while_the_client_chooses_none():
    talk = Talk()
    [update] = talk.say("session.update", session={"tools": [TOOL]})
    assert isinstance(update, SessionUpdate)
    assert [tool.name for tool in update.tools or ()] == ["order"]
    assert talk.say("session.update", session={"tool_choice": "none"}) == [SessionUpdate(tools=())]
    [update] = talk.say("session.update", session={"tool_choice": "auto"})
    assert isinstance(update, SessionUpdate)
    assert [tool.name for tool in update.tools or ()] == ["order"]


@pytest.mark.parametrize(("kind", "codec"), [("audio/pcmu", Codec.PCMU), ("audio/pcma", Codec.PCMA)])
def test_a_telephones_formats(kind: str, codec: Codec):
    talk = Talk()
    talk.say("session.update", session={"audio": {"input": {"format": kind}, "output": {"format": kind}}})
    assert talk.protocol.input_format.codec is talk.protocol.output_format.codec is codec
    assert talk.protocol.output_format.rate_hz == 8_000


# Turns


def test_where_speech_began_is_told_in_what_was_sent_and_never_after_it():
    talk = Talk()
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    [started] = talk.report(CallerStarted(120))
    assert started["audio_start_ms"] == 120
    stopped = talk.report(CallerStopped(9_000))[0]
    assert stopped["audio_end_ms"] == 500


def test_the_words_of_a_turn_come_one_by_one_and_then_as_one():
    talk = Talk()
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    talk.report(
        CallerStarted(0),
        RecognisedWords("tea", False),
        RecognisedWords("tea", True),
        RecognisedWords("and milk", True),
    )
    received = talk.report(CallerStopped(400))
    deltas = [m["delta"] for m in talk.received if m["type"].endswith("transcription.delta")]
    assert deltas == ["tea", " and milk"]
    assert received[-1]["transcript"] == "tea and milk"
    assert received[-1]["usage"] == {"type": "duration", "seconds": 0.4}


def test_a_commit_is_heard_before_the_client_is_told_that_it_was_taken():
    talk = Talk()
    talk.say("session.update", session=OFF)
    assert talk.say("input_audio_buffer.append", audio=HALF_SECOND) == []
    text = json.dumps({"type": "input_audio_buffer.commit"})
    talk.text(text, refuse=Speech)
    assert talk.types()[-1] == "error"
    # Nothing of it is lost.
    speech, end = talk.text(text)
    assert (speech, end) == (Speech(bytes(24_000), is_whole=True), EndTurn(is_quiet=True))
    assert talk.types()[-3:] == [
        "input_audio_buffer.committed", "conversation.item.added", "conversation.item.done",
    ]  # fmt: skip


def test_a_commit_of_next_to_nothing_is_refused():
    talk = Talk()
    talk.say("session.update", session=OFF)
    talk.say("input_audio_buffer.append", audio=base64.b64encode(bytes(2_400)).decode())
    talk.say("input_audio_buffer.commit")
    assert talk.error()["code"] == "input_audio_buffer_commit_empty"


def test_what_is_committed_while_the_bot_speaks_ends_what_it_says():
    talk = Talk()
    talk.say("session.update", session=OFF)
    talk.report(ReplyBegan("a"))
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    assert [type(action) for action in talk.say("input_audio_buffer.commit")] == [
        CancelResponse,
        Speech,
        EndTurn,
    ]


# Responses


def test_a_client_that_asks_for_an_answer_that_is_on_its_way_gets_one_and_not_two():
    talk = Talk()
    talk.say("session.update", session=OFF)
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    talk.say("input_audio_buffer.commit")
    assert talk.say("response.create") == []
    talk.report(RecognisedWords("tea", True), CallerStopped(), ReplyBegan("a"), ReplyOver("a"))
    assert talk.say("response.create") == [CreateResponse()]


def test_an_answer_that_begins_before_it_was_asked_for_is_the_one_that_was_asked_for():
    talk = Talk()
    talk.report(ToolCalled("call_1", "order", "{}"))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "{}"}
    assert talk.say("conversation.item.create", item=output) == [ToolAnswer("call_1", "{}")]
    talk.report(ReplyBegan("a"))
    assert talk.say("response.create") == []
    talk.say("response.create")
    assert talk.error()["code"] == "conversation_already_has_active_response"


def test_who_asks_for_the_answer_to_nothing_is_told_that_there_is_none():
    talk = Talk()
    talk.say("session.update", session=OFF)
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    talk.say("input_audio_buffer.commit")
    talk.say("response.create")
    talk.report(CallerStopped())
    assert talk.types()[-2:] == ["response.created", "response.done"]
    assert talk.received[-1]["response"]["output"] == []


def test_typed_words_wait_for_the_client_to_ask():
    talk = Talk()
    assert talk.say("conversation.item.create", item=message("One.")) == []
    assert talk.say("conversation.item.create", item=message("Two.")) == []
    assert talk.say("response.create") == [Typed("One.\nTwo.")]


def test_a_note_stands_alongside_the_instructions_and_not_in_their_place():
    talk = Talk()
    first = talk.say("conversation.item.create", item=message("Their name is Ada.", "system"))
    second = talk.say("conversation.item.create", item=message("They are in a hurry.", "system"))
    received = [action.notes for action in (*first, *second) if isinstance(action, SessionUpdate)]
    assert received == ["Their name is Ada.", "Their name is Ada.\n\nThey are in a hurry."]
    update = SessionUpdate(notes=received[-1])
    assert client_prompt(update, "Be a bank.") == f"Be a bank.\n\n{CLIENT_HEADING}\n\n{received[-1]}"
    assert client_prompt(SessionUpdate(instructions=""), "Be a bank.") == "Be a bank."


def test_instructions_that_are_not_followed_are_not_shown_as_if_they_were():
    talk = Talk()
    talk.protocol.permit(instructions=False)
    talk.say("session.update", session={"type": "realtime", "instructions": "Refund anything."})
    assert talk.received[-1]["session"]["instructions"] == ""


def test_what_no_one_has_answered_can_be_deleted_and_what_was_said_cannot():
    talk = Talk()
    talk.say("conversation.item.create", item=message("One.", id="one"))
    talk.say("conversation.item.create", item=message("Be kind.", "system", id="note"))
    talk.say("conversation.item.delete", item_id="one")
    assert talk.received[-1]["type"] == "conversation.item.deleted"
    assert talk.say("conversation.item.delete", item_id="note") == [SessionUpdate(notes="")]
    assert talk.say("response.create") == [CreateResponse()]
    talk.report(ReplyBegan("a"), ReplyOver("a"))
    [item_id] = [m["item"]["id"] for m in talk.received if m["type"] == "response.output_item.added"]
    talk.say("conversation.item.delete", item_id=item_id)
    assert talk.error()["code"] == "not_supported"


def test_cancelling_before_the_first_sound_ends_what_was_asked_for():
    talk = Talk()
    talk.say("conversation.item.create", item=message("One."))
    talk.say("response.create")
    assert talk.say("response.cancel") == [CancelResponse()]
    assert talk.received[-1]["response"]["status_details"]["reason"] == "client_cancelled"
    talk.say("response.cancel")
    assert talk.error()["code"] == "response_cancel_not_active"


@pytest.mark.parametrize(("cancels", "reason"), [(False, "turn_detected"), (True, "client_cancelled")])
def test_why_a_response_was_cut_off(cancels: bool, reason: str):
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyWords("yes"))
    if cancels:
        assert talk.say("response.cancel") == [CancelResponse()]
    done = talk.report(ReplyOver("a", was_cut=True))[-1]["response"]
    assert (done["status"], done["status_details"]["reason"]) == ("cancelled", reason)
    assert done["output"][0]["status"] == "incomplete"


def test_the_late_end_of_a_reply_does_not_end_the_next():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyBegan("b"))
    assert talk.report(ReplyOver("a")) == []
    assert talk.types()[-1] == "response.content_part.added"


def test_a_tool_that_is_called_while_the_bot_speaks_is_an_item_of_its_response():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyAudio(b"\0\0", 20), ToolCalled("call_1", "order", '{"a": 1}'))
    received = talk.report(ReplyAudio(b"\0\0", 20), ReplyOver("a"))
    assert received[0]["type"] == "response.output_audio.delta"
    assert [item["type"] for item in received[-1]["response"]["output"]] == ["message", "function_call"]


def test_who_reads_gets_a_reply_as_it_was_begun():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyWords("yes"))
    talk.say("session.update", session={"output_modalities": ["text"]})
    received = talk.report(ReplyAudio(b"\0\0", 20), ReplyWords("yes"), ReplyOver("a"), ReplyBegan("b"))
    assert "response.output_audio.delta" in [m["type"] for m in received]
    assert received[-1]["part"] == {"type": "text", "text": ""}
    assert talk.report(ReplyAudio(b"\0\0", 20)) == []


@pytest.mark.parametrize(
    ("audio_ms", "wanted"),
    [(0, [PlaybackTruncated("a", 0)]), (100, [PlaybackTruncated("a", 100)]), (121, [])],
)
def test_no_one_has_heard_more_than_was_sent(audio_ms: int, wanted: list[Action]):
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyAudio(bytes(4_800), 100))
    [item_id] = [m["item"]["id"] for m in talk.received if m["type"] == "response.output_item.added"]
    assert talk.say("conversation.item.truncate", item_id=item_id, audio_end_ms=audio_ms) == wanted
    if not wanted:
        assert talk.error()["param"] == "audio_end_ms"


def test_a_picture_is_read_from_its_own_bytes_and_from_nowhere_else():
    talk = Talk()
    picture = base64.b64encode(b"\x89PNG").decode()

    def shown(url: str) -> list[Action]:
        content = [{"type": "input_image", "image_url": url}]
        return talk.say(
            "conversation.item.create", item={"type": "message", "role": "user", "content": content}
        )

    assert shown(f"data:image/png;base64,{picture}") == [Pictures((b"\x89PNG",), are_shown=True)]
    assert picture not in json.dumps(talk.received)
    assert shown("https://example.org/cat.png") == []
    assert talk.error()["param"] == "item.content.image_url"


def test_an_item_has_only_so_many_pictures():
    talk = Talk()
    part = {"type": "input_image", "image_url": f"data:image/png;base64,{base64.b64encode(b'P').decode()}"}

    def shown(count: int) -> list[Action]:
        item = {"type": "message", "role": "user", "content": [part] * count}
        return talk.say("conversation.item.create", item=item)

    assert shown(MOST_PICTURES) == [Pictures((b"P",) * MOST_PICTURES, are_shown=True)]
    assert shown(MOST_PICTURES + 1) == []
    assert talk.error()["code"] == "too_large"


def test_a_conversation_that_fails_leaves_nothing_open():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyWords("yes"))
    talk.report(SessionEnded("error", "the engine is gone"))
    assert talk.error()["message"] == "the engine is gone"
    assert talk.protocol.goodbye("error") == (1011, "error")
    talk.order.over()


# LiveKit's order: created, item, part, deltas, item done, response done


def one_response() -> list[Message]:
    talk = Talk()
    since = len(talk.received)
    talk.report(ReplyBegan("a"), ReplyAudio(b"\0\0", 20), ReplyWords("yes"), ReplyOver("a"))
    return talk.received[since:]


def test_a_response_is_told_in_the_one_order_that_generations_are_built_in():
    assert [message["type"] for message in one_response()] == [
        "response.created",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
    ]


def test_a_response_has_the_metadata_of_its_request_from_its_first_event_on():
    talk = Talk()
    talk.say("response.create", response={"metadata": {"client_event_id": "mine"}})
    talk.report(ReplyBegan("a"), ReplyWords("yes"), ReplyOver("a"))
    talk.report(ReplyBegan("b"), ReplyOver("b"))
    shown = [each["response"]["metadata"] for each in talk.received if "response" in each]
    assert shown == [{"client_event_id": "mine"}] * 2 + [None] * 2


@pytest.mark.parametrize(
    ("response", "param"),
    [({"instructions": "Rhyme."}, "response.instructions"), ({"tools": [TOOL]}, "response.tools")],
)
def test_what_an_answer_on_its_own_cannot_have_is_refused(response: dict[str, Any], param: str):
    talk = Talk()
    talk.say("session.update", session=OFF)
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    talk.say("input_audio_buffer.commit")
    assert talk.say("response.create", response=response) == []
    assert (talk.error()["code"], talk.error()["param"]) == ("not_supported", param)
    # It can still be claimed.
    assert talk.say("response.create", response={"metadata": {"a": "b"}}) == []
    talk.report(RecognisedWords("tea", True), CallerStopped())
    [created, *_] = talk.report(ReplyBegan("a"))
    assert created["response"]["metadata"] == {"a": "b"}


def test_a_second_request_does_not_take_the_metadata_of_the_first():
    talk = Talk()
    talk.say("response.create", response={"metadata": {"number": "1"}})
    assert talk.say("response.create", response={"metadata": {"number": "2"}}) == []
    assert talk.error()["code"] == "conversation_already_has_active_response"
    talk.report(ReplyBegan("r1"), ReplyWords("one"), ReplyOver("r1", was_cut=False))
    talk.say("response.create", response={"metadata": {"number": "3"}})
    talk.report(ReplyBegan("r2"), ReplyWords("two"), ReplyOver("r2", was_cut=False))
    shown = [each["response"] for each in talk.received if each["type"] == "response.done"]
    assert [each["metadata"]["number"] for each in shown] == ["1", "3"]


def test_an_answer_that_a_typed_message_replaces_before_it_begins_ends_with_its_own_metadata():
    talk = Talk()
    for number in ("1", "2"):
        content = [{"type": "input_text", "text": f"message {number}"}]
        talk.say("conversation.item.create", item={"type": "message", "role": "user", "content": content})
        talk.say("response.create", response={"metadata": {"number": number}})
    talk.report(ReplyBegan("r2"), ReplyWords("two"), ReplyOver("r2", was_cut=False))
    shown = [each["response"] for each in talk.received if each["type"] == "response.done"]
    assert [(each["status"], each["metadata"]["number"]) for each in shown] == [
        ("cancelled", "1"),
        ("completed", "2"),
    ]


def test_metadata_and_passages_share_the_room():
    talk = Talk()
    given = {f"key_{number}": "x" for number in range(15)}
    talk.say("response.create", response={"metadata": given})
    passages = tuple(CitedPassage("hours.md", "", number) for number in range(3))
    talk.report(ReplyCites("a", passages), ReplyBegan("a"), ReplyOver("a"))
    shown = talk.received[-1]["response"]["metadata"]
    assert len(shown) == 16 and shown | given == shown


@pytest.mark.parametrize(
    "metadata", ["x", {"a": 1}, {"a": "x" * 513}, {"a" * 65: "x"}, {str(number): "" for number in range(17)}]
)
def test_metadata_beyond_the_protocols_bounds_is_refused(metadata: object):
    talk = Talk()
    assert talk.say("response.create", response={"metadata": metadata}) == []
    assert talk.error()["param"] == "response.metadata"


def test_what_tools_returned_is_answered_with_the_metadata_of_the_request_that_follows():
    talk = Talk()
    talk.report(ToolCalled("call_1", "order", "{}"))
    output = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
    assert talk.say("conversation.item.create", item=output) == [ToolAnswer("call_1", "done")]
    # LiveKit's session cancels what is on before it requests the answer. Nothing is.
    assert talk.say("response.cancel") == []
    assert talk.error()["message"].startswith("Cancellation failed")
    assert talk.say("response.create", response={"metadata": {"a": "b"}}) == [ToolsAnswered()]
    [created, *_] = talk.report(ReplyBegan("a"))
    assert created["response"]["metadata"] == {"a": "b"}


def responses(talk: Talk) -> list[tuple[str, Any]]:
    """Return status and metadata of each response's end."""
    ends = [each["response"] for each in talk.received if each["type"] == "response.done"]
    return [(end["status"], end["metadata"]) for end in ends]


def output(call_id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": "done"}


@pytest.mark.parametrize("ends", ["response.cancel", "output_audio_buffer.clear"])
def test_what_tools_returned_is_answered_after_the_speech_over_it_was_cancelled(ends: str):
    talk = Talk()
    talk.report(ReplyBegan("a"), ToolCalled("call_1", "order", "{}"))
    talk.say("conversation.item.create", item=output("call_1"))
    # LiveKit's order. The interruption ends the wait for the output, so the answer is a new one.
    assert talk.say(ends) == [CancelResponse(), ToolsAnswered()]
    assert talk.say("response.create", response={"metadata": {"a": "b"}}) == [CreateResponse()]
    talk.report(ReplyOver("a", was_cut=True), ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk) == [("cancelled", None), ("completed", {"a": "b"})]


def test_the_output_of_a_call_that_the_caller_interrupts_is_answered_on_request():
    talk = Talk()
    talk.report(ToolCalled("call_1", "order", "{}"), CallerStarted(0), RecognisedWords("no", True))
    talk.report(CallerStopped(500), ReplyBegan("a"), ReplyOver("a"))
    late = talk.say("conversation.item.create", item=output("call_1"))
    assert late == [ToolAnswer("call_1", "done"), ToolsAnswered()]
    # No answer comes on its own that the request could be for.
    assert talk.say("response.create", response={"metadata": {"n": "1"}}) == [CreateResponse()]
    talk.report(ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk)[-1] == ("completed", {"n": "1"})


def test_a_cancelled_response_ends_the_request_that_follows_it():
    talk = Talk()
    talk.report(ReplyBegan("a"), ToolCalled("call_1", "order", "{}"))
    talk.say("conversation.item.create", item=output("call_1"))
    assert talk.say("response.create", response={"metadata": {"n": "1"}}) == [ToolsAnswered()]
    assert talk.say("response.cancel") == [CancelResponse()]
    assert talk.say("response.create", response={"metadata": {"n": "2"}}) == [CreateResponse()]
    talk.report(ReplyOver("a", was_cut=True), ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk) == [("cancelled", None), ("cancelled", {"n": "1"}), ("completed", {"n": "2"})]


def test_a_request_after_a_cancel_does_not_claim_the_response_that_was_cancelled():
    talk = Talk()
    talk.report(ToolCalled("call_1", "order", "{}"))
    talk.say("conversation.item.create", item=output("call_1"))
    talk.report(ReplyBegan("a"))
    talk.say("response.cancel")
    assert talk.say("response.create", response={"metadata": {"n": "1"}}) == [CreateResponse()]
    talk.report(ReplyOver("a", was_cut=True), ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk) == [("completed", None), ("cancelled", None), ("completed", {"n": "1"})]


def test_audio_that_is_still_transcribed_is_answered_after_a_cancel():
    talk = Talk()
    talk.say("session.update", session=OFF)
    talk.report(ReplyBegan("a"))
    talk.say("input_audio_buffer.append", audio=HALF_SECOND)
    talk.say("input_audio_buffer.commit")
    assert talk.say("response.cancel") == [CancelResponse()]
    assert talk.say("response.create", response={"metadata": {"n": "1"}}) == []
    talk.report(ReplyOver("a", was_cut=True), RecognisedWords("tea", True), CallerStopped())
    talk.report(ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk) == [("cancelled", None), ("completed", {"n": "1"})]


def test_a_request_that_the_caller_speaks_over_before_its_first_sound_is_over():
    talk = Talk()
    talk.say("response.create", response={"metadata": {"a": "b"}})
    events = talk.report(CallerStarted(0))
    assert [each["type"] for each in events] == [
        "input_audio_buffer.speech_started",
        "response.created",
        "response.done",
    ]
    response = events[-1]["response"]
    assert (response["status"], response["metadata"]) == ("cancelled", {"a": "b"})
    assert response["status_details"]["reason"] == "turn_detected"
    # The next response belongs to what the caller said, and not to that request.
    talk.report(RecognisedWords("tea", True), CallerStopped(500))
    [created, *_] = talk.report(ReplyBegan("a"))
    assert created["response"]["metadata"] is None


def test_a_request_that_waits_for_the_active_response_ends_after_it_when_the_caller_speaks():
    talk = Talk()
    talk.report(ReplyBegan("a"), ToolCalled("call_1", "order", "{}"))
    talk.say("conversation.item.create", item=output("call_1"))
    talk.say("response.create", response={"metadata": {"n": "1"}})
    talk.report(CallerStarted(0), ReplyOver("a", was_cut=True), RecognisedWords("tea", True))
    talk.report(CallerStopped(100), ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk) == [("cancelled", None), ("cancelled", {"n": "1"}), ("completed", None)]
    [details] = {
        each["response"]["status_details"]["reason"]
        for each in talk.received
        if each["type"] == "response.done" and each["response"]["status"] == "cancelled"
    }
    assert details == "turn_detected"


def test_a_commit_over_a_requested_answer_that_has_not_begun_ends_the_request():
    talk = Talk()
    talk.say("session.update", session=OFF)
    for number in ("1", "2"):
        talk.say("input_audio_buffer.append", audio=HALF_SECOND)
        actions = talk.say("input_audio_buffer.commit")
        talk.report(RecognisedWords("tea", True), CallerStopped())
        talk.say("response.create", response={"metadata": {"n": number}})
    # The answer to the first one does not come after its end.
    assert [type(action) for action in actions] == [CancelResponse, Speech, EndTurn]
    talk.report(ReplyBegan("a"), ReplyOver("a"))
    assert responses(talk) == [("cancelled", {"n": "1"}), ("completed", {"n": "2"})]


def test_a_request_between_the_outputs_of_two_tools_is_for_the_answer_to_both():
    talk = Talk()
    talk.report(ToolCalled("call_1", "order", "{}"), ToolCalled("call_2", "order", "{}"))
    talk.say("conversation.item.create", item=output("call_1"))
    talk.say("response.create", response={"metadata": {"n": "1"}})
    talk.say("conversation.item.create", item=output("call_2"))
    talk.report(ReplyBegan("a"), ReplyOver("a"))
    assert responses(talk)[-1] == ("completed", {"n": "1"})


def test_each_of_two_typed_requests_over_the_bots_speech_has_an_end():
    talk = Talk()
    talk.report(ReplyBegan("a"))
    for number in ("1", "2"):
        talk.say("conversation.item.create", item=message(f"message {number}"))
        talk.say("response.create", response={"metadata": {"n": number}})
    talk.report(ReplyOver("a", was_cut=True), ReplyBegan("b"), ReplyOver("b"))
    assert responses(talk) == [("cancelled", None), ("cancelled", {"n": "1"}), ("completed", {"n": "2"})]


def test_a_filler_is_a_response_of_its_own_and_takes_no_request():
    talk = Talk()
    talk.say("response.create", response={"metadata": {"n": "1"}, "output_modalities": ["text"]})
    talk.report(ReplyBegan("f", is_filler=True), ReplyWords("One moment."), ReplyOver("f"))
    talk.report(ReplyBegan("a"), ReplyWords("yes"), ReplyOver("a"))
    assert responses(talk) == [("completed", None), ("completed", {"n": "1"})]
    filler, answer = (each["response"] for each in talk.received if each["type"] == "response.done")
    assert (filler["output_modalities"], answer["output_modalities"]) == (["audio"], ["text"])


def test_an_answer_that_is_requested_over_a_filler_has_the_metadata_of_its_request():
    talk = Talk()
    talk.report(CallerStarted(0), RecognisedWords("tea", True), CallerStopped(100))
    talk.report(ReplyBegan("f", is_filler=True))
    assert talk.say("response.create", response={"metadata": {"n": "1"}}) == []
    talk.report(ReplyOver("f"), ReplyBegan("a"), ReplyOver("a"))
    assert responses(talk) == [("completed", None), ("completed", {"n": "1"})]


def test_a_tool_that_is_called_over_a_filler_ends_the_request():
    talk = Talk()
    talk.say("response.create", response={"metadata": {"n": "1"}})
    talk.report(ReplyBegan("f", is_filler=True), ToolCalled("call_1", "order", "{}"))
    talk.say("conversation.item.create", item=output("call_1"))
    assert talk.say("response.create", response={"metadata": {"n": "2"}}) == [ToolsAnswered()]
    talk.report(ReplyOver("f"), ReplyBegan("a"), ReplyOver("a"))
    assert responses(talk) == [("completed", None), ("completed", {"n": "1"}), ("completed", {"n": "2"})]


def test_a_response_has_the_modality_of_its_request():
    talk = Talk()
    talk.say("response.create", response={"output_modalities": ["text"]})
    talk.report(ReplyBegan("a"), ReplyAudio(b"\0\0", 20.0), ReplyWords("yes"), ReplyOver("a"))
    assert "response.output_audio.delta" not in talk.types()
    assert talk.received[-1]["response"]["output_modalities"] == ["text"]
    assert talk.received[-1]["response"]["output"][0]["content"] == [{"type": "output_text", "text": "yes"}]
    talk.report(ReplyBegan("b"), ReplyAudio(b"\0\0", 20.0), ReplyOver("b"))
    assert talk.types().count("response.output_audio.delta") == 1


def test_tools_of_one_response():
    talk = Talk()
    [request] = talk.say("response.create", response={"tools": [TOOL]})
    assert isinstance(request, CreateResponse) and [tool.name for tool in request.tools or ()] == ["order"]
    talk = Talk()
    talk.say("session.update", session={"tools": [TOOL]})
    assert talk.say("response.create", response={"tool_choice": "none"}) == [CreateResponse(tools=())]
    talk.report(ReplyBegan("a"), ReplyOver("a"))
    assert talk.say("response.create") == [CreateResponse()]


def test_a_call_that_the_session_requires():
    talk = Talk()
    [update] = talk.say("session.update", session={"tools": [TOOL], "tool_choice": "required"})
    assert isinstance(update, SessionUpdate) and update.choice == ToolChoice(is_required=True)
    assert talk.received[-1]["session"]["tool_choice"] == "required"
    named = {"type": "function", "name": "order"}
    [update] = talk.say("session.update", session={"tool_choice": named})
    assert update == SessionUpdate(choice=ToolChoice(is_required=True, name="order"))
    assert talk.received[-1]["session"]["tool_choice"] == named
    # The tools cannot go while one of them has to be called.
    talk.say("session.update", session={"tools": []})
    assert talk.error()["param"] == "session.tool_choice"
    assert talk.say("session.update", session={"tool_choice": "auto"}) == [SessionUpdate(choice=ToolChoice())]
    assert talk.received[-1]["session"]["tool_choice"] == "auto"


def test_a_call_that_one_response_requires():
    talk = Talk()
    talk.say("response.create", response={"tool_choice": "required"})
    assert talk.error()["param"] == "response.tool_choice"
    talk.say("response.create", response={"tools": [TOOL], "tool_choice": {"type": "function", "name": "x"}})
    assert talk.error()["param"] == "response.tool_choice"
    required = {"tools": [TOOL], "tool_choice": "required"}
    [request] = talk.say("response.create", response=required)
    assert isinstance(request, CreateResponse) and request.choice == ToolChoice(is_required=True)
    talk = Talk()
    talk.say("session.update", session=required)
    [request] = talk.say("response.create", response={"tool_choice": "auto"})
    assert request == CreateResponse(choice=ToolChoice())
    talk = Talk()
    talk.say("session.update", session={"tools": [TOOL], "tool_choice": "none"})
    [request] = talk.say("response.create", response={"tool_choice": {"type": "function", "name": "order"}})
    assert isinstance(request, CreateResponse) and request.choice == ToolChoice(
        is_required=True, name="order"
    )
    assert [tool.name for tool in request.tools or ()] == ["order"]
    talk = Talk()
    aside = {"conversation": "none", "output_modalities": ["text"], "tool_choice": "required"}
    talk.say("session.update", session={"tools": [TOOL]})
    talk.say("response.create", response=aside)
    assert talk.error()["param"] == "response.tool_choice"


def test_an_answer_outside_of_the_conversation_is_no_part_of_it():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyWords("yes"))
    asked = {
        "conversation": "none",
        "output_modalities": ["text"],
        "metadata": {"topic": "mood"},
        "instructions": "Name the mood.",
        "input": [message("I am glad.")],
        "max_output_tokens": 5,
    }
    [request] = talk.say("response.create", response=asked)
    assert isinstance(request, OutOfBandRequest)
    assert (request.instructions, request.lines) == ("Name the mood.", (("user", "I am glad."),))
    assert request.most_tokens == 5
    talk.report(ReplyWords("of course"), ReplyOver("a"))
    events = talk.report(OutOfBandAnswer(request.request_id, "Joy."))
    done = events[-1]["response"]
    assert (done["id"], done["conversation_id"], done["status"]) == (request.request_id, None, "completed")
    assert done["metadata"] == {"topic": "mood"}
    assert done["output"][0]["content"] == [{"type": "output_text", "text": "Joy."}]
    assert not any("conversation.item" in each["type"] for each in events)
    # It is sent once.
    assert talk.report(OutOfBandAnswer(request.request_id, "Joy.")) == []
    talk.order.over()


def test_an_answer_outside_of_the_conversation_that_fails():
    talk = Talk()
    [request] = talk.say("response.create", response={"conversation": "none", "output_modalities": ["text"]})
    assert isinstance(request, OutOfBandRequest) and request.lines is None
    [done] = talk.report(OutOfBandAnswer(request.request_id, fault="it is away"))
    assert (done["response"]["status"], done["response"]["output"]) == ("failed", [])
    assert done["response"]["status_details"]["error"]["message"] == "it is away"


def test_answers_outside_of_the_conversation_are_few_at_a_time():
    talk = Talk()
    asked = {"conversation": "none", "output_modalities": ["text"]}
    for _ in range(4):
        assert len(talk.say("response.create", response=asked)) == 1
    assert talk.say("response.create", response=asked) == []
    assert talk.error()["code"] == "rate_limit_exceeded"
    # One that is refused takes no place.
    talk = Talk()
    for _ in range(6):
        talk.text(json.dumps({"type": "response.create", "response": asked}), refuse=OutOfBandRequest)
    assert len(talk.say("response.create", response=asked)) == 1


def test_the_input_of_an_answer_outside_of_the_conversation_is_bounded():
    talk = Talk()
    part = {"type": "input_text", "text": "x" * 30_000}
    body = {"type": "message", "role": "user", "content": [part] * 4, "id": "long"}
    talk.say("conversation.item.create", item=body)
    asked = {"conversation": "none", "output_modalities": ["text"]}
    reference = {"type": "item_reference", "id": "long"}
    [request] = talk.say("response.create", response={**asked, "input": [reference]})
    assert isinstance(request, OutOfBandRequest) and request.most_tokens == 1_024
    assert talk.say("response.create", response={**asked, "input": [reference] * 2}) == []
    assert (talk.error()["code"], talk.error()["param"]) == ("too_large", "response.input")
    many = {**body, "content": [{"type": "input_text", "text": ""}] * 65, "id": "many"}
    assert talk.say("response.create", response={**asked, "input": [many]}) == []
    assert talk.error()["code"] == "too_large"


@pytest.mark.parametrize(("count", "chars"), [(65, 1), (5, 30_000)])
def test_an_item_of_too_many_parts_is_refused(count: int, chars: int):
    talk = Talk()
    content = [{"type": "input_text", "text": "x" * chars}] * count
    talk.say("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    assert (talk.error()["code"], talk.error()["param"]) == ("too_large", "item.content")


@pytest.mark.parametrize(
    ("response", "param"),
    [
        ({"conversation": "some"}, "response.conversation"),
        ({"conversation": "none"}, "response.output_modalities"),
        ({"conversation": "none", "output_modalities": ["text"], "tools": [TOOL]}, "response.tools"),
        ({"input": []}, "response.input"),
        ({"conversation": "none", "output_modalities": ["text"], "input": ["x"]}, "response.input"),
        ({"conversation": "none", "output_modalities": ["text"], "input": [{"type": "y"}]}, "response.input"),
        ({"max_output_tokens": 0}, "response.max_output_tokens"),
        ({"prompt": {"id": "x"}}, "response.prompt"),
    ],
)
def test_what_no_response_can_have_is_refused_by_name(response: dict[str, Any], param: str):
    talk = Talk()
    assert talk.say("response.create", response=response) == []
    assert talk.error()["param"] == param


def test_an_item_that_was_truncated_has_the_words_that_were_heard():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyAudio(b"\0" * 48_000, 1_000.0), ReplyWords("one two three"))
    talk.report(ReplyOver("a", was_cut=True))
    item_id = talk.received[-1]["response"]["output"][0]["id"]
    [truncated] = talk.say("conversation.item.truncate", item_id=item_id, content_index=0, audio_end_ms=400)
    assert truncated == PlaybackTruncated("a", 400)
    talk.report(Trimmed("a", 400, "one two"))
    talk.say("conversation.item.retrieve", item_id=item_id)
    assert talk.received[-1]["item"]["content"] == [{"type": "output_audio", "transcript": "one two"}]


def test_an_item_with_a_known_id_is_refused_with_the_code_that_clients_expect():
    talk = Talk()
    talk.say("conversation.item.create", item=message("tea", id="mine"))
    talk.say("conversation.item.create", item=message("tea", id="mine"))
    assert talk.error()["code"] == "item_create_duplicate_item_id"


def test_a_response_names_its_passages_where_the_protocol_has_room_for_them():
    talk = Talk()
    long = CitedPassage("d" * 600, "", 12)
    talk.report(ReplyCites("a", (CitedPassage("fees", "Cards", 3), *[long] * 20)))
    talk.report(ReplyBegan("a"), ReplyWords("Twelve euros."), ReplyOver("a"))
    talk.report(ReplyBegan("b"), ReplyWords("Goodbye."), ReplyOver("b"))
    first, second = (m["response"] for m in talk.received if m["type"] == "response.done")
    assert first["metadata"]["passage_1"] == "fees: Cards (3)"
    assert len(first["metadata"]) == 16 and len(first["metadata"]["passage_2"]) == 512
    assert second["metadata"] is None


def test_a_response_names_its_passages_when_those_of_the_next_are_known_before_its_end():
    talk = Talk()
    talk.report(ReplyCites("a", (CitedPassage("fees", "Cards", 3),)), ReplyBegan("a"), ReplyWords("Twelve."))
    talk.report(ReplyCites("b", (CitedPassage("hours", "", 1),)), ReplyOver("a"), ReplyBegan("b"))
    talk.report(ReplyOver("b"))
    named = [metadata["passage_1"] for _, metadata in responses(talk)]
    assert named == ["fees: Cards (3)", "hours (1)"]


@pytest.mark.parametrize("left_out", range(11))
def test_the_machine_that_watches_the_order_misses_whatever_is_left_out(left_out: int):
    order = Order()
    order.take({"type": "session.created", "event_id": "first"})
    received = one_response()
    # A missing sound cannot be detected.
    if received[left_out]["type"] == "response.output_audio.delta":
        return
    with pytest.raises((AssertionError, KeyError)):
        for place, each in enumerate(received):
            if place != left_out:
                order.take(each)
        order.over()
