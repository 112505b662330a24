"""The half duplex of the MiniCPM-o server, message by message."""

import base64
import json
import random
from typing import Any

import numpy as np
import pytest

from parley.core.passage_notes import CitedPassage
from parley.protocols.client_protocol import (
    Action,
    Began,
    Begin,
    CallerStarted,
    CallerStopped,
    CallerVoiceChanged,
    EndAfter,
    Happening,
    LeaveSession,
    Pictures,
    ProtocolError,
    QueueUpdate,
    RecognisedWords,
    ReplyAudio,
    ReplyBegan,
    ReplyCites,
    ReplyOver,
    ReplyWords,
    Send,
    SessionEnded,
    SessionUpdate,
    Speech,
    written,
)
from parley.protocols.half_duplex import MOST_AUDIO_BYTES, HalfDuplex

HALF_SECOND = np.linspace(-0.5, 0.5, 8_000, dtype="<f4").tobytes()
# Messages as its page sends them.
PREPARE: dict[str, Any] = {
    "type": "prepare",
    "system_content": [
        {"type": "text", "text": "Answer naturally."},
        {"type": "audio", "data": "AAAA", "name": "voice.wav", "duration": 3.2},
        {"type": "text", "text": "You are an assistant."},
    ],
    "config": {
        "vad": {
            "threshold": 0.8,
            "min_speech_duration_ms": 128,
            "min_silence_duration_ms": 800,
            "speech_pad_ms": 30,
        },
        "generation": {"max_new_tokens": 256, "length_penalty": 1.1, "temperature": None},
        "tts": {"enabled": True},
        "session": {"timeout_s": 180},
    },
}
AUDIO = {"type": "audio_chunk", "audio_base64": written(HALF_SECOND)}


def read(protocol: HalfDuplex, message: object, at_ms: int = 0) -> list[Action]:
    return list(protocol.read(json.dumps(message), at_ms))


def messages_of(protocol: HalfDuplex, *happenings: Happening, at_ms: int = 0) -> list[dict[str, Any]]:
    return [message for each in happenings for message in protocol.messages_for(each, at_ms)]


def prepared(**config: Any) -> HalfDuplex:
    protocol = HalfDuplex(longest_s=600)
    messages_of(protocol, Began("a-session"))
    read(protocol, {**PREPARE, "config": {**PREPARE["config"], **config}})
    return protocol


def sent(actions: list[Action]) -> list[dict[str, Any]]:
    return [action.message for action in actions if isinstance(action, Send)]


def test_prepare_says_who_the_bot_is_and_is_answered_with_the_servers_session():
    protocol = HalfDuplex(longest_s=600)
    assert messages_of(protocol, Began("a-session")) == [{"type": "queue_done"}]
    actions = read(protocol, PREPARE)
    assert actions[0] == SessionUpdate(instructions="Answer naturally.\n\nYou are an assistant.")
    assert Begin() in actions
    assert EndAfter(180_000) in actions
    [answer] = sent(actions)
    assert (answer["type"], answer["session_id"], answer["timeout_s"]) == ("prepared", "a-session", 180)
    assert [each.split(":")[0] for each in answer["unused"]] == [
        "system_content[1]",
        "config.vad",
        "config.generation",
    ]


def test_a_client_whose_call_is_recorded_reads_the_id_of_the_recording():
    protocol = HalfDuplex(longest_s=600)
    messages_of(protocol, Began("a-session", {"recording_session_id": "a-session"}))
    [answer] = sent(read(protocol, PREPARE))
    assert answer["recording_session_id"] == "a-session"
    unrecorded = HalfDuplex(longest_s=600)
    messages_of(unrecorded, Began("a-session"))
    assert "recording_session_id" not in sent(read(unrecorded, PREPARE))[0]


