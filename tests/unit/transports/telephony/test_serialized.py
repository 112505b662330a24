"""Streams of telephone carriers: the meaning of their documented messages, and refused ones."""

import base64
import json
from collections.abc import Sequence

import pytest
from loguru import logger

from parley.protocols.client_protocol import ProtocolError
from parley.protocols.twilio_media import Audio, Digit, Event, MarkBack, Started, Stopped
from parley.transports.phone_protocol import Message, StreamProtocol
from parley.transports.registry import TRANSPORTS
from tests.carriers import NETWORKS, Exotel, Network, Plivo, Taken, Telnyx, Vonage, pcm_of, text64

SAID = bytes(range(0x80, 0x80 + 80)) * 2
each = pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.name)


def stream_of(network: Network) -> StreamProtocol:
    protocol: StreamProtocol = TRANSPORTS.create(network.name)
    return protocol


async def begun(network: Network) -> StreamProtocol:
    stream = stream_of(network)
    for message in network.beginning():
        await stream.read(message)
    return stream


async def refused(stream: StreamProtocol, message: Message) -> str:
    with pytest.raises(ProtocolError) as refusal:
        await stream.read(message)
    return str(refusal.value)


def taken(network: Network, messages: Sequence[Message]) -> list[Taken]:
    return [network.taken(message) for message in messages]


@each
async def test_a_call_is_heard_from_its_beginning_to_its_end(kind: type[Network]):
    network = kind()
    stream, events = stream_of(network), list[Event | None]()
    for message in network.beginning():
        events.append(await stream.read(message))
    [started] = [event for event in events if event is not None]
    assert isinstance(started, Started) and started.call_sid == network.call_id
    assert await stream.read(network.audio(SAID)) == Audio(SAID, 0)
    # Positions are counted: the next one comes after it.
    assert await stream.read(network.audio(SAID)) == Audio(SAID, 20)
    assert await stream.read(network.key("5")) == Digit("5")
    assert await stream.read(network.key("#")) == Digit("#")
    assert await stream.read(network.mark_back("m1")) == MarkBack("m1")
    if (end := network.end()) is not None:
        assert await stream.read(end) == Stopped()
        assert await refused(stream, network.audio(SAID)) == "a message after the end"


@each
async def test_what_the_caller_is_sent_is_audio_marks_and_clear_in_the_networks_words(kind: type[Network]):
    network = kind()
    stream = await begun(network)
    sent = [message for _ in range(5) for message in await stream.media(SAID)]
    assert b"".join(each.mu_law for each in taken(network, sent)) == SAID * 5
    assert taken(network, await stream.mark("m1")) == [Taken(mark="m1")]
    assert taken(network, await stream.clear()) == [Taken(clears=True)]


@each
async def test_nothing_counts_before_the_start_and_nothing_starts_twice(kind: type[Network]):
    network = kind()
    stream = stream_of(network)
    assert "before the start" in await refused(stream, network.audio(SAID))
    assert "before the start" in await refused(stream, network.key("1"))
    *_, start = network.beginning()
    await stream.read(start)
    assert await refused(stream, start) == "a second start"


@pytest.mark.parametrize("kind", [Telnyx, Plivo, Exotel])
async def test_a_message_of_another_stream_is_refused(kind: type[Network]):
    stream = await begun(kind())
    other = kind(stream_id="stream-2")
    assert await refused(stream, other.audio(SAID)) == "a message for another stream"
    assert await refused(stream, other.key("1")) == "a message for another stream"


@each
@pytest.mark.parametrize(
    "message", ["", "no JSON", "[]", "{}", '{"event": 3}', '{"event": "surprise"}', '{"event": ["media"]}']
)
async def test_what_is_no_message_is_refused(kind: type[Network], message: str):
    await refused(await begun(kind()), message)


@pytest.mark.parametrize("kind", [Telnyx, Plivo, Exotel])
@pytest.mark.parametrize(
    "payload", [None, 5, "not base64!", "A", text64(bytes(100_000)), {"deep": []}], ids=str
)
async def test_audio_that_is_none_is_refused_before_it_is_translated(kind: type[Network], payload: object):
    network = kind()
    stream = await begun(network)
    message = network.audio(SAID)
    assert isinstance(message, str)
    facts = json.loads(message)
    facts["media"]["payload"] = payload
    await refused(stream, json.dumps(facts))
    # The next one is heard, at its position.
    assert await stream.read(network.audio(SAID)) == Audio(SAID, 0)


