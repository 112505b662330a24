"""A track that sends its packets by itself, in the stream that aiortc has begun, on virtual time."""

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from aiortc import RTCOutboundRtpStreamStats, RTCTransportStats
from aiortc.rtp import RtcpSrPacket

from parley.core.call_events import PacketLate
from parley.runtime.event_stream import CallEvents
from parley.transports.webrtc.audio_track import GRACE_MS, RESYNC_MS, STEP_MS, PacedAudioTrack
from tests import virtual_time
from tests.fakes.bot_line import MID, OPUS, BotLine
from tests.unit.transports.test_audio_track import RATE_HZ, decode, tone

Script = Callable[[BotLine, PacedAudioTrack], Awaitable[None]]


def sent_by(script: Script, **options: Any) -> BotLine:
    """Return the line after a track has sent as the script says."""

    async def scenario() -> BotLine:
        line = BotLine()
        track = PacedAudioTrack(RATE_HZ, sender=line.sender, **options)
        async with line.sending(track):
            await script(line, track)
        return line

    return virtual_time.run(scenario())


async def stall(for_s: float) -> None:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, virtual_time.VirtualLoop)
    loop.stand_still(for_s)


def times_ms(line: BotLine) -> np.ndarray:
    return np.array([at_s * 1000 for at_s, _ in line.sent])


def test_the_stream_of_aiortc_goes_on_without_a_gap():
    async def script(_line: BotLine, _track: PacedAudioTrack) -> None:
        await asyncio.sleep(2)

    line = sent_by(script)
    packets = [packet for _, packet in line.sent]
    assert 99 <= len(packets) <= 101
    numbers = [packet.sequence_number for packet in packets]
    assert set(np.diff(numbers) % 65_536) == {1}
    assert {(b.timestamp - a.timestamp) % 2**32 for a, b in zip(packets, packets[1:], strict=False)} == {960}
    assert {packet.ssrc for packet in packets} == {line.sender._ssrc}
    assert {(packet.payload_type, packet.marker) for packet in packets} == {(OPUS.payloadType, 1)}
    assert {packet.extensions.mid for packet in packets} == {MID}


def test_packets_leave_every_20_ms_in_steps_that_all_calls_share():
    async def two() -> list[BotLine]:
        found = []
        for wait_s in (0.0, 0.0113):
            await asyncio.sleep(wait_s)
            found.append(BotLine())
        tracks = [PacedAudioTrack(RATE_HZ, sender=line.sender) for line in found]
        async with found[0].sending(tracks[0]):
            await asyncio.sleep(0.0113)
            async with found[1].sending(tracks[1]):
                await asyncio.sleep(1)
        return found

    for line in virtual_time.run(two()):
        # The first one leaves at once, by aiortc.
        times = times_ms(line)[1:]
        assert np.diff(times) == pytest.approx(np.full(len(times) - 1, 20), abs=1e-6)
        assert (times + 1e-3) % STEP_MS == pytest.approx(1e-3, abs=1e-4)


def test_reports_to_the_peer_and_statistics_count_every_packet():
    async def script(line: BotLine, track: PacedAudioTrack) -> None:
        await track.write(tone(60))
        await asyncio.sleep(3)
        stats = await line.sender.getStats()
        [outbound] = [each for each in stats.values() if isinstance(each, RTCOutboundRtpStreamStats)]
        [transport] = [each for each in stats.values() if isinstance(each, RTCTransportStats)]
        assert outbound.packetsSent == len(line.sent)
        assert outbound.bytesSent == sum(map(len, line.payloads))
        reports = sum(isinstance(each, RtcpSrPacket) for each in line.reports)
        assert transport.packetsSent == len(line.sent) + reports

    line = sent_by(script)
    [*_, report] = [each for each in line.reports if isinstance(each, RtcpSrPacket)]
    about = {packet.timestamp: at_s for at_s, packet in line.sent}
    sent_s = about[report.sender_info.rtp_timestamp]
    ntp_s = report.sender_info.ntp_timestamp / 2**32 - 2_208_988_800
    assert ntp_s == pytest.approx(virtual_time.EPOCH_S + sent_s, abs=1e-3)
    count = report.sender_info.packet_count
    assert line.sent[count - 1][1].timestamp == report.sender_info.rtp_timestamp


def test_what_is_written_is_heard_at_the_peer():
    async def script(_line: BotLine, track: PacedAudioTrack) -> None:
        await track.write(tone(500))
        await asyncio.sleep(0.2)

    heard = decode(sent_by(script).payloads)
    spectrum = np.abs(np.fft.rfft(heard[4_800:14_400]))
    assert abs(spectrum.argmax() * 48_000 / 9_600 - 440) < 10


@pytest.mark.parametrize("late_ms", [50, RESYNC_MS - 30, RESYNC_MS + 30, 1_000])
def test_a_late_loop_inserts_no_silence(late_ms):
    left: list[bytes] = []

    async def script(_line: BotLine, track: PacedAudioTrack) -> None:
        async def speak() -> None:
            for _ in range(20):
                await track.write(tone(40))

        speaker = asyncio.create_task(speak())
        await asyncio.sleep(0.11)
        await stall(late_ms / 1000)
        await speaker
        await asyncio.sleep(0.3)

    line = sent_by(script, on_packet=left.append)
    assert b"".join(left) == tone(40) * 20
    # Overdue packets leave at once, those of a long stall later, and none is left out.
    first = next(number for number, payload in enumerate(line.payloads) if len(payload) > 20)
    assert all(len(payload) > 20 for payload in line.payloads[first : first + 40])
    at_ms = times_ms(line)
    overdue = np.count_nonzero(np.diff(at_ms[first : first + 40]) < 1)
    assert overdue == (0 if late_ms > RESYNC_MS else pytest.approx(late_ms / 20, abs=1.5))


