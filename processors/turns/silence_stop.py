"""End the user's turn after a silence of one length, in a call whose service does not report the ends.

Pipecat's strategy of this kind measures the silence by the clock, so a stop of the process within a pause
ends the turn. Here it is measured by the audio that was heard (``HeardPause``).

The deadline task belongs to the strategy and ends with it.
"""

import asyncio

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.types import ProcessFrameResult
from pipecat.turns.user_stop.base_user_turn_stop_strategy import BaseUserTurnStopStrategy

from parley.processors.turns.heard_pause import HeardPause
from parley.runtime.loop_clock import LoopClock


class SilenceStopStrategy(BaseUserTurnStopStrategy):
    """Stop strategy for calls in which no words are awaited.

    Args:
        silence_ms: silence after the end of a voice that ends the turn.
    """

    def __init__(self, silence_ms: int) -> None:
        super().__init__()
        self._silence_ms = silence_ms
        self._clock = LoopClock()
        self._pause = HeardPause(self._clock)
        self._rate_hz = 16_000
        self._timer: asyncio.Task[None] | None = None

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own base
        await super().setup(setup)
        self._rate_hz = setup.audio_in_sample_rate

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._cancel_timer()

    async def handle_user_turn_started(self) -> None:
        await self._cancel_timer()

    async def handle_user_turn_stopped(self) -> None:
        await self._cancel_timer()

    async def process_frame(self, frame: Frame) -> ProcessFrameResult:
        if isinstance(frame, InputAudioRawFrame):
            self._pause.hear(frame.audio)
        elif isinstance(frame, VADUserStartedSpeakingFrame):
            await self._cancel_timer()
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            await self._cancel_timer()
            self._pause.begin()
            self._timer = self.task_manager.create_task(self._wait(), f"{self}::silence")
        return ProcessFrameResult.CONTINUE

    async def _wait(self) -> None:
        due_ms = self._clock.now_ms() + self._silence_ms
        await self._clock.sleep_until_ms(due_ms)
        await self._pause.catch_up(self._rate_hz, due_ms=due_ms)
        self._timer = None
        await self.trigger_user_turn_stopped()

    async def _cancel_timer(self) -> None:
        timer, self._timer = self._timer, None
        if timer is not None and timer is not asyncio.current_task():
            await self.task_manager.cancel_task(timer)
