"""Messages of engines as bytes of a WebSocket and of a socket: decoded unchanged, or refused."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.core.errors import PeerError
from parley.runtime.engine_hosting.codec import (
    FRAME,
    MOST_FACTS_BYTES,
    FrameReader,
    decode,
    encode,
    encode_frame,
)
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

FACTS = st.dictionaries(
    st.text().filter(lambda name: name not in ("type", "number")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each), max_leaves=5
    ),
    max_size=4,
)
MESSAGES = st.builds(
    EngineMessage, st.sampled_from(MessageType), st.integers(0, 2**40), FACTS, st.binary(max_size=200)
)


@given(MESSAGES)
def test_what_was_sent_arrives(message: EngineMessage) -> None:
    sent = encode(message)
    assert decode(sent) == message
    assert isinstance(sent, bytes) is bool(message.payload)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), MESSAGES), max_size=4), st.integers(1, 100))
def test_frames_arrive_whole_however_they_are_cut(sent: list[tuple[int, EngineMessage]], size: int) -> None:
    data = b"".join(encode_frame(message, stream) for stream, message in sent)
    reader = FrameReader()
    assert [one for at in range(0, len(data), size) for one in reader.feed(data[at : at + size])] == sent


def test_the_layout_that_workers_of_other_machines_rely_on() -> None:
    assert encode(EngineMessage(MessageType.DONE, 7)) == '{"type": "done", "number": 7}'
    text = '{"type": "prefill", "number": 1, "samples": 1}'
    sent = encode(EngineMessage(MessageType.PREFILL, 1, {"samples": 1}, b"abcd"))
    assert sent == struct.pack("<I", len(text)) + text.encode() + b"abcd"


@given(st.text() | st.binary())
def test_what_is_no_message_is_refused(data: str | bytes) -> None:
    with pytest.raises(PeerError):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        '{"type": "prefill", "number": -1}',
        '{"type": "prefill", "number": true}',
        '{"type": "prefill", "number": "1"}',
        '{"type": "format", "number": 1}',
        '{"number": 1}',
        "[]",
        "null",
        "[" * 100_000,
        struct.pack("<I", 2**31) + b"{}",
        struct.pack("<I", 3) + b"{}",
        struct.pack("<I", 2) + b"\xff\xff",
        struct.pack("<I", MOST_FACTS_BYTES + 1) + b" " * (MOST_FACTS_BYTES + 1),
    ],
)
def test_a_message_that_claims_what_it_is_not_is_refused(data: str | bytes) -> None:
    with pytest.raises(PeerError):
        decode(data)


@pytest.mark.parametrize("data", [FRAME.pack(2**31, 0), FRAME.pack(2, 0) + b"{}"])
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(PeerError):
        FrameReader().feed(data)


@pytest.mark.parametrize("facts", [{"type": "x"}, {"number": 2}, {"text": "x" * (MOST_FACTS_BYTES + 1)}])
def test_what_would_not_arrive_is_not_sent(facts: dict[str, object]) -> None:
    for sending in (encode, encode_frame):
        with pytest.raises(ValueError):
            sending(EngineMessage(MessageType.PREPARE, 1, facts))


def test_a_message_has_a_size() -> None:
    with pytest.raises(ValueError, match="do not fit"):
        encode_frame(EngineMessage(MessageType.AUDIO, payload=bytes(2**26 + MOST_FACTS_BYTES)))
