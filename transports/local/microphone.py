"""A call over this machine's microphone and loudspeaker, through PortAudio.

Pieces of 20 ms come from the microphone and go straight into the pipeline; the bot's PCM goes out.
``sound_lines`` chooses the rate at which a device is opened, and connects its thread to the event loop. Every
PortAudio call but the callbacks runs on one thread of ``AudioDevices``, which owns the library and the
streams. The tasks (the reader and the watch) belong to the input side. A device that stops calling back ends
the conversation, and ``LocalTransport.lost`` names it. An interruption is silent after the device's own
latency.

Pipecat's own PortAudio transport was rejected for three reasons. It reports no caller, so the bot never
greets. It opens the microphone before the pipeline has started. It writes with a blocking call from which a
hang-up tears away the stream, which ended the process with a corrupted heap.
"""

import asyncio
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any

import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    InputAudioRawFrame,
    OutputAudioRawFrame,
    StartFrame,
)
from pipecat.transports.base_transport import BaseTransport, TransportParams

from parley.core.call_events import ClientDelayReported
from parley.core.errors import ConfigError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.runtime.event_stream import CallEvents
from parley.transports.direct_input import DirectAudioInput
from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.local.sound_lines import (
    LOST_MS,
    Backlog,
    Device,
    LineFormat,
    LoudspeakerBuffer,
    ToPipeline,
    choose_format,
)
from parley.transports.pipecat_internals import declare_events, emit

INPUT_PIECE_MS = 20
# PortAudio gives the device two of these. Two of 20 ms at 16 kHz on PulseAudio 16 ran dry repeatedly (up to
# 108 times in 2.5 s), and each time PortAudio dropped the audio it held. Two of 25 ms and more never did.
OUTPUT_PIECE_MS = 30
OUTPUT_PIECES = 2
# As for a browser call: how late the loop may be before a word has a gap.
LEAD_MS = 60
WATCH_MS = 250


class LocalInput(DirectAudioInput):
    """Microphone side of the call; owns the reader and the watch over both devices."""

    def __init__(self, transport: "LocalTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._local = transport
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        await self._local.start_devices()
        self._tasks = [
            self.create_task(self._read(), name="microphone"),
            self.create_task(self._watch(), name="device_watch"),
        ]
        await self._local.connected()

    async def cleanup(self) -> None:
        await super().cleanup()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)

    async def _read(self) -> None:
        converter = ToPipeline(self._local.microphone.format, self.sample_rate)
        backlog = self._local.backlog
        while True:
            pcm = converter.convert(await backlog.get())
            if pcm:
                await self.push_audio_frame(
                    InputAudioRawFrame(audio=pcm, sample_rate=self.sample_rate, num_channels=1)
                )

    async def _watch(self) -> None:
        local = self._local
        while True:
            await asyncio.sleep(WATCH_MS / 1000)
            dropped = local.backlog.take_dropped()
            if dropped:
                logger.warning(
                    f"dropped {dropped * INPUT_PIECE_MS} ms of input audio: this process is overloaded"
                )
            ran_dry = local.loudspeaker.take_xruns()
            if ran_dry:
                logger.warning(
                    f"{local.loudspeaker.name} ran out of audio {ran_dry} times, so the speech has gaps"
                )
            lost_input = local.microphone.take_xruns()
            if lost_input:
                logger.warning(f"{local.microphone.name} lost audio {lost_input} times")
            lost = next((line for line in (local.microphone, local.loudspeaker) if line.is_lost()), None)
            if lost is not None:
                await local.disconnected(f"{lost.name} has gone: nothing from it for {LOST_MS} ms")
                return


