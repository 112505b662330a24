"""The guard in a running pipeline: which words of a model pass it when the tier changes meanwhile."""

import asyncio
from pathlib import Path

import pytest
from pipecat.frames.frames import Frame, LLMFullResponseStartFrame, LLMTextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.workers.runner import WorkerRunner

from parley.core.tiers import TierEvent
from parley.processors.dialogue.epoch_guard import EpochGuard
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time


class Voice(FrameProcessor):
    """Processor in the place of the voice that keeps the words."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self.words.append(frame.text)
        await self.push_frame(frame, direction)


async def words_that_pass(folder: Path, before: list[TierEvent], meanwhile: list[TierEvent]) -> list[str]:
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    opened = Conversations(store, compactor=Compactor())
    try:
        async with opened.open() as conversation:
            voice = Voice()
            worker = PipelineWorker(
                Pipeline([EpochGuard(conversation), voice]), enable_rtvi=False, idle_timeout_secs=None
            )
            runner = WorkerRunner(handle_sigint=False)
            await runner.add_workers(worker)
            running = asyncio.create_task(runner.run())
            for event in before:
                assert conversation.change_tier(event)
            await worker.queue_frames([LLMFullResponseStartFrame(), LLMTextFrame("first")])
            await asyncio.sleep(1)
            for event in meanwhile:
                assert conversation.change_tier(event)
            await worker.queue_frame(LLMTextFrame("rest"))
            await asyncio.sleep(1)
            await runner.cancel()
            await running
            return voice.words
    finally:
        await opened.close()
        await store.close()


@pytest.mark.parametrize(
    ("before", "meanwhile", "passed"),
    [
        ([], [], ["first", "rest"]),
        # The first words of an answer were heard, and end the way back, while a tool runs.
        ([TierEvent.TAKEN, TierEvent.RETURNED], [TierEvent.REPLIED], ["first", "rest"]),
        ([], [TierEvent.OFFERED], ["first", "rest"]),
        ([], [TierEvent.TAKEN], ["first"]),
        ([], [TierEvent.TAKEN, TierEvent.RETURNED], ["first"]),
        ([], [TierEvent.REQUESTED, TierEvent.WITHDRAWN], ["first"]),
    ],
)
def test_words_pass_unless_a_human_was_fetched_or_came_since_their_model_was_asked(
    tmp_path: Path, before: list[TierEvent], meanwhile: list[TierEvent], passed: list[str]
) -> None:
    assert virtual_time.run(words_that_pass(tmp_path, before, meanwhile)) == passed