def test_a_client_that_prepares_while_it_waits_is_answered_when_the_session_is_there():
    protocol = HalfDuplex(longest_s=600)
    assert messages_of(protocol, QueueUpdate(2, 12.5, "q_1", 3)) == [
        {
            "type": "queued",
            "position": 2,
            "estimated_wait_s": 12.5,
            "ticket_id": "q_1",
            "queue_length": 3,
        }
    ]
    assert sent(read(protocol, PREPARE)) == []
    assert messages_of(protocol, QueueUpdate(1, 4.0, "q_1", 1)) == [
        {"type": "queue_update", "position": 1, "estimated_wait_s": 4.0, "queue_length": 1}
    ]
    received = messages_of(protocol, QueueUpdate(0), Began("a-session"))
    assert [message["type"] for message in received] == ["queue_done", "prepared"]
    assert received[1]["session_id"] == "a-session"


def test_the_deployment_bounds_the_length_of_a_conversation():
    protocol = HalfDuplex(longest_s=60)
    messages_of(protocol, Began("a-session"))
    actions = read(protocol, PREPARE)
    assert EndAfter(60_000) in actions
    assert sent(actions)[0]["timeout_s"] == 60


def test_audio_is_heard_as_float32_of_16_khz():
    protocol = prepared()
    assert (protocol.input_format.rate_hz, protocol.input_format.codec.value) == (16_000, "float32")
    assert read(protocol, AUDIO) == [Speech(HALF_SECOND)]


def test_audio_before_prepare_is_refused_by_name():
    with pytest.raises(ProtocolError, match="prepare comes first"):
        read(HalfDuplex(longest_s=600), AUDIO)


def test_a_turn_is_told_in_the_order_that_its_page_relies_on():
    protocol = prepared()
    received = messages_of(protocol, CallerStarted(), CallerVoiceChanged(True, 100), at_ms=1_100)
    received += messages_of(protocol, CallerVoiceChanged(False, 300), at_ms=2_500)
    received += messages_of(
        protocol, RecognisedWords("what is", False), RecognisedWords("what is it", True), at_ms=2_700
    )
    received += messages_of(protocol, CallerStopped(), at_ms=2_800)
    received += messages_of(protocol, ReplyBegan("r"), at_ms=3_000)
    for word in ("It", "is", "ten."):
        received += messages_of(
            protocol, ReplyWords(word), ReplyAudio(HALF_SECOND[:1_920], 20.0), at_ms=3_020
        )
    received += messages_of(protocol, ReplyOver("r"), at_ms=4_000)
    kinds = [message["type"] for message in received]
    assert kinds == ["vad_state", "vad_state", "generating", "chunk", "chunk", "chunk", "chunk", "turn_done"]
    assert [message["speaking"] for message in received[:2]] == [True, False]
    # From 1,000 to 2,200 ms of the call.
    assert received[2] == {"type": "generating", "speech_duration_ms": 1_200}
    chunks = received[3:-1]
    assert [chunk["chunk_index"] for chunk in chunks] == [0, 1, 2, 3]
    assert "".join(chunk["text_delta"] or "" for chunk in chunks) == "It is ten."
    assert [chunk["is_final"] for chunk in chunks] == [False, False, False, True]
    assert chunks[0]["audio_data"] == written(HALF_SECOND[:1_920])
    assert (chunks[0]["audio_sample_rate"], chunks[0]["duration_ms"]) == (24_000, 20.0)
    assert received[-1] == {"type": "turn_done", "turn_index": 1, "text": "It is ten."}


def test_the_end_of_a_reply_names_its_own_passages():
    protocol = prepared()
    fees, hours = CitedPassage("fees", "Cards", 1), CitedPassage("guide", "Hours", 2)
    # The first reply is never heard.
    messages_of(protocol, ReplyCites("a", (fees,)))
    ends = []
    for reply_id, passages in (("b", (fees, hours)), ("c", None)):
        if passages:
            messages_of(protocol, ReplyCites(reply_id, passages))
        *_, end = messages_of(protocol, ReplyBegan(reply_id), ReplyWords("Yes."), ReplyOver(reply_id))
        ends.append(end.get("passages"))
    assert ends == [[fees.as_json(), hours.as_json()], None]


