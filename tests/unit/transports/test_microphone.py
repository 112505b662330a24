"""The microphone transport without a device: formats, conversion, threads, and errors of PortAudio."""

import asyncio
import sys
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from parley.core.call_events import ClientDelayReported
from parley.core.errors import ConfigError
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.transports.device_output import StatesLatency
from parley.transports.local.microphone import AudioDevices, LocalTransport
from parley.transports.local.sound_lines import (
    DEVICE_RATES_HZ,
    Backlog,
    LineFormat,
    LoudspeakerBuffer,
    ToPipeline,
    choose_format,
)
from tests.voices import tone


def chosen(wanted_hz: int, *taken: LineFormat, own_hz: int = 48_000) -> LineFormat:
    return choose_format(
        wanted_hz, own_hz=own_hz, takes=lambda line: line in taken, device="the microphone 'x'"
    )


@pytest.mark.parametrize(
    ("taken", "expected"),
    [
        ([(16_000, 1), (48_000, 1)], (16_000, 1)),
        ([(48_000, 1), (44_100, 1)], (44_100, 1)),
        ([(16_000, 2), (48_000, 1)], (16_000, 2)),
        ([(11_025, 1), (8_000, 1)], (11_025, 1)),
    ],
)
def test_the_format_that_loses_least_is_chosen(taken: list[tuple[int, int]], expected: tuple[int, int]):
    lines = [LineFormat(*line) for line in taken]
    assert chosen(16_000, *lines, own_hz=11_025) == LineFormat(*expected)


def test_a_device_without_a_usable_rate_is_named_with_the_rates_that_were_tried():
    with pytest.raises(
        ConfigError, match="the microphone 'x' cannot be opened .*8000, 16000.* 48000, 96000 Hz"
    ):
        chosen(16_000, own_hz=8_000)


@pytest.mark.parametrize("rate_hz", [44_100, 48_000])
def test_what_the_device_delivers_becomes_mono_at_the_rate_of_the_pipeline(rate_hz: int):
    second = np.round(8_000 * np.sin(2 * np.pi * 440 * np.arange(rate_hz) / rate_hz)).astype("<i2")
    stereo = np.repeat(second, 2).tobytes()
    converter = ToPipeline(LineFormat(rate_hz, 2), 16_000)
    piece = rate_hz // 50 * 4
    heard = b"".join(converter.convert(stereo[at : at + piece]) for at in range(0, len(stereo), piece))
    samples = np.frombuffer(heard, dtype="<i2").astype(float)
    assert 16_000 - 16 * 25 <= len(samples) <= 16_000
    spectrum = np.abs(np.fft.rfft(samples[1_000:13_800]))
    assert np.argmax(spectrum) * 16_000 / 12_800 == pytest.approx(440, abs=2)
    assert np.sqrt(np.mean(samples[1_000:13_800] ** 2)) == pytest.approx(8_000 / np.sqrt(2), rel=0.02)


def test_a_device_that_has_the_rate_of_the_pipeline_is_not_touched():
    assert ToPipeline(LineFormat(16_000, 1), 16_000).convert(tone(20)) == tone(20)


def in_a_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def connected(
    devices: AudioDevices,
    *,
    output_rate_hz: int = 16_000,
    events: CallEvents | None = None,
    on_packet: Callable[[bytes, int], None] | None = None,
) -> LocalTransport:
    lines = await devices.choose(input_rate_hz=16_000, output_rate_hz=output_rate_hz)
    return await devices.connect(
        *lines, input_rate_hz=16_000, events=events or CallEvents(), on_packet=on_packet
    )


async def test_pieces_of_another_thread_arrive_in_order():
    backlog = Backlog()
    waiting = asyncio.create_task(backlog.get())
    await asyncio.sleep(0)
    in_a_thread(lambda: [backlog.put(bytes([n])) for n in range(3)] and None)
    async with asyncio.timeout(5):
        assert [await waiting, await backlog.get(), await backlog.get()] == [b"\0", b"\1", b"\2"]
    assert backlog.take_dropped() == 0


async def test_a_loop_that_is_late_loses_the_oldest_pieces():
    backlog = Backlog(max_pieces=3)
    in_a_thread(lambda: [backlog.put(bytes([n])) for n in range(5)] and None)
    assert [await backlog.get() for _ in range(3)] == [b"\2", b"\3", b"\4"]
    assert backlog.take_dropped() == 2
    assert backlog.take_dropped() == 0


