"""Sound devices as streams of PCM: the rate at which each is opened, and the buffers to and from its thread.

PortAudio calls back from a thread of its own for each device, and those callbacks never wait for the event
loop. The microphone's callback leaves its piece in ``Backlog``, where a late loop loses the oldest piece. The
loudspeaker's callback takes from ``LoudspeakerBuffer``. That buffer gives silence when empty, holds the
writer back when full, and is emptied by an interruption. Both sides are bounded. This module uses neither
Pipecat nor PortAudio: ``microphone`` owns the library and the streams.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr

from parley.audio.gain import RampedGain
from parley.core.errors import ConfigError

MAX_BACKLOG_PIECES = 25
# Rates that sound hardware takes; the device's own rate is tried as well.
DEVICE_RATES_HZ = (16_000, 24_000, 32_000, 44_100, 48_000, 96_000)
# A device that has not called back for so long is gone: unplugged, or its sound server has ended. PulseAudio
# was silent for 1.9 s after the first two callbacks of a loudspeaker that had been idle.
LOST_MS = 5_000
# A longer latency is not trusted: PortAudio passes on the figure of the driver.
ABSURD_LATENCY_MS = 2_000


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Format in which a device is opened: 16-bit samples at this rate.

    Attributes:
        rate_hz: samples per second.
        channels: 1, or 2 for hardware that has no mono.
    """

    rate_hz: int
    channels: int


def choose_format(
    wanted_hz: int, *, own_hz: int, takes: Callable[[LineFormat], bool], device: str
) -> LineFormat:
    """Return the format that loses least: the wanted rate, the next higher ones, then lower ones; mono first.

    Args:
        wanted_hz: rate of the pipeline.
        own_hz: rate that the device reports as its own.
        takes: returns whether the device can be opened in a format.
        device: name of the device, for the error.

    Raises:
        ConfigError: the device takes none of the rates; the message lists them.
    """
    rates = sorted({wanted_hz, own_hz, *DEVICE_RATES_HZ})
    by_loss = [rate for rate in rates if rate >= wanted_hz] + [
        rate for rate in rates[::-1] if rate < wanted_hz
    ]
    for rate_hz in by_loss:
        for channels in (1, 2):
            line = LineFormat(rate_hz, channels)
            if takes(line):
                return line
    tried = ", ".join(str(rate) for rate in rates)
    raise ConfigError(f"{device} cannot be opened with 16-bit samples at any of {tried} Hz")


class ToPipeline:
    """Converter from the microphone's format to mono at the pipeline's rate, piece by piece.

    The delay of soxr's "LQ" is 20 ms at most, and it stops aliasing (a tone of 10 kHz at 48 kHz came out at
    -54 dB). The better qualities take 37 ms and more, and deliver in bursts.
    """

    def __init__(self, line: LineFormat, rate_hz: int) -> None:
        self._channels = line.channels
        self._resampler = (
            soxr.ResampleStream(line.rate_hz, rate_hz, 1, dtype="int16", quality="LQ")
            if line.rate_hz != rate_hz
            else None
        )

    def convert(self, pcm: bytes) -> bytes:
        """Convert 16-bit PCM of the device to mono at the pipeline's rate; empty while the filter fills."""
        samples = np.frombuffer(pcm, dtype="<i2")
        if self._channels > 1:
            mixed = samples.reshape(-1, self._channels).astype(np.int32).sum(axis=1) // self._channels
            samples = mixed.astype("<i2")
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples)
        return samples.tobytes()


class Backlog:
    """Bounded queue of pieces from the microphone's thread to the event loop.

    When it is full, the oldest piece is dropped. Create it on the loop that reads it.
    """

    def __init__(self, *, max_pieces: int = MAX_BACKLOG_PIECES) -> None:
        self._loop = asyncio.get_running_loop()
        self._max_pieces = max_pieces
        self._pieces: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._arrived = asyncio.Event()
        self._dropped = 0

    def put(self, pcm: bytes) -> None:
        """Add a piece from any thread, without waiting for the loop."""
        with self._lock:
            # Only the put that finds it empty wakes the reader, so a late loop has one call to run, not many.
            was_empty = not self._pieces
            self._pieces.append(pcm)
            if len(self._pieces) > self._max_pieces:
                self._pieces.popleft()
                self._dropped += 1
        if was_empty:
            self._loop.call_soon_threadsafe(self._arrived.set)

    async def get(self) -> bytes:
        """Wait for a piece; return the oldest one."""
        while True:
            with self._lock:
                if self._pieces:
                    return self._pieces.popleft()
                self._arrived.clear()
            await self._arrived.wait()

    def take_dropped(self) -> int:
        """Return how many pieces were dropped since the last call."""
        with self._lock:
            dropped, self._dropped = self._dropped, 0
        return dropped


