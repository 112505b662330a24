"""Messages of Twilio's media streams: their fields and order, and refused messages."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import (
    Audio,
    Digit,
    MarkBack,
    MediaStream,
    Started,
    Stopped,
    ToCaller,
)

SID = "MZ" + "0" * 32
FORMAT = {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}


def connected() -> dict[str, Any]:
    return {"event": "connected", "protocol": "Call", "version": "1.0.0"}


def start(**changed: Any) -> dict[str, Any]:
    facts = {
        "accountSid": "AC1",
        "callSid": "CA1",
        "streamSid": SID,
        "tracks": ["inbound"],
        "mediaFormat": FORMAT,
        "customParameters": {"from": "+15550100"},
    }
    return {"event": "start", "sequenceNumber": "1", "streamSid": SID, "start": facts | changed}


def media(sequence: int, at_ms: int, audio: bytes = b"\xff" * 160, **changed: Any) -> dict[str, Any]:
    facts = {
        "track": "inbound",
        "chunk": str(sequence - 1),
        "timestamp": str(at_ms),
        "payload": base64.b64encode(audio).decode(),
    }
    return {"event": "media", "sequenceNumber": str(sequence), "streamSid": SID, "media": facts | changed}


def running() -> MediaStream:
    stream = MediaStream()
    stream.read(json.dumps(connected()))
    stream.read(json.dumps(start()))
    return stream


def refused(stream: MediaStream, message: object) -> str:
    with pytest.raises(ProtocolError) as refusal:
        stream.read(message if isinstance(message, str) else json.dumps(message))
    return refusal.value.code


def test_a_call_from_its_beginning_to_its_end() -> None:
    stream = MediaStream()
    assert stream.read(json.dumps(connected())) is None
    assert stream.read(json.dumps(start())) == Started(SID, "CA1", "AC1", {"from": "+15550100"})
    assert stream.read(json.dumps(media(2, 20, b"\x7f" * 160))) == Audio(b"\x7f" * 160, 20)
    dtmf = {"event": "dtmf", "sequenceNumber": "3", "streamSid": SID}
    assert stream.read(json.dumps(dtmf | {"dtmf": {"track": "inbound_track", "digit": "#"}})) == Digit("#")
    mark = {"event": "mark", "sequenceNumber": "4", "streamSid": SID, "mark": {"name": "m1"}}
    assert stream.read(json.dumps(mark)) == MarkBack("m1")
    # A number that never came is counted, and the next messages do not wait for it.
    assert stream.read(json.dumps(media(7, 100))) == Audio(b"\xff" * 160, 100)
    assert stream.skipped == 2
    stop = {"event": "stop", "sequenceNumber": "8", "streamSid": SID}
    assert stream.read(json.dumps(stop | {"stop": {"accountSid": "AC1", "callSid": "CA1"}})) == Stopped()
    assert refused(stream, media(9, 120)) == "wrong_order"


@pytest.mark.parametrize(
    ("messages", "code"),
    [
        ([start()], "wrong_order"),
        ([connected(), connected()], "wrong_order"),
        ([connected(), media(2, 20)], "wrong_order"),
        ([connected(), start(), start()], "wrong_order"),
        ([connected() | {"protocol": "Meet"}], "not_supported"),
        ([connected(), start(mediaFormat=FORMAT | {"sampleRate": 16_000})], "not_supported"),
        ([connected(), start(mediaFormat=FORMAT | {"sampleRate": "8000"})], "not_supported"),
        ([connected(), start(mediaFormat=None)], "missing_field"),
        ([connected(), start(callSid=7)], "invalid_payload"),
        ([connected(), start(tracks=["inbound", "outbound"])], "not_supported"),
        ([connected(), start(streamSid="MZ2")], "wrong_stream"),
        ([connected(), start(customParameters={"a": 1})], "invalid_payload"),
        ([connected(), start(customParameters=[])], "invalid_payload"),
    ],
)
def test_how_a_call_does_not_begin(messages: list[dict[str, Any]], code: str) -> None:
    stream = MediaStream()
    for message in messages[:-1]:
        stream.read(json.dumps(message))
    assert refused(stream, messages[-1]) == code


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ("no json", "invalid_json"),
        ("[]", "invalid_json"),
        ("[" * 100_000, "too_large"),
        ({"event": "hello"}, "unknown_event"),
        ({"event": ["media"]}, "unknown_event"),
        ({"event": "media"}, "wrong_stream"),
        (media(2, 20) | {"streamSid": "MZ2"}, "wrong_stream"),
        (media(2, 20) | {"sequenceNumber": 2}, "invalid_payload"),
        (media(2, 20) | {"sequenceNumber": "1"}, "replayed"),
        (media(2, 20) | {"sequenceNumber": "999999999999999"}, "wrong_order"),
        (media(2, 20) | {"media": "loud"}, "missing_field"),
        (media(2, 20, payload="%%%"), "invalid_payload"),
        (media(2, 20, payload=7), "invalid_payload"),
        (media(2, 20, track="outbound"), "invalid_payload"),
        (media(2, 20, timestamp=20), "invalid_payload"),
        (media(2, 20, timestamp="-20"), "invalid_payload"),
        (media(2, 20, b"\xff" * 40_000), "too_large"),
        (
            {"event": "dtmf", "sequenceNumber": "2", "streamSid": SID, "dtmf": {"digit": "x"}},
            "invalid_payload",
        ),
        ({"event": "mark", "sequenceNumber": "2", "streamSid": SID, "mark": {}}, "invalid_payload"),
    ],
)
def test_what_is_refused_changes_nothing(message: object, code: str) -> None:
    stream = running()
    assert refused(stream, message) == code
    after = 3 if isinstance(message, dict) and message.get("sequenceNumber") == "2" else 2
    assert stream.read(json.dumps(media(after, 40))) == Audio(b"\xff" * 160, 40)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
        max_leaves=12,
    ),
    st.sampled_from(["connected", "start", "media", "dtmf", "mark", "stop", "?"]),
)
def test_whatever_comes_is_read_or_refused(value: Any, event: str) -> None:
    for stream in (MediaStream(), running()):
        for message in (value, {"event": event, "sequenceNumber": "2", "streamSid": SID, event: value}):
            try:
                stream.read(json.dumps(message))
            except ProtocolError as refusal:
                assert refusal.code and str(refusal)


def test_what_is_sent_is_what_twilio_reads() -> None:
    to_caller = ToCaller('MZ"1')
    assert json.loads(to_caller.media(b"\xff\x00")) == {
        "event": "media",
        "streamSid": 'MZ"1',
        "media": {"payload": "/wA="},
    }
    assert json.loads(to_caller.mark("m12")) == {
        "event": "mark",
        "streamSid": 'MZ"1',
        "mark": {"name": "m12"},
    }
    assert json.loads(to_caller.clear) == {"event": "clear", "streamSid": 'MZ"1'}
