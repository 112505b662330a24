import asyncio

import av
import numpy as np
import pytest
from aiortc.mediastreams import MediaStreamError

from parley.core.call_events import PacketLate
from parley.runtime.event_stream import CallEvents
from parley.transports.speech_encoder import PACKET_MS, SpeechEncoder
from parley.transports.webrtc.audio_track import RESYNC_MS, PacedAudioTrack
from tests import virtual_time

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


@pytest.mark.parametrize("late_ms", [50, RESYNC_MS - 10, RESYNC_MS + 10, 1_000])
def test_a_late_loop_inserts_no_silence(late_ms):
    async def scenario() -> list[bytes]:
        left: list[bytes] = []
        track = PacedAudioTrack(RATE_HZ, on_packet=left.append)

        async def speak() -> None:
            for _ in range(20):
                await track.write(tone(40))

        speaker = asyncio.create_task(speak())
        await asyncio.sleep(0)
        for packet in range(40):
            await track.recv()
            if packet == 5:
                # The loop does not run: the next packets are overdue and leave at once.
                await asyncio.sleep(late_ms / 1000)
        await speaker
        return left

    left = virtual_time.run(scenario())
    assert all(np.abs(np.frombuffer(piece, dtype="<i2")).max() > 1_000 for piece in left)
    assert len(left) == 40


@pytest.mark.parametrize(
    ("late_ms", "pieces_ms", "every_ms", "silent_packets"),
    [
        # All of it is here: no packet waits.
        (15, (400,), 0, 0),
        # The first pieces on a busy loop: a wait of one packet, and no gap.
        (15, (40, 40, 400), 8, 1),
        # An engine that makes 40 ms in 38: no reply waits for longer than this.
        (15, (40,) * 10, 38, 2),
        # A short reply ends.
        (15, (60,), 0, 2),
        # A loop that is not busy has nothing to wait for.
        (5, (40, 40, 400), 8, 0),
    ],
)
def test_a_reply_on_a_busy_loop_begins_when_its_first_words_are_here(
    late_ms, pieces_ms, every_ms, silent_packets
):
    async def scenario() -> list[bool]:
        sounding: list[bool] = []
        audible: list[bytes] = []
        track = PacedAudioTrack(RATE_HZ, on_packet=audible.append)
        await track.recv()
        await asyncio.sleep((PACKET_MS + late_ms) / 1000)
        await track.recv()

        async def speak() -> None:
            for piece_ms in pieces_ms:
                await track.write(tone(piece_ms))
                await asyncio.sleep(every_ms / 1000)

        speaker = asyncio.create_task(speak())
        await asyncio.sleep(0)
        for _ in range(30):
            before = len(audible)
            await track.recv()
            sounding.append(len(audible) > before)
        await speaker
        return sounding

    sounding = virtual_time.run(scenario())
    packets = sum(pieces_ms) // PACKET_MS
    assert sounding == [False] * silent_packets + [True] * packets + [False] * (30 - packets - silent_packets)


def test_a_late_packet_of_speech_is_reported_and_one_of_silence_is_not():
    async def scenario() -> list[int]:
        events, late_ms = CallEvents(), list[int]()
        events.subscribe(PacketLate, lambda event: late_ms.append(event.late_ms))
        track = PacedAudioTrack(RATE_HZ, lead_ms=1_000, events=events)
        await track.recv()
        await asyncio.sleep((PACKET_MS + 30) / 1000)
        await track.recv()
        # On time again.
        await asyncio.sleep(0)
        await track.recv()
        await track.write(tone(400))
        for _ in range(3):
            await track.recv()
        await asyncio.sleep((PACKET_MS + 40) / 1000)
        for _ in range(5):
            await track.recv()
        return late_ms

    # The second one is overdue by then, too; the third is not.
    assert virtual_time.run(scenario()) == [40, 20]


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


def test_the_volume_follows_with_the_next_packet_along_a_ramp_and_is_full_again_after_a_clear():
    left: list[np.ndarray] = []

    async def scenario() -> None:
        track = PacedAudioTrack(
            RATE_HZ, lead_ms=1_000, on_packet=lambda pcm: left.append(np.frombuffer(pcm, dtype="<i2"))
        )
        await track.write(tone(200))
        await track.recv()
        track.gain.set_db(-12)
        for _ in range(3):
            await track.recv()
        track.clear()
        await track.write(tone(40))
        await track.recv()

    virtual_time.run(scenario())
    before, ramp, lower, _, after = (np.abs(packet).max() for packet in left)
    assert lower == pytest.approx(before * 10 ** (-12 / 20), rel=0.02)
    assert before * 0.9 < ramp <= before
    assert after == before
    # No step: from one packet to the next the tone changes only by its own slope.
    joined = np.concatenate(left[:4]).astype(float)
    assert np.abs(np.diff(joined)).max() <= 8_000 * 2 * np.pi * 440 / RATE_HZ * 1.05


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
        SpeechEncoder(22_050)