class LoudspeakerBuffer:
    """Buffer of the bot's PCM between the event loop and the loudspeaker's thread.

    When it is full, ``write`` waits; when it is empty, ``take`` returns silence. Create it on the loop that
    writes it.

    Args:
        lead_bytes: how much may wait to be played when ``write`` returns.
        on_packet: told, on the loop, the PCM of every piece that was taken, as loud as it is, and when in
            microseconds of the loop's time; must not block.
    """

    def __init__(self, *, lead_bytes: int, on_packet: Callable[[bytes, int], None] | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self._lead_bytes = lead_bytes
        self._on_packet = on_packet
        self._pcm = bytearray()
        self._gain = RampedGain()
        # Taken by the device and not yet reported, with the time; the loop may be late.
        self._untold: deque[tuple[bytes, int]] = deque()
        self._lock = threading.Lock()
        self._room = asyncio.Event()
        self._clears = 0

    async def write(self, pcm: bytes) -> bool:
        """Queue PCM; return once at most the lead is waiting. False when it was dropped meanwhile."""
        clears = self._clears
        with self._lock:
            self._pcm += pcm
        while True:
            with self._lock:
                if len(self._pcm) <= self._lead_bytes:
                    return clears == self._clears
                self._room.clear()
            await self._room.wait()

    def set_gain_db(self, gain_db: float) -> None:
        """Reach this gain with the next piece."""
        with self._lock:
            self._gain.set_db(gain_db)

    def take(self, size: int) -> bytes:
        """Return the next ``size`` bytes, padded with silence. May run on any thread; never waits."""
        # The loop's clock may be read here: asyncio's is the system's. A callback on the loop would be late.
        at_us = round(self._loop.time() * 1_000_000)
        with self._lock:
            pcm = self._gain.apply(bytes(self._pcm[:size]))
            del self._pcm[:size]
            if pcm:
                # Bounded: it never holds more than the lead and one chunk.
                self._untold.append((pcm, at_us))
        if pcm:
            self._loop.call_soon_threadsafe(self._taken)
        return pcm.ljust(size, b"\0")

    def _taken(self) -> None:
        self._room.set()
        while self._untold:
            pcm, at_us = self._untold.popleft()
            if self._on_packet:
                self._on_packet(pcm, at_us)

    def clear(self) -> None:
        """Drop all queued PCM and release a waiting ``write``, after reporting audio that was taken."""
        with self._lock:
            self._pcm.clear()
            self._gain.reset()
        self._clears += 1
        self._taken()


class Device:
    """PortAudio stream and the time of its last callback. All calls run on the thread of its owner.

    Args:
        name: name in messages.
        line_format: format in which it is opened.

    Attributes:
        latency_ms: time between a callback and the sound of its audio; set once the device is open.
    """

    def __init__(self, name: str, line_format: LineFormat) -> None:
        self.name = name
        self.format = line_format
        self._xruns = 0
        self.latency_ms = 0
        self._stream: Any = None
        self._alive_s: float | None = None

    def note_callback(self, *, xrun: bool) -> None:
        """Record a callback, from PortAudio's thread, and whether the device over- or underran."""
        self._alive_s = time.monotonic()
        if xrun:
            self._xruns += 1

    def take_xruns(self) -> int:
        """Return the number of over- or underruns since the last call."""
        xruns, self._xruns = self._xruns, 0
        return xruns

    def opened(self, stream: Any) -> None:
        """Take over the stream."""
        self._stream = stream

    def learn_latency(self, *, assumed_ms: int) -> None:
        """Set the latency of the open output: PortAudio's figure if plausible, else the assumed one."""
        reported_ms = round(self._stream.get_output_latency() * 1000)
        self.latency_ms = reported_ms if 0 < reported_ms <= ABSURD_LATENCY_MS else assumed_ms

    def start(self) -> None:
        """Start the callbacks."""
        self._alive_s = time.monotonic()
        self._stream.start_stream()

    def close(self) -> None:
        """Close at once, without playing the rest. PortAudio waits for a running callback."""
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def is_lost(self) -> bool:
        """Return whether it was started and has stopped calling back."""
        return self._alive_s is not None and (time.monotonic() - self._alive_s) * 1000 > LOST_MS