async def test_a_writer_is_held_back_until_the_device_has_taken_enough():
    played: list[bytes] = []
    buffer = LoudspeakerBuffer(lead_bytes=4, on_packet=lambda pcm, _at_us: played.append(pcm))
    writing = asyncio.create_task(buffer.write(b"abcdefgh"))
    await asyncio.sleep(0)
    assert buffer.take(2) == b"ab"
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not writing.done()
    assert buffer.take(2) == b"cd"
    await asyncio.wait_for(writing, 5)
    assert played == [b"ab", b"cd"]


async def test_an_empty_buffer_plays_silence_that_counts_as_nothing_said():
    played: list[bytes] = []
    buffer = LoudspeakerBuffer(lead_bytes=4, on_packet=lambda pcm, _at_us: played.append(pcm))
    await buffer.write(b"ab")
    assert buffer.take(4) == b"ab\0\0"
    assert buffer.take(4) == bytes(4)
    await asyncio.sleep(0)
    assert played == [b"ab"]


async def test_an_interruption_is_silent_at_once_and_frees_the_writer():
    buffer = LoudspeakerBuffer(lead_bytes=4)
    writing = asyncio.create_task(buffer.write(b"abcdefgh"))
    await asyncio.sleep(0)
    buffer.clear()
    assert buffer.take(4) == bytes(4)
    await asyncio.wait_for(writing, 5)


async def test_the_volume_follows_with_the_next_piece_and_is_full_again_after_an_interruption():
    played: list[bytes] = []
    buffer = LoudspeakerBuffer(lead_bytes=4_000, on_packet=lambda pcm, _at_us: played.append(pcm))
    loud = np.full(320, 8_000, dtype="<i2").tobytes()
    for _ in range(3):
        await buffer.write(loud)
    buffer.set_gain_db(-20)
    ramp, lower = (np.frombuffer(buffer.take(640), dtype="<i2") for _ in range(2))
    assert (ramp[0], ramp[-1]) == (7_978, 800) and (np.diff(ramp) <= 0).all()
    assert (lower == 800).all()
    buffer.clear()
    await buffer.write(loud)
    assert buffer.take(640) == loud
    # Listeners to the playback are notified of played audio.
    await asyncio.sleep(0)
    assert played[1] == lower.tobytes()


class ScriptedPortAudio:
    """PortAudio binding of a machine with the given devices; its streams run when the test says so."""

    paInt16, paContinue, paInputOverflow, paOutputUnderflow = 8, 0, 2, 4

    def __init__(
        self,
        *,
        microphone: bool = True,
        formats: frozenset[LineFormat],
        opens: bool = True,
        latency_s: float = 0.05,
    ) -> None:
        self.microphone, self.formats, self.opens = microphone, formats, opens
        self.latency_s = latency_s
        self.streams: dict[str, Any] = {}
        self.closed: list[str] = []
        self.calls_on: set[str] = set()

    def PyAudio(self) -> "ScriptedPortAudio":  # noqa: N802 - the binding's name
        self.calls_on.add(threading.current_thread().name)
        return self

    def get_default_input_device_info(self) -> dict[str, Any]:
        if not self.microphone:
            raise OSError("No Default Input Device Available")
        return {"index": 0, "name": "front", "defaultSampleRate": 48_000.0}

    def get_default_output_device_info(self) -> dict[str, Any]:
        return {"index": 1, "name": "rear", "defaultSampleRate": 48_000.0}

    def is_format_supported(self, rate_hz: int, **asked: Any) -> bool:
        channels = asked.get("input_channels") or asked["output_channels"]
        if LineFormat(rate_hz, channels) not in self.formats:
            raise ValueError("Invalid sample rate", -9997)
        return True

    def open(self, **asked: Any) -> SimpleNamespace:
        self.calls_on.add(threading.current_thread().name)
        name = "input" if asked.get("input") else "output"
        if name == "output" and not self.opens:
            raise OSError(-9985, "Device unavailable")
        self.streams[name] = asked
        return SimpleNamespace(
            start_stream=lambda: None,
            close=lambda: self.closed.append(name),
            get_output_latency=self._output_latency,
        )

    def _output_latency(self) -> float:
        self.calls_on.add(threading.current_thread().name)
        return self.latency_s

    def terminate(self) -> None:
        self.closed.append("library")


def install(monkeypatch: pytest.MonkeyPatch, binding: ScriptedPortAudio) -> ScriptedPortAudio:
    monkeypatch.setitem(sys.modules, "pyaudio", binding)  # type: ignore[arg-type]  # stands for a module
    return binding