def test_nothing_is_heard_while_the_bot_speaks_and_everything_after_it():
    protocol = prepared()
    messages_of(protocol, ReplyBegan("r"))
    assert read(protocol, AUDIO) == []
    assert messages_of(protocol, CallerVoiceChanged(True)) == []
    messages_of(protocol, ReplyOver("r"))
    assert read(protocol, AUDIO) == [Speech(HALF_SECOND)]


def test_a_turn_in_which_nothing_was_understood_does_not_mute_the_page():
    protocol = prepared()
    received = messages_of(
        protocol, CallerStarted(), CallerVoiceChanged(True), CallerVoiceChanged(False), CallerStopped()
    )
    assert [message["type"] for message in received] == ["vad_state", "vad_state"]


def test_words_that_come_after_the_end_of_the_turn_count_for_it():
    protocol = prepared()
    messages_of(
        protocol, CallerStarted(), CallerVoiceChanged(True), CallerVoiceChanged(False), CallerStopped()
    )
    assert [message["type"] for message in messages_of(protocol, RecognisedWords("yes", True))] == [
        "generating"
    ]


def test_what_the_bot_says_by_itself_mutes_the_page_too():
    received = messages_of(prepared(), ReplyBegan("r"), ReplyWords("Hello."), ReplyOver("r"))
    assert [message["type"] for message in received] == ["generating", "chunk", "turn_done"]


def test_without_a_voice_there_are_words_and_no_audio():
    protocol = prepared(tts={"enabled": False})
    received = messages_of(
        protocol, ReplyBegan("r"), ReplyWords("Ten"), ReplyAudio(HALF_SECOND, 20.0), ReplyOver("r")
    )
    chunks = [message for message in received if message["type"] == "chunk"]
    assert [chunk["text_delta"] for chunk in chunks] == ["Ten", None]
    assert all(chunk["audio_data"] is None for chunk in chunks)


@pytest.mark.parametrize("speaks", [False, True], ids=["while it listens", "while it speaks"])
def test_stop_ends_the_conversation_at_any_moment(speaks: bool):
    protocol = prepared()
    if speaks:
        messages_of(protocol, ReplyBegan("r"))
    assert read(protocol, {"type": "stop"}) == [LeaveSession(1000, "stopped")]


def test_a_timeout_counts_from_prepare_and_closes_in_good_order():
    protocol = HalfDuplex(longest_s=600)
    messages_of(protocol, Began("a-session"))
    read(protocol, PREPARE, at_ms=2_000)
    assert messages_of(protocol, SessionEnded("timeout"), at_ms=182_000) == [
        {"type": "timeout", "elapsed_s": 180.0}
    ]
    assert protocol.goodbye("timeout") == (1000, "timeout")


def test_a_failure_in_the_middle_of_a_reply_ends_the_turn_and_says_why():
    protocol = prepared()
    messages_of(protocol, ReplyBegan("r"), ReplyWords("Well"))
    received = messages_of(protocol, SessionEnded("error", "the session store is away"))
    assert [message["type"] for message in received] == ["chunk", "turn_done", "error"]
    assert received[-1]["error"] == "the session store is away"
    assert protocol.goodbye("error")[0] == 1011


@pytest.mark.parametrize(
    "message",
    [
        {"type": "video_frame", "frame": ""},
        {"type": "prepare", "config": {"session": {"timeout_s": -1}}},
        {"type": "prepare", "config": {"session": {"timeout_s": "soon"}}},
        {"type": "prepare", "system_content": "You are a pirate."},
        {"type": "prepare", "system_content": [{"type": "image", "data": "AAAA"}]},
        {"type": "prepare", "config": {"vad": {"threshold": 7}}},
    ],
)
def test_what_cannot_be_taken_is_refused_and_changes_nothing(message: dict[str, Any]):
    protocol = HalfDuplex(longest_s=600)
    messages_of(protocol, Began("a-session"))
    with pytest.raises(ProtocolError):
        read(protocol, message)
    assert sent(read(protocol, PREPARE))