@pytest.mark.parametrize("after_ms", [2, GRACE_MS - 3])
def test_a_packet_waits_for_speech_that_is_due_and_leaves_when_it_comes(after_ms):
    async def script(line: BotLine, track: PacedAudioTrack) -> None:
        await track.write(tone(40))
        while sum(len(payload) > 20 for payload in line.payloads) < 2:
            await asyncio.sleep(0.001)
        # The next packet is due 20 ms after the second one of speech.
        await asyncio.sleep(line.sent[-1][0] + 0.02 + after_ms / 1000 - asyncio.get_running_loop().time())
        await track.write(tone(40))
        await asyncio.sleep(0.1)

    line = sent_by(script)
    first = next(number for number, payload in enumerate(line.payloads) if len(payload) > 20)
    assert all(len(payload) > 20 for payload in line.payloads[first : first + 4])
    assert np.diff(times_ms(line))[first : first + 3] == pytest.approx(
        [20, 20 + after_ms, 20 - after_ms], abs=0.1
    )


def test_speech_that_does_not_come_in_time_has_ended():
    async def script(_line: BotLine, track: PacedAudioTrack) -> None:
        await track.write(tone(40))
        await asyncio.sleep(0.3)

    line = sent_by(script)
    sounding = [len(payload) > 20 for payload in line.payloads]
    first = sounding.index(True)
    gaps = np.diff(times_ms(line))
    # The packet in which the codec rings out is late, and the one after it is on time.
    assert gaps[first : first + 4] == pytest.approx([20, 20 + GRACE_MS, 20 - GRACE_MS, 20], abs=0.1)
    assert len(set(line.payloads[first + 3 :])) == 1


def test_a_clear_ends_the_wait_for_speech():
    async def script(_line: BotLine, track: PacedAudioTrack) -> None:
        await track.write(tone(20))
        await asyncio.sleep(0.024)
        track.clear()
        await asyncio.sleep(0.1)

    gaps = np.diff(times_ms(sent_by(script)))
    assert gaps.max() < 20 + GRACE_MS


def test_a_late_packet_of_speech_is_reported():
    late_ms: list[int] = []
    events = CallEvents()
    events.subscribe(PacketLate, lambda event: late_ms.append(event.late_ms))

    async def script(_line: BotLine, track: PacedAudioTrack) -> None:
        await asyncio.sleep(0.101)
        await stall(0.05)
        await asyncio.sleep(0.1)
        assert late_ms == []
        await track.write(tone(400))
        await asyncio.sleep(0.025)
        await stall(0.05)
        await asyncio.sleep(0.1)

    sent_by(script, events=events, lead_ms=1_000)
    assert len(late_ms) == 2 and late_ms[0] - late_ms[1] == 20 and 30 <= late_ms[0] <= 50


def test_nothing_is_numbered_while_the_peer_takes_no_audio():
    async def script(line: BotLine, _track: PacedAudioTrack) -> None:
        await asyncio.sleep(0.2)
        line.sender._enabled = False
        before = len(line.sent)
        await asyncio.sleep(0.2)
        assert len(line.sent) == before
        line.sender._enabled = True
        await asyncio.sleep(0.2)
        assert len(line.sent) > before

    packets = [packet for _, packet in sent_by(script).sent]
    assert set(np.diff([packet.sequence_number for packet in packets]) % 65_536) == {1}
    ticks = np.diff([packet.timestamp for packet in packets]) % 2**32
    assert sorted(set(ticks))[0] == 960 and 9_600 <= max(ticks) <= 11_520


def test_a_peer_that_takes_audio_later_gets_it_then():
    async def script(line: BotLine, _track: PacedAudioTrack) -> None:
        line.sender._enabled = False
        await asyncio.sleep(0.5)
        assert line.sent == []
        line.sender._enabled = True
        await asyncio.sleep(0.5)

    assert len(sent_by(script).sent) >= 24


def test_a_line_that_has_ended_ends_the_track():
    async def script(line: BotLine, track: PacedAudioTrack) -> None:
        await asyncio.sleep(0.1)
        writer = asyncio.create_task(track.write(tone(2_000)))
        await asyncio.sleep(0.1)
        line.disconnect()
        await writer
        assert track.readyState == "ended"

    sent_by(script)


def test_a_packet_that_cannot_be_made_ends_the_track():
    def fail(_pcm: bytes) -> None:
        raise ValueError("no packet")

    async def script(_line: BotLine, track: PacedAudioTrack) -> None:
        await asyncio.sleep(0.1)
        await track.write(tone(2_000))
        assert track.readyState == "ended"

    sent_by(script, on_packet=fail)


def test_a_track_that_is_stopped_sends_no_more_and_is_freed_at_once():
    gc.disable()
    try:

        async def scenario() -> None:
            line = BotLine()
            track = PacedAudioTrack(RATE_HZ, sender=line.sender)
            async with line.sending(track):
                await asyncio.sleep(0.1)
                track.stop()
                await asyncio.sleep(0)
                before = len(line.sent)
                await asyncio.sleep(0.1)
                assert len(line.sent) == before
            freed = weakref.ref(track)
            del track
            assert freed() is None

        virtual_time.run(scenario())
    finally:
        gc.enable()