class LocalOutput(InterruptibleOutput):
    """Loudspeaker side of the call; an interruption also drops the audio queued for the device."""

    def __init__(self, transport: "LocalTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._local = transport

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        return await self._local.buffer.write(frame.audio)

    def drop_unsent(self) -> None:
        self._local.buffer.clear()


class LocalTransport(BaseTransport):
    """Both devices as one call.

    Event handlers available: ``on_client_connected(transport, client)`` when both devices run,
    ``on_client_disconnected(transport, client)`` when one is lost.

    Attributes:
        lost: reason for which the call ended by itself, or None.
    """

    def __init__(
        self,
        devices: "AudioDevices",
        microphone: Device,
        loudspeaker: Device,
        *,
        rate_hz: int,
        on_packet: Callable[[bytes, int], None] | None,
    ) -> None:
        super().__init__()
        self.microphone = microphone
        self.loudspeaker = loudspeaker
        self.backlog = Backlog()
        lead_bytes = LEAD_MS * loudspeaker.format.rate_hz // 1000 * PCM_BYTES_PER_SAMPLE
        self.buffer = LoudspeakerBuffer(lead_bytes=lead_bytes, on_packet=on_packet)
        self.lost: str | None = None
        self._devices = devices
        params = TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=rate_hz,
            # Pipecat converts from the voice's rate to this one, and detects where speech ends.
            audio_out_sample_rate=loudspeaker.format.rate_hz,
            # The device plays silence by itself.
            audio_out_end_silence_secs=0,
        )
        self._local_input = LocalInput(self, params)
        self._local_output = LocalOutput(self, params)
        declare_events(self, "on_client_connected", "on_client_disconnected")

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain of the next piece that the device takes (``SupportsGain``)."""
        self.buffer.set_gain_db(gain_db)

    @property
    def output_latency_ms(self) -> int:
        """See ``StatesLatency``."""
        return self.loudspeaker.latency_ms

    def input(self) -> LocalInput:
        return self._local_input

    def output(self) -> LocalOutput:
        return self._local_output

    async def start_devices(self) -> None:
        """Start both devices."""
        await self._devices.start(self.loudspeaker, self.microphone)

    async def connected(self) -> None:
        """Emit ``on_client_connected``."""
        await emit(self, "on_client_connected", self.microphone)

    async def disconnected(self, why: str) -> None:
        """Record why the caller cannot be reached any more, and emit ``on_client_disconnected``."""
        self.lost = why
        await emit(self, "on_client_disconnected", self.microphone)


class AudioDevices:
    """PortAudio, its one thread and its streams: an async context manager that ends all three.

    Entering finds the default devices, so that a missing one is reported before engines are loaded.

    Raises ConfigError on entering when the binding, the library or a device is missing.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="portaudio")
        self._binding: ModuleType | None = None
        self._library: Any = None
        self._lines: list[Device] = []

    async def __aenter__(self) -> "AudioDevices":
        try:
            await self._call(self._find)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._call(self._close)
        self._thread.shutdown(wait=False)

    async def choose(self, *, input_rate_hz: int, output_rate_hz: int) -> tuple[Device, Device]:
        """Return the microphone and the loudspeaker, not open, with the rates that they take.

        Args:
            input_rate_hz: of what the pipeline hears.
            output_rate_hz: of the bot's voice.

        Raises:
            ConfigError: a device takes no rate that can be converted.
        """
        microphone = Device(*await self._call(lambda: self._choose("input", input_rate_hz)))
        return microphone, Device(*await self._call(lambda: self._choose("output", output_rate_hz)))

    async def connect(
        self,
        microphone: Device,
        loudspeaker: Device,
        *,
        input_rate_hz: int,
        events: CallEvents,
        on_packet: Callable[[bytes, int], None] | None = None,
    ) -> LocalTransport:
        """Open both devices for one call.

        Args:
            microphone: as chosen.
            loudspeaker: as chosen.
            input_rate_hz: of what the pipeline hears.
            events: of the call.
            on_packet: told, on the loop, the PCM of every piece of bot audio, at the loudspeaker's rate, and
                when the device took it, in microseconds of the loop's time.

        Raises:
            ConfigError: a device does not open.
        """
        transport = LocalTransport(self, microphone, loudspeaker, rate_hz=input_rate_hz, on_packet=on_packet)
        await self._call(lambda: self._open(transport))
        # What the loudspeaker's device holds.
        events.publish(ClientDelayReported(events.now_ms(), loudspeaker.latency_ms))
        return transport

    async def start(self, *lines: Device) -> None:
        """Start opened devices."""
        for line in lines:
            await self._call(line.start)

    async def _call(self, work: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _find(self) -> None:
        try:
            import pyaudio
        except ImportError as error:
            raise ConfigError(
                "the local transport needs PortAudio and the extra 'local': "
                "sudo apt-get install portaudio19-dev && .venv/bin/pip install -e '.[local]'"
            ) from error
        self._binding = pyaudio
        try:
            with _quiet_libraries():
                self._library = pyaudio.PyAudio()
        except OSError as error:
            raise ConfigError(f"PortAudio failed to start: {error}") from error
        for side in ("input", "output"):
            try:
                self._describe(side)
            except ConfigError:
                self._close()
                raise

    def _describe(self, side: str) -> dict[str, Any]:
        try:
            facts: dict[str, Any] = (
                self._library.get_default_input_device_info()
                if side == "input"
                else self._library.get_default_output_device_info()
            )
            return facts
        except OSError as error:
            missing = "microphone" if side == "input" else "loudspeaker"
            raise ConfigError(f"there is no {missing} on this machine: {error}") from error

    def _choose(self, side: str, wanted_hz: int) -> tuple[str, LineFormat]:
        assert self._binding is not None
        found = self._describe(side)
        sample_format = self._binding.paInt16

        def takes(line: LineFormat) -> bool:
            asked = {
                f"{side}_device": found["index"],
                f"{side}_channels": line.channels,
                f"{side}_format": sample_format,
            }
            try:
                return bool(self._library.is_format_supported(line.rate_hz, **asked))
            except ValueError:
                # PyAudio raises this for an unsupported format.
                return False

        kind = "microphone" if side == "input" else "loudspeaker"
        name = f"the {kind} {found['name']!r}"
        with _quiet_libraries():
            line = choose_format(
                wanted_hz, own_hz=round(found["defaultSampleRate"]), takes=takes, device=name
            )
        if line.rate_hz != wanted_hz:
            logger.info(
                f"{name} is opened at {line.rate_hz} Hz and resampled, because it does not support "
                f"{wanted_hz}"
            )
        return name, line

    def _open(self, transport: LocalTransport) -> None:
        assert self._binding is not None
        proceed = self._binding.paContinue
        microphone, loudspeaker = transport.microphone, transport.loudspeaker
        backlog, buffer = transport.backlog, transport.buffer
        overflow, underflow = self._binding.paInputOverflow, self._binding.paOutputUnderflow

        def on_heard(pcm: bytes, _samples: int, _times: object, status: int) -> tuple[None, int]:
            microphone.note_callback(xrun=bool(status & overflow))
            backlog.put(pcm)
            return None, proceed

        def on_wanted(_pcm: None, samples: int, _times: object, status: int) -> tuple[bytes, int]:
            loudspeaker.note_callback(xrun=bool(status & underflow))
            pcm = buffer.take(samples * PCM_BYTES_PER_SAMPLE)
            return _spread(pcm, loudspeaker.format.channels), proceed

        self._open_line(microphone, INPUT_PIECE_MS, input=True, stream_callback=on_heard)
        self._open_line(loudspeaker, OUTPUT_PIECE_MS, output=True, stream_callback=on_wanted)
        loudspeaker.learn_latency(assumed_ms=OUTPUT_PIECES * OUTPUT_PIECE_MS)

    def _open_line(self, line: Device, piece_ms: int, **how: Any) -> None:
        assert self._binding is not None
        try:
            with _quiet_libraries():
                stream = self._library.open(
                    rate=line.format.rate_hz,
                    channels=line.format.channels,
                    format=self._binding.paInt16,
                    frames_per_buffer=math.ceil(line.format.rate_hz * piece_ms / 1000),
                    start=False,
                    **how,
                )
        except OSError as error:
            raise ConfigError(f"{line.name} does not open: {error}") from error
        line.opened(stream)
        self._lines.append(line)

    def _close(self) -> None:
        lines, self._lines = self._lines, []
        for line in lines:
            line.close()
        library, self._library = self._library, None
        if library is not None:
            library.terminate()


def _spread(pcm: bytes, channels: int) -> bytes:
    if channels == 1:
        return pcm
    return np.repeat(np.frombuffer(pcm, dtype="<i2"), channels).tobytes()


@contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Send to the debug log what ALSA and JACK write to stderr: a page about every card that is missing."""
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as page:
        os.dup2(page.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            page.seek(0)
            said = page.read().decode(errors="replace").strip()
    if said:
        logger.debug(f"messages of the sound libraries:\n{said}")