def test_a_message_that_would_take_long_to_parse_is_not_parsed():
    with pytest.raises(ProtocolError) as refused:
        HalfDuplex(longest_s=600).read("[" + "0," * 1_400_000 + "0]", 0)
    assert refused.value.code == "too_large"


def test_a_second_prepare_is_refused():
    with pytest.raises(ProtocolError, match="already"):
        read(prepared(), PREPARE)


@pytest.mark.parametrize(
    "audio",
    [
        None,
        7,
        "not base64!",
        written(b"abc"),
        written(np.array([np.nan], "<f4").tobytes()),
        written(bytes(MOST_AUDIO_BYTES + 4)),
    ],
)
def test_audio_that_is_none_is_refused(audio: object):
    with pytest.raises(ProtocolError):
        read(prepared(), {"type": "audio_chunk", "audio_base64": audio})


def anything(random_: random.Random, depth: int = 0) -> Any:
    """Return some JSON, with the protocol's own words in it more often than not."""
    words = [
        *"prepare audio_chunk stop type system_content config session timeout_s tts vad text".split(),
        "",
    ]
    kind = random_.randrange(8 if depth < 4 else 6)
    if kind < 2:
        return random_.choice(words)
    if kind == 2:
        return random_.choice([0, -1, 10**400, 1.5, True, None])
    if kind == 3:
        return "".join(chr(random_.randrange(1, 0xD7FF)) for _ in range(random_.randrange(5)))
    if kind < 6:
        return written(random_.randbytes(random_.randrange(9)))
    if kind == 6:
        return [anything(random_, depth + 1) for _ in range(random_.randrange(4))]
    return {random_.choice(words): anything(random_, depth + 1) for _ in range(random_.randrange(5))}


@pytest.mark.parametrize("seed", range(40))
def test_no_message_raises_anything_but_a_refusal(seed: int):
    random_ = random.Random(seed)
    protocol = HalfDuplex(longest_s=600)
    messages_of(protocol, Began("a-session"))
    for _ in range(100):
        message = anything(random_)
        if isinstance(message, dict) and random_.random() < 0.7:
            message["type"] = random_.choice(["prepare", "audio_chunk", "stop"])
        text = json.dumps(message) if random_.random() < 0.9 else repr(message)
        try:
            actions = protocol.read(text, 0)
        except ProtocolError as refusal:
            [answer] = protocol.refused(refusal)
            assert answer["type"] == "error" and answer["error"]
        else:
            assert all(isinstance(action, Action) for action in actions)


def test_pictures_of_a_chunk_are_shown_until_the_deployment_refuses_them():
    picture = base64.b64encode(b"a picture").decode()
    chunk = {**AUDIO, "frame_base64_list": [picture]}
    assert not any(isinstance(action, Pictures) for action in read(prepared(), chunk))
    protocol = HalfDuplex(longest_s=600, sees=True)
    messages_of(protocol, Began("a-session"))
    read(protocol, PREPARE)
    speech, shown = read(protocol, chunk)
    assert isinstance(speech, Speech) and shown == Pictures((b"a picture",))
    with pytest.raises(ProtocolError, match="at most 4 pictures"):
        read(protocol, {**AUDIO, "frame_base64_list": [picture] * 5})
    # While the bot speaks its camera still sees.
    messages_of(protocol, ReplyBegan("r"))
    assert read(protocol, chunk) == [Pictures((b"a picture",))]
    protocol.refused(ProtocolError("no pictures", code="not_supported", param="input_image"))
    assert read(protocol, chunk) == []
