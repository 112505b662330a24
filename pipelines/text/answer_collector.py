"""Collect the answer to one typed turn from the end of its pipeline."""

import asyncio

from pipecat.frames.frames import (
    Frame,
    FunctionCallResultFrame,
    FunctionCallsStartedFrame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
    MetricsFrame,
)
from pipecat.metrics.metrics import MetricsData
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.frame_facts import AUTHOR
from parley.core.passage_notes import CitedPassage
from parley.core.usage import Stage, Usage
from parley.models.tools import HandedCall
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.taps.usage_events import usage_of


class AnswerCollector(FrameProcessor):
    """Collector of the answer into a queue; None at its end.

    The queue is not bounded: it holds one answer of one turn, which the models bound.
    """

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        # Calls that were handed to the client, and those of this response without a result.
        self.handed: list[HandedCall] = []
        self._unsettled: set[str] = set()
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.failed: str | None = None
        self.passages: tuple[CitedPassage, ...] = ()
        self.usage: Usage | None = None
        # As the service reported it, and the authors of the text (``frame_facts.AUTHOR``).
        self.model = ""
        self.writers: list[str] = []
        self._called = False

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self._note_author(frame)
            self.pieces.put_nowait(frame.text)
        elif isinstance(frame, PassagesCitedFrame):
            self.passages = frame.passages
        elif isinstance(frame, MetricsFrame):
            for data in frame.data:
                self._note_use(data)
        elif isinstance(frame, FunctionCallsStartedFrame):
            # The answer follows the tools' results, in a response of its own.
            self._called = True
            self._unsettled |= {call.tool_call_id for call in frame.function_calls}
        elif isinstance(frame, FunctionCallResultFrame):
            self._unsettled.discard(frame.tool_call_id)
            if self.handed and not self._unsettled:
                # Or in another request, which brings the client's results.
                self.pieces.put_nowait(None)
        elif isinstance(frame, LLMFullResponseEndFrame):
            if not self._called:
                self.pieces.put_nowait(None)
            self._called = False
        await self.push_frame(frame, direction)

    def fail(self, error: str) -> None:
        """Note that the service itself has failed."""
        self.failed = error

    def _note_author(self, frame: LLMTextFrame) -> None:
        author = AUTHOR.of(frame) or ""
        if frame.text.strip() and self.writers[-1:] != [author]:
            self.writers.append(author)

    def _note_use(self, data: MetricsData) -> None:
        stage, used = usage_of(data) or (None, None)
        if stage is Stage.LLM and used is not None:
            self.usage = used if self.usage is None else self.usage + used
            self.model = data.model or ""
