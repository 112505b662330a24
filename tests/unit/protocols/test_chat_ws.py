"""Requests of the MiniCPM-o server's turn-based sockets."""

import json
import random
from typing import Any

import pytest

from parley.protocols.chat_ws import (
    ChatParts,
    ChatRequest,
    CompleteTurn,
    Generate,
    PictureItem,
    Prefill,
    Stop,
    chat_request,
    given,
    streaming_message,
)
from parley.protocols.client_protocol import ProtocolError, written

# Requests as the page builds them.
PAGE: dict[str, Any] = {
    "messages": [
        {
            "role": "system",
            "content": [{"type": "text", "text": "Be kind."}, {"type": "audio", "data": "AAAA"}],
        },
        {"role": "user", "content": "Hello."},
        {"role": "assistant", "content": "Hi there."},
        {
            "role": "user",
            "content": [
                {"type": "audio", "data": "AAAA", "name": "audio", "duration": 1.5},
                {"type": "text", "text": "What did I say?"},
            ],
        },
    ],
    "streaming": True,
    "generation": {"max_new_tokens": 256, "do_sample": True, "length_penalty": 1.1},
    "image": {"max_slice_nums": 1},
    "omni_mode": False,
    "tts": {"enabled": True, "mode": "audio_assistant", "ref_audio_data": "AAAA"},
    "use_tts_template": True,
}


def asked(**changes: Any) -> ChatParts:
    request = chat_request(json.dumps({**PAGE, **changes}))
    assert isinstance(request, ChatRequest)
    return given(request)


def test_a_request_of_the_page_is_sorted_into_instruction_dialogue_and_wishes():
    found = asked()
    assert found.instruction == "Be kind."
    assert [(part.role, part.pieces) for part in found.parts] == [
        ("user", ("Hello.",)),
        ("assistant", ("Hi there.",)),
        ("user", (("messages[3].content[0]", "AAAA"), "What did I say?")),
    ]
    assert (found.speaks, found.streaming, found.is_whole) == (True, True, True)
    assert [each.split(":")[0] for each in found.unused] == ["messages[0].content[1]", "tts.ref_audio_data"]


def test_what_is_left_out_is_as_that_server_has_it():
    found = given(ChatRequest.model_validate({"messages": [{"role": "user", "content": "Hello."}]}))
    assert (found.speaks, found.streaming, found.instruction) == (False, True, None)


def test_one_message_alone_comes_after_what_the_session_has():
    alone = [{"role": "user", "content": "Hello."}]
    assert not asked(messages=alone).is_whole
    assert asked(messages=alone, history="whole").is_whole
    assert not asked(history="new").is_whole


@pytest.mark.parametrize("kind", ["image", "video"])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_what_no_engine_here_understands_is_refused_by_the_name_of_the_item(kind: str, role: str):
    item = [{"type": "text", "text": "Look:"}, {"type": kind, "data": "AAAA"}]
    messages = [{"role": role, "content": item}, {"role": "user", "content": "Well?"}]
    with pytest.raises(ProtocolError, match=r"messages\[0\]\.content\[1\]") as refused:
        asked(messages=messages)
    assert refused.value.param == "messages[0].content[1]"


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "Hello."}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "smell", "data": ""}]}]}, "messages.0.content"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "audio", "data": "", "sample_rate": 8_000}]}
                ]
            },
            "sample_rate",
        ),
        ({"streaming": "perhaps"}, "streaming"),
        ({"generation": {"max_new_tokens": 0}}, "generation.max_new_tokens"),
    ],
)
def test_what_is_not_as_it_should_be_is_refused_by_name(changes: dict[str, Any], named: str):
    with pytest.raises(ProtocolError, match=named):
        asked(**changes)


def test_messages_of_the_streaming_socket_are_told_apart():
    prefill = streaming_message(json.dumps({"type": "prefill", **PAGE, "ref_audio_base64": "AAAA"}))
    assert isinstance(prefill, Prefill)
    assert "ref_audio_base64: the bot speaks with the deployment's voice" in given(prefill).unused
    speaking = streaming_message('{"type": "generate", "generate_audio": true}')
    assert isinstance(speaking, Generate) and speaking.speaks
    plain = streaming_message('{"type": "generate"}')
    assert isinstance(plain, Generate) and plain.speaks is None
    assert isinstance(streaming_message('{"type": "complete_turn"}'), CompleteTurn)
    assert isinstance(streaming_message('{"type": "stop"}'), Stop)
    assert isinstance(chat_request('{"type": "stop"}'), Stop)
    with pytest.raises(ProtocolError):
        streaming_message('{"type": "dance"}')


def anything(random_: random.Random, depth: int = 0) -> Any:
    words = "messages role user system assistant content type text audio image data tts enabled".split()
    kind = random_.randrange(9 if depth < 5 else 6)
    if kind < 3:
        return random_.choice([*words, ""])
    if kind == 3:
        return random_.choice([0, -1, 10**400, 1.5e308, True, None, 16_000])
    if kind == 4:
        return "".join(chr(random_.randrange(1, 0x11FFF)) for _ in range(random_.randrange(5)))
    if kind == 5:
        return written(random_.randbytes(random_.randrange(9)))
    if kind == 6:
        return [anything(random_, depth + 1) for _ in range(random_.randrange(4))]
    return {random_.choice(words): anything(random_, depth + 1) for _ in range(random_.randrange(6))}


@pytest.mark.parametrize("seed", range(60))
def test_no_message_raises_anything_but_a_refusal(seed: int):
    random_ = random.Random(seed)
    for _ in range(100):
        message = anything(random_)
        if random_.random() < 0.5:
            message = {
                "type": random_.choice(["prefill", "generate", "stop", "close", "complete_turn"]),
                "messages": [
                    {"role": random_.choice(["user", "system", "assistant"]), "content": anything(random_)}
                    for _ in range(random_.randrange(1, 3))
                ],
            }
        text = json.dumps(message) if random_.random() < 0.9 else repr(message)
        for read in (chat_request, streaming_message):
            try:
                request = read(text)
                if isinstance(request, ChatRequest):
                    assert given(request).parts[-1].role == "user"
            except ProtocolError as refusal:
                assert str(refusal)


def test_a_model_that_sees_takes_pictures_of_the_user_alone():
    looks = [{"type": "image", "data": "AAAA"}, {"type": "text", "text": "Well?"}]
    request = chat_request(json.dumps({"messages": [{"role": "user", "content": looks}]}))
    assert isinstance(request, ChatRequest)
    [part] = given(request, sees=True).parts
    assert part.pieces == ("Well?",)
    assert part.pictures == (PictureItem("messages[0].content[0]", "AAAA"),)
    with pytest.raises(ProtocolError, match="pictures are not understood"):
        given(request)
    messages = [{"role": "assistant", "content": looks}, {"role": "user", "content": "Well?"}]
    answered = chat_request(json.dumps({"messages": messages}))
    assert isinstance(answered, ChatRequest)
    with pytest.raises(ProtocolError, match=r"messages\[0\]\.content\[0\]"):
        given(answered, sees=True)
