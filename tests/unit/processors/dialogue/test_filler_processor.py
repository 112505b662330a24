"""A caller who waits, in a running pipeline on virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest
from pipecat.frames.frames import (
    Frame,
    FunctionCallsStartedFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSSpeakFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import WaitBegan, WaitEnded
from parley.processors.dialogue.filler_processor import FillerProcessor
from parley.processors.dialogue.filler_schedule import WaitTuning
from parley.processors.taps.response_events import ResponseEvents
from parley.runtime.event_stream import CallEvents
from tests import virtual_time

Step = float | Frame
SETTINGS = WaitTuning(trouble="Trouble.")


class Answers(FrameProcessor):
    """Processor in the place of gate and model: answers each question with a script of pauses and frames."""

    def __init__(self, script: Sequence[Step]) -> None:
        super().__init__()
        self._script = script

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if not isinstance(frame, LLMContextFrame):
            await self.push_frame(frame, direction)
            return
        for step in self._script:
            if isinstance(step, Frame):
                await self.push_frame(step)
            else:
                await asyncio.sleep(step)


class Tap(FrameProcessor):
    """Processor before the voice."""

    def __init__(self, events: CallEvents) -> None:
        super().__init__(enable_direct_mode=True)
        self._responses = ResponseEvents(events)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self._responses.publish(frame)
        await self.push_frame(frame, direction)


class Voice(FrameProcessor):
    """Processor that records the texts to speak, with the seconds since the start."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[tuple[float, str]] = []
        self.in_context: list[bool] = []
        self.started_s = 0.0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSSpeakFrame | LLMTextFrame):
            at_s = asyncio.get_running_loop().time() - self.started_s
            self.said.append((round(at_s, 1), frame.text))
            self.in_context.append(getattr(frame, "append_to_context", True))
        await self.push_frame(frame, direction)


Scenario = Callable[[PipelineWorker], Coroutine[Any, Any, None]]


async def ask(worker: PipelineWorker) -> None:
    await worker.queue_frame(LLMContextFrame(LLMContext()))


async def ask_and_wait(worker: PipelineWorker) -> None:
    await ask(worker)
    await asyncio.sleep(300)


def play(
    script: Sequence[Step],
    scenario: Scenario = ask_and_wait,
    *,
    on_wait: Callable[[bool], None] | None = None,
    **chosen: Any,
) -> Voice:
    async def whole() -> Voice:
        settings = SETTINGS.model_copy(update={"filler": "Moment.", **chosen})
        events = CallEvents()
        if on_wait is not None:
            events.subscribe(WaitBegan, lambda _event: on_wait(True))
            events.subscribe(WaitEnded, lambda _event: on_wait(False))
        tap, voice = Tap(events), Voice()
        guard = FillerProcessor(settings, events, apology="Sorry.", say=tap.push_frame)
        worker = PipelineWorker(
            Pipeline([guard, Answers(script), tap, voice]),
            enable_rtvi=False, enable_turn_tracking=False, idle_timeout_secs=None,
        )  # fmt: skip
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)
        running = asyncio.create_task(runner.run())
        await asyncio.sleep(0.1)
        voice.started_s = asyncio.get_running_loop().time()
        await scenario(worker)
        await runner.cancel()
        await running
        return voice

    return virtual_time.run(whole())


def answer(*steps: Step) -> list[Step]:
    return [LLMFullResponseStartFrame(), *steps, LLMFullResponseEndFrame()]


def test_an_answer_that_comes_soon_is_all_that_is_heard():
    assert play(answer(LLMTextFrame("Yes."))).said == [(0.0, "Yes.")]


def test_someone_whose_question_never_gets_through_hears_a_bounded_number_of_phrases():
    voice = play([1_000.0])
    assert voice.said == [
        (0.5, "Moment."), (4.5, "Moment."), (10.5, "Moment."), (18.5, "Moment."), (26.5, "Trouble."),
        (60.0, "Sorry."),
    ]  # fmt: skip
    assert not any(voice.in_context)


