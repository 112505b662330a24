"""Echo control in a pipeline: remove the bot from the caller's audio before voice activity.

    transport.input() -> EchoProcessor -> voice activity, recogniser, ...
    transport's ``on_packet`` -> ``played``

Each piece of the microphone crosses once to a thread, or to a process with the engines of all calls
(``processors.front_end.hosted``). It comes back before the next one is taken, so order is kept and the loop
is free. Without an executor the work is done on the loop (simulated time). A piece that completes no frame is
not pushed. When the engine fails or the rate is wrong, one error is pushed. From there on the microphone
passes unchanged, and no voice counts as the bot's own any more: an echo is better than silence. The control
is closed with the processor, after any work that a thread still does.

Rates: the microphone's must be the canceller's; the bot's may be any.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from copy import copy
from functools import partial

from loguru import logger
from pipecat.frames.frames import Frame, InputAudioRawFrame
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.audio.echo_alignment import Knowledge
from parley.core.clock import Clock
from parley.core.errors import AgentError, ConfigError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.models.echo.control import EchoControl
from parley.models.front_end import EchoResult, controlled
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.barge_in.self_voice import SelfVoice


class EchoProcessor(FrameProcessor):
    """Echo control of one call.

    Args:
        control: control of this call, here or in another process; closed with the processor.
        executor: where it runs, shared by all calls; None for the loop. Not used with another process.
        self_voice: receives the levels of every frame, on the loop.
        clock: clock of both sides of the audio; None for the loop's.
        on_cancelled: called with each piece after the canceller alone, 16-bit PCM, on the loop and before the
            piece is pushed; with the microphone itself when echo control has failed. Must not block.
    """

    def __init__(
        self,
        control: EchoControl | HostedFrontEnd,
        *,
        executor: Executor | None,
        self_voice: SelfVoice | None = None,
        clock: Clock | None = None,
        on_cancelled: Callable[[bytes], None] | None = None,
    ) -> None:
        super().__init__(enable_direct_mode=True)
        self._control = control
        self._on_cancelled = on_cancelled
        self._executor = executor
        self._self_voice = self_voice
        self._clock: Clock = clock or LoopClock()
        self._failed = self._is_over = False
        self._knowledge = Knowledge.UNKNOWN

    def played(self, pcm: bytes, rate_hz: int, at_us: int | None = None) -> None:
        """Register a packet of the bot's audio that left at ``at_us`` of the clock or now. Does not block.

        A packet of unknown rate (0) is no reference and is left out.
        """
        if rate_hz > 0 and not self._failed:
            self._control.played(pcm, rate_hz, self._clock.now_us() if at_us is None else at_us)

    def accepts(self, frame: InputAudioRawFrame) -> bool:
        """Return whether the microphone has the rate of the canceller, and one channel."""
        return frame.sample_rate == self._control.rate_hz and frame.num_channels == 1

    async def cleanup(self) -> None:
        # The microphone's task may still be running: its audio is discarded.
        self._is_over = True
        await super().cleanup()
        if self._executor is None or isinstance(self._control, HostedFrontEnd):
            self._control.close()
            return
        try:
            await asyncio.get_running_loop().run_in_executor(self._executor, self._control.close)
        except RuntimeError:
            # The process is ending, and its threads take no more work.
            self._control.close()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, InputAudioRawFrame):
            await self.push_frame(frame, direction)
            return
        if self._failed:
            self._show(frame.audio)
            await self.push_frame(frame, direction)
            return
        try:
            if not self.accepts(frame):
                raise ConfigError(
                    f"echo control needs mono audio at {self._control.rate_hz} Hz, got {frame.num_channels} "
                    f"channels at {frame.sample_rate} Hz"
                )
            piece = await self._process(frame.audio)
        except AgentError as error:
            if self._is_over:
                return
            self._failed = True
            if self._self_voice is not None:
                self._self_voice.forget()
            await self.push_error(f"echo control failed: {error}", exception=error)
            self._show(frame.audio)
            await self.push_frame(frame, direction)
            return
        if self._self_voice is not None:
            for left_db, far_db in piece.levels:
                self._self_voice.on_frame(left_db=left_db, far_db=far_db)
        if piece.knowledge is not None:
            self._note(piece.knowledge, piece.delay_ms)
        if piece.cancelled:
            self._show(piece.cancelled)
        if piece.pcm:
            left = copy(frame)
            left.audio, left.num_frames = piece.pcm, len(piece.pcm) // PCM_BYTES_PER_SAMPLE
            await self.push_frame(left, direction)

    def _note(self, knowledge: Knowledge, delay_ms: float | None) -> None:
        """Log a change of the canceller's state: the first place to look when a caller is inaudible."""
        if knowledge is not self._knowledge:
            self._knowledge = knowledge
            is_placed = delay_ms is not None and knowledge is Knowledge.ECHO
            where = f", {delay_ms:.0f} ms late" if is_placed else ""
            logger.debug(f"{self}: {knowledge.value}{where}")

    def _show(self, pcm: bytes) -> None:
        if self._on_cancelled is not None:
            self._on_cancelled(pcm)

    async def _process(self, pcm: bytes) -> EchoResult:
        at_us, wants_cancelled = self._clock.now_us(), self._on_cancelled is not None
        if isinstance(self._control, HostedFrontEnd):
            return await self._control.process(pcm, at_us, wants_cancelled=wants_cancelled)
        work = partial(controlled, self._control, pcm, at_us, wants_cancelled=wants_cancelled)
        if self._executor is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)