STEREO_48K = frozenset({LineFormat(48_000, 2)})


async def test_hardware_with_one_stereo_rate_is_converted_both_ways(monkeypatch: pytest.MonkeyPatch):
    binding = install(monkeypatch, ScriptedPortAudio(formats=STEREO_48K))
    async with AudioDevices() as devices:
        transport = await connected(devices, output_rate_hz=24_000)
        assert transport.microphone.format == transport.loudspeaker.format == LineFormat(48_000, 2)

        binding.streams["input"]["stream_callback"](b"\1\0\3\0", 1, {}, 0)
        assert await asyncio.wait_for(transport.backlog.get(), 5) == b"\1\0\3\0"

        await transport.buffer.write(b"\1\0\2\0")
        pcm, _ = binding.streams["output"]["stream_callback"](None, 3, {}, 0)
        assert pcm == b"\1\0\1\0\2\0\2\0\0\0\0\0"
    assert binding.closed == ["input", "output", "library"]


async def test_portaudio_is_only_called_on_its_own_thread(monkeypatch: pytest.MonkeyPatch):
    binding = install(monkeypatch, ScriptedPortAudio(formats=STEREO_48K))
    async with AudioDevices() as devices:
        await connected(devices)
    assert binding.calls_on == {"portaudio_0"}


async def test_what_the_loudspeaker_takes_is_told_at_its_rate_and_time(monkeypatch: pytest.MonkeyPatch):
    binding = install(monkeypatch, ScriptedPortAudio(formats=STEREO_48K))
    received: list[tuple[bytes, int]] = []
    async with AudioDevices() as devices:
        transport = await connected(
            devices, output_rate_hz=24_000, on_packet=lambda *piece: received.append(piece)
        )
        assert isinstance(transport, StatesLatency)
        assert transport.loudspeaker.format.rate_hz == 48_000
        await transport.buffer.write(b"\1\0\2\0")
        before_us = LoopClock().now_us()
        in_a_thread(lambda: binding.streams["output"]["stream_callback"](None, 3, {}, 0) and None)
        after_us = LoopClock().now_us()
        # Until here the loop has not been notified.
        assert received == []
        await asyncio.sleep(0)
    ((pcm, at_us),) = received
    assert pcm == b"\1\0\2\0"
    assert before_us <= at_us <= after_us
    assert transport.output_latency_ms == 50


@pytest.mark.parametrize(
    ("reported_s", "delay_ms"), [(0.085, 85), (0.0, 60), (-1.0, 60), (3.0, 60), (2.0, 2_000)]
)
async def test_the_delay_to_the_ear_is_what_the_loudspeaker_holds(
    monkeypatch: pytest.MonkeyPatch, reported_s: float, delay_ms: int
):
    install(monkeypatch, ScriptedPortAudio(formats=STEREO_48K, latency_s=reported_s))
    events, received = CallEvents(), list[ClientDelayReported]()
    events.subscribe(ClientDelayReported, received.append)
    async with AudioDevices() as devices:
        await connected(devices, events=events)
    assert [report.delay_ms for report in received] == [delay_ms]


async def test_a_machine_without_a_microphone_says_so(monkeypatch: pytest.MonkeyPatch):
    binding = install(monkeypatch, ScriptedPortAudio(microphone=False, formats=STEREO_48K))
    with pytest.raises(ConfigError, match="no microphone on this machine: No Default Input"):
        async with AudioDevices():
            pass
    assert binding.closed == ["library"]


async def test_hardware_without_a_usable_rate_says_which_were_tried(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, ScriptedPortAudio(formats=frozenset()))
    async with AudioDevices() as devices:
        with pytest.raises(ConfigError, match=f"the microphone 'front' .* {DEVICE_RATES_HZ[-1]} Hz"):
            await connected(devices)


async def test_a_device_that_is_taken_is_said_and_the_other_one_let_go(monkeypatch: pytest.MonkeyPatch):
    binding = install(monkeypatch, ScriptedPortAudio(formats=STEREO_48K, opens=False))
    async with AudioDevices() as devices:
        with pytest.raises(ConfigError, match="the loudspeaker 'rear' does not open: .*Device unavailable"):
            await connected(devices)
    assert binding.closed == ["input", "library"]


async def test_a_machine_without_the_binding_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pyaudio", None)
    with pytest.raises(ConfigError, match="needs PortAudio and the extra 'local'"):
        async with AudioDevices():
            pass