@pytest.mark.parametrize("kind", [Telnyx, Plivo, Exotel])
async def test_bytes_are_refused_where_audio_is_text(kind: type[Network]):
    assert "got bytes" in await refused(await begun(kind()), pcm_of(SAID))


async def test_audio_of_no_whole_samples_is_refused():
    odd = pcm_of(SAID)[:-1]
    assert "whole number of samples" in await refused(await begun(Vonage()), odd)
    exotel = Exotel()
    stream = await begun(exotel)
    assert "whole number of samples" in await refused(
        stream, exotel.message("media", media={"payload": text64(odd)})
    )


async def test_audio_of_the_bots_own_side_is_refused():
    network = Telnyx()
    stream = await begun(network)
    media = {"track": "outbound", "payload": text64(SAID)}
    assert "expected inbound" in await refused(stream, network.message("media", media=media))


async def test_telnyx_may_send_the_callers_audio_in_a_law():
    network = Telnyx()
    stream = stream_of(network)
    connected, start = network.beginning()
    facts = json.loads(start)
    facts["start"]["media_format"]["encoding"] = "PCMA"
    await stream.read(connected)
    await stream.read(json.dumps(facts))
    heard = await stream.read(network.audio(b"\xd5" * 160))
    # Silence of A-law, 0xD5, is the softest sample of mu-law.
    assert isinstance(heard, Audio) and set(heard.mu_law) <= {0xFE, 0xFF, 0x7E, 0x7F}


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (Telnyx, {"media_format": {"encoding": "OPUS", "sample_rate": 8000, "channels": 1}}),
        (Telnyx, {"media_format": {"encoding": "PCMU", "sample_rate": 16000, "channels": 1}}),
        (Telnyx, {"media_format": None}),
        (Plivo, {"mediaFormat": {"encoding": "audio/x-l16", "sampleRate": 8000}}),
        (Plivo, {"tracks": ["inbound", "outbound"]}),
        (Exotel, {"media_format": {"encoding": "audio/x-raw", "sample_rate": "16000"}}),
        (Exotel, {"call_sid": ""}),
    ],
)
async def test_a_stream_in_another_format_does_not_start(kind: type[Network], change: dict[str, object]):
    network = kind()
    *_, start = network.beginning()
    facts = json.loads(start)
    facts["start"].update(change)
    await refused(stream_of(network), json.dumps(facts))


@pytest.mark.parametrize("change", [{"content-type": "audio/l16;rate=16000"}, {"call": ""}, {"call": None}])
async def test_a_socket_of_vonage_in_another_format_or_of_no_call_does_not_start(change: dict[str, object]):
    [start] = Vonage().beginning()
    await refused(stream_of(Vonage()), json.dumps({**json.loads(start), **change}))


async def test_exotel_is_sent_pieces_of_100_ms_and_a_mark_after_the_piece_that_is_before_it():
    network = Exotel()
    stream = await begun(network)
    assert stream.is_continuous
    assert [await stream.media(SAID) for _ in range(3)] == [(), (), ()]
    assert await stream.mark("m1") == ()
    assert await stream.media(SAID) == ()
    audio, mark = taken(network, await stream.media(SAID))
    assert audio.mu_law == SAID * 5 and mark == Taken(mark="m1")
    # Gathered audio is dropped with the sent audio, and its mark too.
    await stream.media(SAID)
    await stream.mark("m2")
    assert taken(network, await stream.clear()) == [Taken(clears=True)]
    sent = [message for _ in range(5) for message in await stream.media(SAID)]
    assert [len(each.mu_law) for each in taken(network, sent)] == [800]


async def test_a_message_is_as_long_as_one_may_be():
    stream = await begun(Plivo())
    assert "over 65536 characters" in await refused(stream, "x" * 65_537)
    assert base64.b64decode(text64(b"x")) == b"x"


@each
@pytest.mark.parametrize("key", ["x", "", "12", "\r\nX-Injected: 1", "9" * 5_000, 5, None, {"a": 1}, ["1"]])
async def test_a_key_that_no_telephone_has_is_refused_and_not_logged(kind: type[Network], key: object):
    network = kind()
    stream = await begun(network)
    message = json.loads(network.key("1"))
    (message.get("dtmf") or message)["digit"] = key
    lines: list[str] = []
    sink = logger.add(lines.append, level="DEBUG")
    try:
        assert "digit" in await refused(stream, json.dumps(message))
    finally:
        logger.remove(sink)
    assert lines == []
