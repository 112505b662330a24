"""The stop strategy inside a user aggregator's turn, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from pipecat.clocks.system_clock import SystemClock
from pipecat.frames.frames import (
    Frame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.utils.asyncio.task_manager import TaskManager

from core.errors import EngineError
from processors.turns.endpoint import EndpointStopStrategy
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.turn import ScriptedTurn
from turn_taking.endpointing import Endpoint, Endpointer


class Turn:
    """A strategy with its clock and what it decided."""

    def __init__(self, probabilities: Sequence[float | EngineError]) -> None:
        self.model = ScriptedTurn(probabilities)
        self.endpoints: list[Endpoint] = []
        self.stopped = 0
        self.strategy = EndpointStopStrategy(
            Endpointer(),
            completeness=self.model,
            executor=InlineExecutor(),
            on_endpoint=self.endpoints.append,
        )

        @self.strategy.event_handler("on_user_turn_stopped")
        async def on_stopped(*_args: object) -> None:
            self.stopped += 1
            await self.strategy.handle_user_turn_stopped()

    async def give(self, frame: Frame) -> None:
        await self.strategy.process_frame(frame)

    async def speak(self, duration_ms: int) -> None:
        await self.give(VADUserStartedSpeakingFrame(start_secs=0.2))
        await self.audio(duration_ms)

    async def audio(self, duration_ms: int) -> None:
        for _ in range(duration_ms // 20):
            self.strategy.hear(bytes(640))
            await asyncio.sleep(0.02)

    async def fall_silent(self, words: str | None) -> None:
        await self.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))
        if words is not None:
            await self.give(TranscriptionFrame(text=words, user_id="", timestamp="", finalized=True))


def play(probabilities: Sequence[float | EngineError], scenario: Callable[[Turn], Awaitable[None]]) -> Turn:
    async def run() -> Turn:
        turn = Turn(probabilities)
        tasks = TaskManager()
        setup = FrameProcessorSetup(
            clock=SystemClock(), task_manager=tasks, pipeline_worker=None, audio_in_sample_rate=16_000
        )  # type: ignore[arg-type]
        await turn.strategy.setup(setup)
        await turn.strategy.handle_user_turn_started()
        await scenario(turn)
        await turn.strategy.cleanup()
        assert not tasks.current_tasks()
        return turn

    return virtual_time.run(run())


def test_a_complete_turn_ends_after_the_shortest_silence():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [180]
    assert turn.stopped == 1


def test_voice_after_a_pause_keeps_the_turn_open():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("i would like")
        await asyncio.sleep(0.3)
        await turn.speak(1_000)
        await turn.fall_silent("to send money")
        await asyncio.sleep(1)

    turn = play([0.1, 0.99], scenario)
    assert turn.stopped == 1


def test_an_early_yes_needs_no_second_look():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        turn.strategy.on_pause()
        await turn.audio(100)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert len(turn.model.heard_samples) == 1
    assert turn.stopped == 1


def test_an_early_no_is_asked_again_with_the_silence_in_its_ears():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        turn.strategy.on_pause()
        await turn.audio(100)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(1)

    turn = play([0.2, 0.99], scenario)
    assert np.diff(turn.model.heard_samples) == [1_600]
    assert [endpoint.completeness for endpoint in turn.endpoints] == [0.99]


def test_an_answer_about_an_earlier_pause_is_not_used():
    async def scenario(turn: Turn) -> None:
        await turn.speak(500)
        turn.strategy.on_pause()
        await turn.audio(500)
        turn.strategy.on_pause()
        await turn.audio(100)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(2)

    turn = play([0.99, 0.1, 0.1], scenario)
    assert turn.endpoints[0].completeness == 0.1


def test_a_failing_model_costs_its_hint_and_not_the_turn():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your hours")
        await asyncio.sleep(2)

    turn = play([EngineError("broken", engine="turn")], scenario)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [640]


def test_a_turn_without_words_ends_empty():
    async def scenario(turn: Turn) -> None:
        await turn.speak(300)
        await turn.fall_silent(None)
        await asyncio.sleep(3)

    turn = play([0.99], scenario)
    assert [endpoint.silence_ms for endpoint in turn.endpoints] == [1_500]


def test_the_model_hears_the_last_seconds_and_a_little_before_the_voice():
    async def scenario(turn: Turn) -> None:
        await turn.audio(3_000)
        await turn.speak(20_000)
        await turn.fall_silent("a long story")
        await asyncio.sleep(1)

    turn = play([0.99], scenario)
    assert turn.model.heard_samples == [8 * 16_000]

    async def short(turn: Turn) -> None:
        await turn.audio(3_000)
        await turn.speak(1_000)
        await turn.fall_silent("a short one")
        await asyncio.sleep(1)

    assert play([0.99], short).model.heard_samples == [16_000 * 3 // 2]


def test_words_that_come_after_the_end_of_the_turn_are_answered_at_once():
    async def scenario(turn: Turn) -> None:
        await turn.speak(1_000)
        await turn.fall_silent("what are your")
        await asyncio.sleep(2)
        # The user aggregator begins a turn for them before the strategy sees them.
        await turn.strategy.handle_user_turn_started()
        await turn.give(TranscriptionFrame(text="opening hours", user_id="", timestamp="", finalized=True))
        await asyncio.sleep(0.01)

    assert len(play([0.9], scenario).endpoints) == 2
