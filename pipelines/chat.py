"""A typed turn of a session: the answer streams as it is made, and is committed before it is called done.

One turn is one short pipeline: the session's view, what answers, and a collector. Nothing lives between two
turns but the session itself, so a turn may come to any process, before or behind a voice call, and a server
that died in the middle has nothing to restore. The person's words are committed before the model is asked;
the answer is committed as far as it was handed out, also when the reader goes away in the middle.

The same key asks once: a turn that was committed is not committed again; when its answer is in the session
too, that answer is given instead of a new one.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import cast

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    FunctionCallsStartedFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregator
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.workers.runner import WorkerRunner

from core.errors import EngineError, StoreUnavailableError
from pipelines.answering import Answering
from session_store.conversation import Conversation
from session_store.events import Draft, Event, Kind

TRANSPORT = "text"
# Pipecat waits up to 20 s for a processor that does not let its cancellation through.
CLOSE_S = 3.0
# For a typed turn whose store is away. Longer than it takes to restart a database.
COMMIT_WAIT_S = 10.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The person's turn is durable."""

    turn: Event


@dataclass(frozen=True, slots=True)
class Piece:
    """More of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer is complete and durable."""

    turn: Event


class _Collector(FrameProcessor):
    """Hands the answer to a queue; None at its end.

    The queue is not bounded: it holds one answer of one turn, which the models bound.
    """

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.pieces: asyncio.Queue[str | None] = asyncio.Queue()
        self.failed: str | None = None
        self._called = False

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMTextFrame):
            self.pieces.put_nowait(frame.text)
        elif isinstance(frame, FunctionCallsStartedFrame):
            # The answer comes behind the tools' results, in a response of its own.
            self._called = True
        elif isinstance(frame, LLMFullResponseEndFrame):
            if not self._called:
                self.pieces.put_nowait(None)
            self._called = False
        await self.push_frame(frame, direction)


async def ask(
    conversation: Conversation,
    answering: Answering,
    text: str,
    *,
    key: str | None = None,
    answer_timeout_s: float = 60.0,
) -> AsyncGenerator[Asked | Piece | Answered, None]:
    """One typed turn. Close the generator when the reader goes away.

    Args:
        conversation: the session.
        answering: what answers.
        text: what the person typed.
        key: the same key asks once.
        answer_timeout_s: longest wait for the end of the answer.

    Raises:
        StoreError: the session is no longer ours, or its store is away; CapacityError: too much waits for it.
        EngineError: nothing answered.
    """
    try:
        async with asyncio.timeout(COMMIT_WAIT_S):
            turn = await conversation.user_turn(text, transport=TRANSPORT, key=key)
    except TimeoutError:
        # It stays in the queue: the same key asks again without saying it twice.
        raise StoreUnavailableError("the session store is away, send it again in a moment") from None
    yield Asked(turn)
    answered = _answer_to(conversation, turn)
    if answered is not None:
        yield Piece(str(answered.payload.get("text", "")))
        yield Answered(answered)
        return
    said: list[str] = []
    whole = False
    reply_id = _new_reply_id(conversation, turn)
    try:
        async with aclosing(_answer(conversation, answering, turn, answer_timeout_s)) as pieces:
            async for piece in pieces:
                said.append(piece)
                yield Piece(piece)
        whole = True
    finally:
        spoken = "".join(said).strip()
        if not whole and spoken:
            conversation.record(_bot_turn(conversation, reply_id, spoken, truncated=True))
    if not spoken:
        raise EngineError("nothing answered", engine="language model")
    events = await conversation.append(_bot_turn(conversation, reply_id, spoken, truncated=False))
    yield Answered(events[0])


def _bot_turn(conversation: Conversation, reply_id: str, text: str, *, truncated: bool) -> Draft:
    payload = {
        "reply_id": reply_id,
        "text": text,
        "truncated": truncated,
        "unheard": "",
        "transport": TRANSPORT,
    }
    return conversation.draft(Kind.BOT_TURN, "bot", payload, key=reply_id)


