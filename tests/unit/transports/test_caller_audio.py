"""Sound of a caller: loss, late and early packets, codecs, and a process that does not keep up."""

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest
from aiortc import RTCRtpCodecParameters
from loguru import logger

from parley.core.media import pcm16_to_float
from parley.transports.speech_encoder import SpeechEncoder
from parley.transports.webrtc.caller_audio import (
    BURST_MS,
    LEAST_MS,
    MOST_CONCEALED_MS,
    MOST_WAITING_MS,
    MS_PER_S,
    CallerAudio,
)
from parley.transports.webrtc.rtp import RtpAudio

RATE_HZ, PACKET_BYTES, TICKS = 16_000, 640, 960
OPUS = RTCRtpCodecParameters("audio/opus", 48_000, 2, 111)
PCMU = RTCRtpCodecParameters("audio/PCMU", 8_000, 1, 0)


def opus(count: int) -> list[RtpAudio]:
    encoder = SpeechEncoder(RATE_HZ)
    at = np.arange(count * PACKET_BYTES // 2)
    pcm = (8_000 * np.sin(at * 0.1)).astype("<i2").tobytes()
    return [
        RtpAudio(n, n * TICKS, 1, 111, encoder.encode(pcm[n * PACKET_BYTES : (n + 1) * PACKET_BYTES]))
        for n in range(count)
    ]


def fed(audio: CallerAudio, packets: Iterable[RtpAudio]) -> CallerAudio:
    for packet in packets:
        audio.take(packet, OPUS)
    return audio


async def drained(audio: CallerAudio) -> list[bytes]:
    """Read all that is there, and nothing that has yet to come."""
    found: list[bytes] = []
    reading = asyncio.ensure_future(audio.read())
    while True:
        await asyncio.sleep(0)
        if not reading.done():
            break
        found.append(reading.result())
        reading = asyncio.ensure_future(audio.read())
    reading.cancel()
    return found


async def test_packets_are_read_in_pieces_that_complete_a_window_of_voice_activity():
    audio, pieces = CallerAudio(RATE_HZ, 1), list[bytes]()
    for packet in opus(10):
        pieces += await drained(fed(audio, [packet]))
    # Windows end at 32, 64, 96, 128 and 160 ms.
    assert [len(piece) // PACKET_BYTES for piece in pieces] == [2, 2, 1, 2, 1, 2]
    assert np.abs(pcm16_to_float(pieces[-1])).max() > 0.2


async def test_sound_that_waited_is_read_at_once():
    pieces = await drained(fed(CallerAudio(RATE_HZ, 1), opus(10)))
    assert [len(piece) // PACKET_BYTES for piece in pieces] == [5, 5]


@pytest.mark.parametrize("lost", [1, MOST_CONCEALED_MS // 20])
async def test_lost_packets_are_concealed_so_that_what_follows_keeps_its_time(lost: int):
    packets = opus(20)
    heard = await drained(fed(CallerAudio(RATE_HZ, 1), packets[:8] + packets[8 + lost :]))
    sound = b"".join(heard)
    assert len(sound) == 20 * PACKET_BYTES
    assert np.abs(pcm16_to_float(sound[8 * PACKET_BYTES : 9 * PACKET_BYTES])).max() > 0.1


async def test_a_longer_gap_is_left_out():
    packets = opus(20)
    heard = await drained(fed(CallerAudio(RATE_HZ, 1), packets[:4] + packets[5 + MOST_CONCEALED_MS // 20 :]))
    assert len(b"".join(heard)) == (20 - 1 - MOST_CONCEALED_MS // 20) * PACKET_BYTES


async def test_a_caller_who_sends_what_cannot_be_decoded_is_heard_after_it():
    packets = opus(4)
    broken = RtpAudio(4, 4 * TICKS, 1, 111, b"\x03")
    probe = RtpAudio(5, 5 * TICKS, 1, 111, b"")
    audio = fed(CallerAudio(RATE_HZ, 1), [*packets, broken, probe])
    audio.take(RtpAudio(6, 6 * TICKS, 1, 111, packets[3].payload), OPUS)
    assert len(b"".join(await drained(audio))) == 5 * PACKET_BYTES


async def test_the_codec_may_change_during_a_call():
    audio = fed(CallerAudio(RATE_HZ, 1), opus(2))
    for number in range(2, 8):
        audio.take(RtpAudio(number, number * 160, 1, 0, bytes((0xA0, 0x20)) * 80), PCMU)
    heard = await drained(audio)
    assert len(b"".join(heard)) == pytest.approx(8 * PACKET_BYTES, abs=100)


async def test_two_channels_for_a_pipeline_that_wants_them():
    assert [len(piece) for piece in await drained(fed(CallerAudio(RATE_HZ, 2), opus(2)))] == [
        4 * PACKET_BYTES
    ]


@pytest.mark.parametrize("frames", [1, 3], ids=["20 ms", "60 ms"])
async def test_a_process_that_does_not_keep_up_goes_on_with_current_sound(frames: int):
    # RFC 6716, 3.2.5: code 3, constant bit rate; three frames of silence in CELT, 20 ms each.
    payload = opus(1)[0].payload if frames == 1 else bytes((0xFB, 3)) + b"\xff\xfe" * 3
    audio, lines = CallerAudio(RATE_HZ, 1), list[str]()
    sink = logger.add(lines.append, format="{level} {message}", level="DEBUG")
    most = MOST_WAITING_MS // (20 * frames)
    try:
        for number in range(most):
            audio.take(RtpAudio(number, number * TICKS * frames, 1, 111, payload), OPUS)
        assert not lines
        audio.take(RtpAudio(most, most * TICKS * frames, 1, 111, payload), OPUS)
    finally:
        logger.remove(sink)
    assert lines == [
        f"DEBUG dropping {MOST_WAITING_MS + 20 * frames} ms of input audio: this process is overloaded\n"
    ]
    for number in (most + 1, most + 2):
        audio.take(RtpAudio(number, number * TICKS * frames, 1, 111, payload), OPUS)
    assert len(b"".join(await drained(audio))) == 2 * PACKET_BYTES * frames


async def test_a_reader_waits_for_the_first_piece():
    audio = CallerAudio(RATE_HZ, 1)
    packets = opus(2)
    reading = asyncio.ensure_future(audio.read())
    for packet in packets:
        await asyncio.sleep(0)
        assert not reading.done()
        fed(audio, [packet])
    assert len(await reading) == 2 * PACKET_BYTES


async def test_a_lost_packet_before_one_without_sound_is_concealed_with_the_next():
    packets = opus(8)
    packets[5] = RtpAudio(5, 5 * TICKS, 1, 111, b"")
    heard = await drained(fed(CallerAudio(RATE_HZ, 1), packets[:4] + packets[5:]))
    assert sum(map(len, heard)) == 7 * PACKET_BYTES


async def test_a_source_that_takes_over_is_heard_from_its_first_packet():
    audio = fed(CallerAudio(RATE_HZ, 1), opus(8))
    for packet in opus(4):
        audio.take(RtpAudio(packet.sequence_number, packet.timestamp, 2, 111, packet.payload), OPUS)
    assert len(b"".join(await drained(audio))) == 12 * PACKET_BYTES


class StandingClock:
    """Clock that a test moves."""

    def __init__(self) -> None:
        self.us = 0

    def now_us(self) -> int:
        return self.us

    def now_ms(self) -> int:
        return self.us // 1000

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        raise AssertionError("this does not wait")


@pytest.mark.parametrize("step", [1, 6], ids=["in order", "with gaps"])
@pytest.mark.parametrize("length_ms", [2.5, 20])
async def test_no_more_sound_is_decoded_than_time_passes(length_ms: float, step: int):
    # RFC 6716, 3.1: CELT at full band, of 2.5 and of 20 ms.
    payload = bytes(((28 if length_ms == 2.5 else 31) << 3,)) + bytes(20)
    clock = StandingClock()
    audio = CallerAudio(RATE_HZ, 1, clock=clock)
    heard_bytes = 0
    for number in range(2_000):
        audio.take(RtpAudio(number * step & 0xFFFF, 0, 1, 111, payload), OPUS)
        heard_bytes += sum(map(len, await drained(audio)))
    at_once_ms = heard_bytes / 2 / RATE_HZ * 1000
    assert 0 < at_once_ms <= BURST_MS * (length_ms / max(length_ms, LEAST_MS) if step == 1 else 1)
    clock.us = 1_000_000
    heard_bytes = 0
    for number in range(2_000, 4_000):
        audio.take(RtpAudio(number * step & 0xFFFF, 0, 1, 111, payload), OPUS)
        heard_bytes += sum(map(len, await drained(audio)))
    assert 0 < heard_bytes / 2 / RATE_HZ * 1000 <= MS_PER_S
