import asyncio

import av
import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from tests import virtual_time
from transports.webrtc.audio_track import PACKET_MS, OpusPacketizer, PacedAudioTrack

RATE_HZ = 16_000


def tone(duration_ms: int, hz: float = 440) -> bytes:
    t = np.arange(RATE_HZ * duration_ms // 1000) / RATE_HZ
    return (8_000 * np.sin(2 * np.pi * hz * t)).astype("<i2").tobytes()


def decode(payloads: list[bytes]) -> np.ndarray:
    decoder = av.CodecContext.create("libopus", "r")
    decoder.sample_rate = 48_000
    decoder.layout = "mono"
    samples = [frame.to_ndarray().ravel() for data in payloads for frame in decoder.decode(av.Packet(data))]
    return np.concatenate(samples).astype(np.float64)


def test_packets_leave_every_20_ms_whatever_is_written():
    async def scenario() -> list[float]:
        track = PacedAudioTrack(RATE_HZ)
        times = []
        for _ in range(50):
            await track.recv()
            times.append(asyncio.get_running_loop().time())
        return times

    times = virtual_time.run(scenario())
    assert np.diff(times) == pytest.approx(np.full(49, PACKET_MS / 1000), abs=1e-6)


def test_what_is_written_is_heard_at_the_peer():
    async def scenario() -> list[bytes]:
        track = PacedAudioTrack(RATE_HZ, lead_ms=1_000)
        await track.write(tone(500))
        return [bytes(await track.recv()) for _ in range(25)]

    heard = decode(virtual_time.run(scenario()))
    spectrum = np.abs(np.fft.rfft(heard[4_800:14_400]))
    assert abs(spectrum.argmax() * 48_000 / 9_600 - 440) < 10


def test_a_writer_is_held_back_by_the_lead_and_loses_nothing():
    async def scenario() -> tuple[float, list[bytes]]:
        left: list[bytes] = []
        track = PacedAudioTrack(RATE_HZ, lead_ms=60, on_packet=left.append)
        loop = asyncio.get_running_loop()

        async def listen() -> None:
            while True:
                await track.recv()

        listener = asyncio.create_task(listen())
        started = loop.time()
        for _ in range(25):
            await track.write(tone(40))
        took = loop.time() - started
        await asyncio.sleep(0.2)
        listener.cancel()
        return took, left

    took, left = virtual_time.run(scenario())
    assert took == pytest.approx(1.0 - 0.06, abs=0.041)
    assert b"".join(left) == tone(40) * 25


def test_a_loop_that_is_late_within_the_lead_inserts_no_silence():
    async def scenario() -> list[bytes]:
        left: list[bytes] = []
        track = PacedAudioTrack(RATE_HZ, lead_ms=60, on_packet=left.append)

        async def speak() -> None:
            for _ in range(10):
                await track.write(tone(40))

        speaker = asyncio.create_task(speak())
        await asyncio.sleep(0)
        for packet in range(20):
            await track.recv()
            if packet == 5:
                # The loop does not get to run for 50 ms: the next packets are overdue and leave at once.
                await asyncio.sleep(0.05)
        await speaker
        return left

    left = virtual_time.run(scenario())
    assert all(np.abs(np.frombuffer(piece, dtype="<i2")).max() > 1_000 for piece in left)
    assert len(left) == 20


def test_clear_is_silence_from_the_next_packet_and_releases_the_writer():
    async def scenario() -> tuple[int, bool]:
        track = PacedAudioTrack(RATE_HZ, lead_ms=60)
        writer = asyncio.create_task(track.write(tone(2_000)))
        await asyncio.sleep(0)
        await track.recv()
        track.clear()
        await writer
        payloads = [bytes(await track.recv()) for _ in range(10)]
        return int(np.abs(decode(payloads)[1_920:]).max()), writer.done()

    peak, released = virtual_time.run(scenario())
    assert released
    assert peak < 400


def test_a_stopped_track_ends_reader_and_writer():
    async def scenario() -> None:
        track = PacedAudioTrack(RATE_HZ)
        writer = asyncio.create_task(track.write(tone(1_000)))
        await asyncio.sleep(0)
        track.stop()
        await writer
        with pytest.raises(MediaStreamError):
            await track.recv()
        await track.write(tone(1_000))

    virtual_time.run(scenario())


def test_a_long_stall_moves_the_clock_instead_of_sending_a_burst():
    async def scenario() -> list[float]:
        track = PacedAudioTrack(RATE_HZ)
        await track.recv()
        await asyncio.sleep(3)
        times = []
        for _ in range(5):
            await track.recv()
            times.append(asyncio.get_running_loop().time())
        return times

    assert np.diff(virtual_time.run(scenario())) == pytest.approx(np.full(4, 0.02), abs=1e-6)


def test_a_rate_that_opus_lacks_is_refused():
    with pytest.raises(ValueError, match="22050"):
        OpusPacketizer(22_050)
