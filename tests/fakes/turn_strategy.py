"""Turn of a strategy that decides when it is over, on virtual time."""

from collections.abc import Awaitable, Callable

from pipecat.clocks.system_clock import SystemClock
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.user_stop import BaseUserTurnStopStrategy
from pipecat.utils.asyncio.task_manager import TaskManager


async def hold_turn(strategy: BaseUserTurnStopStrategy, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario in a turn that has begun; no task of the strategy is left at the end."""
    tasks = TaskManager()
    setup = FrameProcessorSetup(
        clock=SystemClock(), task_manager=tasks, pipeline_worker=None, audio_in_sample_rate=16_000
    )  # type: ignore[arg-type]
    await strategy.setup(setup)
    await strategy.handle_user_turn_started()
    await scenario()
    await strategy.cleanup()
    assert not tasks.current_tasks()
