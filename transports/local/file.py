"""A WAV file as the caller, in real time, and the call recorded in stereo.

Input: mono PCM of the caller. Output: a recording (caller left, bot right) and the event
``FileCall.finished``. It is set once the caller's audio is over and the bot has been silent for ``tail_ms``,
or when ``limit_s`` has passed. The caller waits for the greeting, as a human does. It speaks when the bot has
been silent for a moment, or after ``patience_ms`` without a greeting.

The input side owns two tasks: the caller's microphone, 20 ms at a time, and the recording's disk writes. The
output side is paced by the clock. A chunk is taken when it is due, so that a barge-in finds the rest still in
Pipecat's queue.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path

from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame, StartFrame
from pipecat.transports.base_transport import BaseTransport, TransportParams

from parley.audio.gain import RampedGain
from parley.core.call_events import ClientDelayReported
from parley.core.clock import Clock
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, samples_to_ms
from parley.recording.stereo import Side, StereoRecording
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.transports.direct_input import DirectAudioInput
from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.pipecat_internals import declare_events, emit

SETTLE_MS = 500
FLUSH_MS = 5_000
# A chunk at most this late after the previous one is recorded without a gap, as from a device's buffer. A
# timer that is 2 ms late each time would otherwise put a click between all chunks and make a reply longer.
BUFFER_MS = 40


def file_call_params(rate_hz: int) -> TransportParams:
    """Return the parameters of a call: one rate in both directions, and no silence after the last word."""
    return TransportParams(
        audio_in_enabled=True,
        audio_out_enabled=True,
        audio_in_sample_rate=rate_hz,
        audio_out_sample_rate=rate_hz,
        audio_out_end_silence_secs=0,
    )


class FileCall:
    """State shared by both sides of one call: the time line, the recording and the end of the bot's speech.

    Args:
        pcm: audio of the caller, 16-bit mono.
        rate_hz: rate of the caller, the bot and the recording.
        output: path of the stereo WAV to write.
        patience_ms: time for which the caller waits for a greeting to begin.
        tail_ms: silence of the bot after which the call is over.
        limit_s: longest call beyond the caller's own audio.
        frame_ms: length of the pieces that the microphone delivers.
        talks_over: the caller does not wait for a greeting.
        begins_ms: the microphone delivers nothing before this time.
        first_samples: length of the first piece; 0 for that of the others.
        pauses: places in the audio, in samples, before which the microphone delivers nothing for a time, in
            milliseconds.
        reports_delay: the transport reports that a chunk is heard when it is played.
        on_packet: called with the PCM of every chunk of bot audio as it is played, and with its place in the
            recording, on the clock of the event loop; must not block.
    """

    def __init__(
        self,
        pcm: bytes,
        *,
        rate_hz: int,
        output: Path,
        patience_ms: int = 2_000,
        tail_ms: int = 3_000,
        limit_s: int = 120,
        frame_ms: int = 20,
        talks_over: bool = False,
        begins_ms: int = 0,
        first_samples: int = 0,
        pauses: Sequence[tuple[int, int]] = (),
        reports_delay: bool = True,
        on_packet: Callable[[bytes, int], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.pcm = pcm
        self.rate_hz = rate_hz
        self.clock: Clock = clock or LoopClock()
        self.recording = StereoRecording(output, rate_hz=rate_hz)
        self.frame_ms = frame_ms
        self.talks_over = talks_over
        self.begins_ms = begins_ms
        self.first_samples = first_samples
        self.pauses = tuple(pauses)
        self.reports_delay = reports_delay
        self.patience_ms = patience_ms
        self.on_packet = on_packet
        self.tail_ms = tail_ms
        self.limit_ms = limit_s * 1000 + len(pcm) // PCM_BYTES_PER_SAMPLE * 1000 // rate_hz
        self.finished = asyncio.Event()
        self._started_us: int | None = None
        self.bot_until_ms: int | None = None

    def start(self) -> None:
        """Begin the call now; times count from here."""
        self._started_us = self.clock.now_us()

    def now_ms(self) -> int:
        """Return milliseconds since the call began."""
        started_us = self._started_us if self._started_us is not None else self.clock.now_us()
        return (self.clock.now_us() - started_us) // 1000

    def loop_us(self, at_ms: int) -> int:
        """Return a time of the call on the clock of the event loop."""
        return (self._started_us or 0) + at_ms * 1000

    def bot_silent_ms(self) -> int:
        """Return for how many milliseconds the bot has been silent; since the start when it never spoke."""
        return self.now_ms() - (self.bot_until_ms or 0)

    async def sleep_until_ms(self, at_ms: int) -> None:
        """Return ``at_ms`` after the start of the call."""
        started_us = self._started_us if self._started_us is not None else self.clock.now_us()
        await self.clock.sleep_until_ms(-(-started_us // 1000) + at_ms)


class FileInput(DirectAudioInput):
    """Microphone of the simulated caller: pushes the file's audio in real time and owns the call's tasks."""

    def __init__(self, transport: "FileTransport", call: FileCall, params: TransportParams) -> None:
        super().__init__(params)
        self._transport_events = transport
        self._call = call
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        self._call.start()
        self._tasks = [
            self.create_task(self._speak(), name="microphone"),
            self.create_task(self._write_recording(), name="recording"),
        ]
        await emit(self._transport_events, "on_client_connected", self._call)

    async def cleanup(self) -> None:
        await super().cleanup()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)

    async def _speak(self) -> None:
        call = self._call
        frame_ms = call.frame_ms
        frame_bytes = ms_to_samples(frame_ms, call.rate_hz) * PCM_BYTES_PER_SAMPLE
        silence = bytes(frame_bytes)
        next_bytes = call.first_samples * PCM_BYTES_PER_SAMPLE or frame_bytes
        position, at_ms, speaking, said_ms = 0, call.begins_ms, call.talks_over, None
        pauses = deque(call.pauses)
        while True:
            while pauses and position >= pauses[0][0] * PCM_BYTES_PER_SAMPLE:
                at_ms += pauses.popleft()[1]
            # A piece comes when it is complete, also the first one of another length.
            piece_ms = (
                samples_to_ms(next_bytes // PCM_BYTES_PER_SAMPLE, call.rate_hz) if speaking else frame_ms
            )
            await call.sleep_until_ms(at_ms + piece_ms)
            if not speaking:
                greeted = call.bot_until_ms is not None and call.bot_silent_ms() >= SETTLE_MS
                speaking = greeted or (call.bot_until_ms is None and at_ms >= call.patience_ms)
            piece = silence
            if speaking and position < len(call.pcm):
                piece = call.pcm[position : position + next_bytes].ljust(next_bytes, b"\0")
                position, next_bytes = position + next_bytes, frame_bytes
            call.recording.place(Side.CALLER, ms_to_samples(at_ms, call.rate_hz), piece)
            await self.push_audio_frame(
                InputAudioRawFrame(audio=piece, sample_rate=call.rate_hz, num_channels=1)
            )
            at_ms += piece_ms
            if said_ms is None and position >= len(call.pcm):
                said_ms = at_ms
            over = said_ms is not None and min(at_ms - said_ms, call.bot_silent_ms()) >= call.tail_ms
            if over or at_ms > call.limit_ms:
                call.finished.set()
                return

    async def _write_recording(self) -> None:
        at_ms = 0
        while True:
            at_ms += FLUSH_MS
            await self._call.sleep_until_ms(at_ms)
            self._call.recording.settle()
            await asyncio.to_thread(self._call.recording.write)


class FileOutput(InterruptibleOutput):
    """Ear of the simulated caller: records the bot's audio at the time at which it is due."""

    def __init__(self, call: FileCall, params: TransportParams) -> None:
        super().__init__(params)
        self._call = call
        self._next_ms = 0
        self.gain = RampedGain()

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        call = self._call
        now_ms = call.now_ms()
        at_ms = now_ms if now_ms > self._next_ms + BUFFER_MS else self._next_ms
        duration_ms = len(frame.audio) // PCM_BYTES_PER_SAMPLE * 1000 // call.rate_hz
        pcm = self.gain.apply(frame.audio)
        call.recording.place(Side.BOT, ms_to_samples(at_ms, call.rate_hz), pcm)
        self._next_ms = at_ms + duration_ms
        call.bot_until_ms = self._next_ms
        self._on_packet(pcm, at_ms)
        # Taken when due: the next chunk is requested when this one has been played.
        await call.sleep_until_ms(self._next_ms)
        return True

    def drop_unsent(self) -> None:
        # Nothing is queued here. The next audio is at full volume.
        self.gain.reset()

    def _on_packet(self, pcm: bytes, at_ms: int) -> None:
        if self._call.on_packet:
            self._call.on_packet(pcm, self._call.loop_us(at_ms))


class FileTransport(BaseTransport):
    """Both sides of one call from a file.

    Event handlers available: ``on_client_connected(transport, call)``.
    """

    def __init__(self, call: FileCall, params: TransportParams, events: CallEvents) -> None:
        super().__init__()
        self._file_input = FileInput(self, call, params)
        self._file_output = FileOutput(call, params)
        declare_events(self, "on_client_connected", "on_client_disconnected")
        if call.reports_delay:
            # A chunk is in the recording from the moment that it is played.
            events.publish(ClientDelayReported(events.now_ms(), 0))

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain (``SupportsGain``) from the next chunk on; the one that is playing stays as it is."""
        self._file_output.gain.set_db(gain_db)

    def input(self) -> FileInput:
        return self._file_input

    def output(self) -> FileOutput:
        return self._file_output
