"""Input that enters a pipeline from outside, and its timing."""

import asyncio

from pipecat.frames.frames import Frame, TextFrame

from parley.pipelines.pipeline_input import MOST_WAITING, PipelineInput
from tests import virtual_time


class Taker:
    """Stand-in for a pipeline that takes frames."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    async def take(self, frame: Frame) -> None:
        assert isinstance(frame, TextFrame)
        self.texts.append(frame.text)


def test_before_and_after_the_pipeline_frames_are_dropped():
    async def scenario() -> list[str]:
        pipeline, taker = PipelineInput(), Taker()
        await pipeline.queue(TextFrame("early"))
        pipeline.open(taker.take)
        await pipeline.queue(TextFrame("in time"))
        pipeline.put(TextFrame("unsent"))
        pipeline.close()
        await pipeline.flush()
        await pipeline.queue(TextFrame("late"))
        return taker.texts

    assert virtual_time.run(scenario()) == ["in time"]


def test_what_a_subscriber_left_is_handed_on_by_the_task_in_order_and_before_what_follows():
    async def scenario() -> list[str]:
        pipeline, taker = PipelineInput(), Taker()
        pipeline.open(taker.take)
        task = asyncio.create_task(pipeline.run())
        await asyncio.sleep(1)
        pipeline.put(TextFrame("one"))
        pipeline.put(TextFrame("two"))
        await asyncio.sleep(0.01)
        assert taker.texts == ["one", "two"]
        pipeline.put(TextFrame("three"))
        await pipeline.queue(TextFrame("four"))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return taker.texts

    assert virtual_time.run(scenario()) == ["one", "two", "three", "four"]


def test_a_pipeline_that_takes_nothing_costs_the_oldest_frames():
    async def scenario() -> list[str]:
        pipeline, taker = PipelineInput(), Taker()
        pipeline.open(taker.take)
        for number in range(MOST_WAITING + 2):
            pipeline.put(TextFrame(str(number)))
        await pipeline.flush()
        return taker.texts

    texts = virtual_time.run(scenario())
    assert (len(texts), texts[0], texts[-1]) == (MOST_WAITING, "2", str(MOST_WAITING + 1))