def _replies_to(conversation: Conversation, turn: Event) -> list[Event]:
    first = f"reply.{turn.key}"
    replies = (event for event in conversation.events if event.kind is Kind.BOT_TURN)
    return [
        event
        for event in replies
        if event.payload.get("reply_id") == first
        or str(event.payload.get("reply_id")).startswith(f"{first}.")
    ]


def _new_reply_id(conversation: Conversation, turn: Event) -> str:
    """Of the next attempt to answer: one that was cut off stays what it is."""
    before = len(_replies_to(conversation, turn))
    return f"reply.{turn.key}.{before + 1}" if before else f"reply.{turn.key}"


def _answer_to(conversation: Conversation, turn: Event) -> Event | None:
    """The complete answer that a turn got already."""
    whole = (event for event in _replies_to(conversation, turn) if not event.payload.get("truncated"))
    return next(whole, None)


class _Failures(FrameProcessor):
    """In front of what answers: notes that the service itself failed, before its response ends.

    An error of a guarded service comes as the guard's: its fallback answers.
    """

    def __init__(self, collector: _Collector) -> None:
        super().__init__(enable_direct_mode=True)
        self._collector = collector

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, ErrorFrame) and isinstance(frame.processor, LLMService):
            self._collector.failed = frame.error
        await self.push_frame(frame, direction)


async def _answer(
    conversation: Conversation, answering: Answering, turn: Event, timeout_s: float
) -> AsyncGenerator[str, None]:
    collector = _Collector()
    async with answering.tools(conversation) as tools:
        await tools.recover()
        context = LLMContext(messages=cast(list[LLMContextMessage], list(conversation.view().messages)))
        thinking = await answering.build(tools=tools, context=context, turn=turn)
        processors = [_Failures(collector), *thinking, collector, LLMAssistantAggregator(context)]
        async with _running(processors) as worker:
            await worker.queue_frame(LLMContextFrame(context))
            deadline_s = asyncio.get_running_loop().time() + timeout_s
            try:
                while (piece := await _next_piece(conversation, collector, deadline_s)) is not None:
                    yield piece
            except TimeoutError:
                raise EngineError(f"no answer within {timeout_s:g} s", engine="language model") from None
            if collector.failed is not None:
                raise EngineError("the language model failed in the middle", engine="language model")


async def _next_piece(conversation: Conversation, collector: _Collector, deadline_s: float) -> str | None:
    """More of the answer, None at its end.

    Raises:
        StoreError: the session is no longer ours.
        TimeoutError: the deadline has passed.
    """
    left_s = max(0.0, deadline_s - asyncio.get_running_loop().time())
    piece = asyncio.ensure_future(collector.pieces.get())
    lost = asyncio.ensure_future(conversation.lost.wait())
    try:
        await asyncio.wait({piece, lost}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if piece.done():
            return piece.result()
        if conversation.loss is not None:
            raise conversation.loss
        raise TimeoutError
    finally:
        piece.cancel()
        lost.cancel()


@asynccontextmanager
async def _running(processors: list[FrameProcessor]) -> AsyncIterator[PipelineWorker]:
    """A pipeline that runs while the block does."""
    worker = PipelineWorker(
        Pipeline(processors), enable_turn_tracking=False, enable_rtvi=False, idle_timeout_secs=None
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    @worker.event_handler("on_pipeline_error")
    async def on_error(_worker: PipelineWorker, frame: ErrorFrame) -> None:
        logger.warning(f"typed turn: {frame.error}")

    task = asyncio.create_task(runner.run(), name="chat.pipeline")
    try:
        yield worker
    finally:
        await runner.cancel(reason="the turn is over")
        _, late = await asyncio.wait({task}, timeout=CLOSE_S)
        if late:
            logger.error("typed turn: the pipeline does not end, it is cut")
            task.cancel()
            await asyncio.wait({task}, timeout=CLOSE_S)
