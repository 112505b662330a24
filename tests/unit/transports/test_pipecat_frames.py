import asyncio
from typing import Any

import numpy as np
import pytest
from pipecat.frames.frames import (
    InputAudioRawFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    TextFrame,
    TranscriptionFrame,
)
from pipecat.serializers.protobuf import ProtobufFrameSerializer

from parley.protocols.client_protocol import ProtocolError
from parley.transports.websocket.pipecat_frames import (
    LEAD_MS,
    CallSerializer,
    ClientAudio,
    client_frame,
    message_frame,
)
from tests import virtual_time

RATE_HZ = 16_000
PIECE = bytes(RATE_HZ // 50 * 2)


async def sent(frame: Any) -> bytes:
    """Return a frame as Pipecat's client writes it."""
    data = await ProtobufFrameSerializer().serialize(frame)
    assert isinstance(data, bytes)
    return data


async def test_audio_of_a_client_is_read_as_it_was_sent():
    read = client_frame(await sent(OutputAudioRawFrame(b"\1\0\2\0", 16_000, 1)))
    assert read == ClientAudio(b"\1\0\2\0", 16_000, 1)


async def test_words_and_interruptions_of_a_client_have_no_meaning():
    serializer = CallSerializer(RATE_HZ)
    for frame in (
        TextFrame("hello"),
        TranscriptionFrame(text="hello", user_id="", timestamp=""),
        InterruptionFrame(),
    ):
        data = await sent(frame)
        if data:
            assert client_frame(data) is None
            assert await serializer.deserialize(data) is None


@pytest.mark.parametrize(("rate_hz", "channels"), [(16_000, 1), (8_000, 1), (48_000, 1), (44_100, 2)])
async def test_a_tone_of_any_rate_keeps_its_pitch_and_length(rate_hz: int, channels: int):
    seconds = np.arange(rate_hz) / rate_hz
    tone = (10_000 * np.sin(2 * np.pi * 500 * seconds)).astype("<i2")
    serializer, heard = CallSerializer(RATE_HZ), b""
    step = rate_hz // 50
    for start in range(0, rate_hz, step):
        pcm = np.repeat(tone[start : start + step], channels).tobytes()
        frame = await serializer.deserialize(await sent(OutputAudioRawFrame(pcm, rate_hz, channels)))
        if frame is not None:
            assert isinstance(frame, InputAudioRawFrame)
            assert (frame.sample_rate, frame.num_channels) == (RATE_HZ, 1)
            heard += frame.audio
    samples = np.frombuffer(heard, "<i2").astype(float)
    assert len(samples) == pytest.approx(RATE_HZ, abs=RATE_HZ // 20)
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    assert np.argmax(spectrum) * RATE_HZ / len(samples) == pytest.approx(500, abs=3)


async def test_messages_go_both_ways():
    message = {"label": "rtvi-ai", "type": "client-ready", "id": "1", "data": {"version": "1.0.0"}}
    frame = await CallSerializer(RATE_HZ).deserialize(message_frame(message))
    assert isinstance(frame, InputTransportMessageFrame) and frame.message == message


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"label": "rtvi-ai"},
        {"label": "another", "type": "client-ready", "id": "1"},
        {"label": "rtvi-ai", "type": "a" * 65, "id": "1"},
        {"label": "rtvi-ai", "type": "a", "id": "1" * 257},
        {"label": "rtvi-ai", "type": "a", "id": "1", "data": "b" * 70_000},
    ],
)
def test_other_messages_are_refused(message: dict[str, Any]):
    with pytest.raises(ProtocolError):
        client_frame(message_frame(message))


def test_audio_is_sent_at_the_pace_at_which_it_is_played():
    async def scenario() -> None:
        clock = asyncio.get_running_loop()
        serializer, began_s = CallSerializer(RATE_HZ), clock.time()
        for _ in range(25):
            assert await serializer.serialize(OutputAudioRawFrame(PIECE, RATE_HZ, 1))
        assert clock.time() - began_s == pytest.approx(0.5 - LEAD_MS / 1000, abs=0.021)
        # After an interruption the client has nothing to play: the next reply is sent at once.
        assert await serializer.serialize(InterruptionFrame()) is not None
        cut_s = clock.time()
        await serializer.serialize(OutputAudioRawFrame(PIECE, RATE_HZ, 1))
        assert clock.time() == cut_s

    virtual_time.run(scenario())