def test_the_first_word_of_the_answer_ends_the_wait():
    voice = play([5.0, *answer(1.0, LLMTextFrame(" "), 0.5, LLMTextFrame("Yes."), 100.0)])
    assert voice.said == [(0.5, "Moment."), (4.5, "Moment."), (6.0, " "), (6.5, "Yes.")]


def test_a_model_that_takes_its_time_is_covered_too():
    voice = play(answer(12.0, LLMTextFrame("Yes.")))
    assert voice.said == [(3.0, "Moment."), (7.0, "Moment."), (12.0, "Yes.")]


def test_an_answer_without_a_word_ends_the_wait_with_an_apology():
    assert play([*answer(2.0), 100.0]).said == [(2.0, "Sorry.")]
    assert play([*answer(2.0, LLMTextFrame(" ")), 100.0]).said == [(2.0, " "), (2.0, "Sorry.")]


def test_the_late_end_of_an_interrupted_answer_is_none_of_the_next_one():
    assert play([LLMFullResponseEndFrame(), *answer(4.0, LLMTextFrame("Yes."))]).said == [
        (3.0, "Moment."),
        (4.0, "Yes."),
    ]


def test_a_tool_that_takes_long_does_not_end_the_wait_and_its_answer_does():
    calls = FunctionCallsStartedFrame(function_calls=[])
    voice = play([*answer(calls), 8.0, *answer(0.5, LLMTextFrame("Done."))])
    assert voice.said == [(3.0, "Moment."), (7.0, "Moment."), (8.5, "Done.")]


def test_a_refusal_ends_the_wait():
    voice = play([2.0, TTSSpeakFrame("Not possible.", append_to_context=False), 100.0])
    assert voice.said == [(0.5, "Moment."), (2.0, "Not possible.")]


def test_someone_who_speaks_again_waits_for_that():
    async def scenario(worker: PipelineWorker) -> None:
        await ask(worker)
        await asyncio.sleep(5)
        await worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(20)
        await ask(worker)
        await asyncio.sleep(1)

    assert play([1_000.0], scenario).said == [(0.5, "Moment."), (4.5, "Moment."), (25.5, "Moment.")]


def test_a_guess_is_no_question():
    async def scenario(worker: PipelineWorker) -> None:
        await worker.queue_frame(LLMContextFrame(LLMContext(), speculation=True))
        await asyncio.sleep(100)

    assert play([1_000.0], scenario).said == []


@pytest.mark.parametrize("after_s", [0.2, 5.0])
def test_the_end_of_the_call_ends_the_wait(after_s: float):
    async def scenario(worker: PipelineWorker) -> None:
        await ask(worker)
        await asyncio.sleep(after_s)

    # Any leftover of the guard would keep the loop busy, or be reported as a pending task.
    assert len(play([1_000.0], scenario).said) == (0 if after_s < 0.5 else 2)


def test_phrases_are_settings():
    voice = play([1_000.0], trouble="Geduld.", max_fillers=0, give_up_ms=9_000)
    assert voice.said == [(0.5, "Geduld."), (9.0, "Sorry.")]


@pytest.mark.parametrize(
    "script", [answer(0.4, LLMTextFrame("It is five.")), answer(), [TTSSpeakFrame("I cannot.")]]
)
def test_a_caller_who_wants_to_know_is_told_when_an_answer_is_owed_and_when_no_more(script: list[Step]):
    owed: list[bool] = []
    play(script, on_wait=owed.append)
    assert owed == [True, False]


def test_an_interruption_ends_what_is_owed():
    owed: list[bool] = []

    async def scenario(worker: PipelineWorker) -> None:
        await ask(worker)
        await asyncio.sleep(1)
        await worker.queue_frame(InterruptionFrame())
        await asyncio.sleep(1)
        assert owed == [True, False]

    play([300.0], scenario, on_wait=owed.append)
    assert owed == [True, False]
