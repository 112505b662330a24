"""A typed turn of a session: the answer streams as it is made, and is committed before it is called done.

One turn is one short pipeline (``pipelines.builder``): the session's view, what answers, and a collector.
Nothing lives between two turns but the session itself, so a turn may come to any process, before or behind a
voice call, and a server that died in the middle has nothing to restore. The person's words are committed
before the model is asked; the answer is committed as far as it was handed out, also when the reader goes away
in the middle.

The same key asks once: a turn that was committed is not committed again; when its answer is in the session
too, that answer is given instead of a new one, also when a summary covers both. A turn whose answer was cut
off is asked again as it was said: over the view of that moment, without the piece of an answer and without
what was said later. The new answer supersedes the piece and stands in its turn. A key that belongs to other
words is refused.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
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
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregator
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.workers.runner import WorkerRunner

from core.client_rules import ClientRules
from core.errors import EngineError
from pipelines.answering import Answering, Memory
from pipelines.builder import Stages, build_turn
from pipelines.release import release_pipeline
from serving.gateway.limits import ShareError
from session_store.conversation import DROPPABLE, Conversation
from session_store.events import Draft, Event, Kind
from session_store.store import SessionReader

TRANSPORT = "text"
# Pipecat waits up to 20 s for a processor that does not let its cancellation through.
CLOSE_S = 3.0
# Events in one read, where a turn that a summary covers is asked again.
READ_EVENTS = 1_000


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
    store: SessionReader | None = None,
    answer_timeout_s: float = 60.0,
    transport: str = TRANSPORT,
    supersedes: Sequence[str] = (),
    instruction: str | None = None,
    memory: Memory | None = None,
    rules: ClientRules | None = None,
) -> AsyncGenerator[Asked | Piece | Answered, None]:
    """One typed turn. Close the generator when the reader goes away.

    What was handed out is in the queue of the session before anything else is ended: the pipeline takes its
    time for that, and whoever cancels may lose patience.

    Args:
        conversation: the session.
        answering: what answers.
        text: what the person typed.
        key: the same key asks once.
        store: of the session, for turns that come again when a summary covers them already; without it they
            are asked anew.
        answer_timeout_s: longest wait for the end of the answer.
        transport: how the words came, for the session.
        supersedes: keys of earlier turns that these words take the place of.
        instruction: what the client adds to the deployment's prompt, where its rules permit it.
        memory: what the model has read of the conversation so far.
        rules: of the client; None: those of an anonymous one, whose turns are not counted.

    Raises:
        ShareError: the client has used up its turns; nothing was committed.
        KeyReusedError: the key belongs to other words.
        StoreError: the session is no longer ours, or its store is away; CapacityError: too much waits for it,
            or was typed into it (ShareError).
        EngineError: nothing answered.
    """
    rules = rules or answering.rules()
    with ExitStack() as unasked:
        # Before the commit: what is refused has changed nothing, and may be sent again.
        unasked.enter_context(answering.usage.take(rules.counted))
        wait_s = conversation.take_typed(text)
        if wait_s:
            raise ShareError("too much was typed into this session, try again later", limit=0, retry_s=wait_s)
        before_seq = conversation.last_seq
        turn = await conversation.in_time(
            conversation.user_turn(text, transport=transport, key=key, supersedes=supersedes)
        )
        # A turn after all that was known is new, and has no answer yet.
        replies = await _replies_to(conversation, store, turn) if turn.seq <= before_seq else []
        yield Asked(turn)
        if replies and not replies[-1].payload.get("truncated"):
            yield Piece(str(replies[-1].payload.get("text", "")))
            yield Answered(replies[-1])
            return
        # From here on the model is asked: the turn stays counted, whatever comes of it.
        unasked.pop_all()
    said: list[str] = []
    whole = False
    deadline_s = asyncio.get_running_loop().time() + answer_timeout_s
    async with (
        _remembering(conversation, store, turn),
        _thinking(conversation, answering, turn, deadline_s, instruction, memory, rules) as collector,
    ):
        try:
            while (piece := await _next_piece(conversation, collector, deadline_s)) is not None:
                said.append(piece)
                yield Piece(piece)
            if collector.failed is not None:
                raise EngineError("the language model failed in the middle", engine="language model")
            whole = True
        except TimeoutError:
            raise EngineError(f"no answer within {answer_timeout_s:g} s", engine="language model") from None
        finally:
            spoken = "".join(said).strip()
            if spoken and not whole:
                conversation.record(_bot_turn(conversation, turn, replies, spoken, rules, truncated=True))
        if not spoken:
            raise EngineError("nothing answered", engine="language model")
        reply = _bot_turn(conversation, turn, replies, spoken, rules, truncated=False)
        [answer] = await conversation.in_time(conversation.append(reply))
        yield Answered(answer)


def _bot_turn(
    conversation: Conversation,
    turn: Event,
    replies: Sequence[Event],
    text: str,
    rules: ClientRules,
    *,
    truncated: bool,
) -> Draft:
    """An answer, or as much of it as was handed out; in place of those that were cut off before."""
    reply_id = _reply_id(turn, len(replies))
    payload: dict[str, object] = {
        "reply_id": reply_id,
        "text": text,
        "truncated": truncated,
        "unheard": "",
        "transport": turn.payload.get("transport", TRANSPORT),
        "turn": turn.seq,
        **rules.mark,
    }
    if replies:
        payload["supersedes"] = [reply.key for reply in replies]
    return conversation.draft(Kind.BOT_TURN, "bot", payload, key=reply_id)


def _reply_id(turn: Event, before: int) -> str:
    """Of an attempt to answer, behind so many; the key of its event too."""
    return f"reply.{turn.key}.{before + 1}" if before else f"reply.{turn.key}"


async def _replies_to(conversation: Conversation, store: SessionReader | None, turn: Event) -> list[Event]:
    """What a turn was answered so far: pieces that were cut off, and at the end perhaps a whole answer."""
    known = {event.key: event for event in conversation.events if event.kind is Kind.BOT_TURN}
    replies: list[Event] = []
    while True:
        key = _reply_id(turn, len(replies))
        reply = known.get(key)
        if reply is None and store is not None and not _is_known(conversation, turn):
            reply = await store.event_of_key(conversation.session_id, key)
        if reply is None:
            return replies
        replies.append(reply)


def _is_known(conversation: Conversation, turn: Event) -> bool:
    """Whether a turn is among the events that the view is made of; then so is what came behind it."""
    return any(event.seq == turn.seq for event in conversation.events)


@asynccontextmanager
async def _remembering(
    conversation: Conversation, store: SessionReader | None, turn: Event
) -> AsyncIterator[None]:
    """While a turn that a summary covers is answered, the events of its time are known again."""
    if store is None or _is_known(conversation, turn):
        yield
        return
    kinds = [kind for kind in Kind if kind not in DROPPABLE]
    events: list[Event] = []
    while True:
        after_seq = events[-1].seq if events else 0
        page = await store.events(
            conversation.session_id, after_seq=after_seq, limit=READ_EVENTS, kinds=kinds
        )
        events.extend(page)
        if len(page) < READ_EVENTS:
            break
    with conversation.recalled(turn.seq, events):
        yield


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


def context_of(conversation: Conversation, turn: Event) -> LLMContext:
    """What the model is asked with for a turn."""
    messages = conversation.view(turn=turn.seq).messages
    return LLMContext(messages=cast(list[LLMContextMessage], list(messages)))


@asynccontextmanager
async def _thinking(
    conversation: Conversation,
    answering: Answering,
    turn: Event,
    deadline_s: float,
    instruction: str | None,
    memory: Memory | None,
    rules: ClientRules,
) -> AsyncIterator[_Collector]:
    """What answers, at work on one turn while the block runs.

    Raises:
        EngineError: a tool call that a crash cut off is not settled by the deadline.
    """
    collector = _Collector()
    async with answering.tools(conversation) as tools:
        try:
            async with asyncio.timeout_at(deadline_s):
                await tools.recover()
        except TimeoutError:
            raise EngineError("an earlier call of a tool is not settled yet", engine="tools") from None
        context = context_of(conversation, turn)
        thinking = await answering.build(
            tools=tools, context=context, turn=turn, instruction=instruction, memory=memory, rules=rules
        )
        stages = Stages(
            head=[_Failures(collector)],
            dialogue=thinking,
            playout=[collector],
            tail=[LLMAssistantAggregator(context)],
        )
        async with running(stages) as worker:
            await worker.queue_frame(LLMContextFrame(context))
            yield collector


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
async def running(stages: Stages) -> AsyncIterator[PipelineWorker]:
    """A pipeline that runs while the block does."""
    worker = build_turn(stages)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    @worker.event_handler("on_pipeline_error")
    async def on_error(_worker: PipelineWorker, frame: ErrorFrame) -> None:
        logger.warning(f"typed turn: {frame.error}")

    task = asyncio.create_task(runner.run(), name="chat.pipeline")
    try:
        yield worker
    finally:
        try:
            await runner.cancel(reason="the turn is over")
            _, late = await asyncio.wait({task}, timeout=CLOSE_S)
            if late:
                logger.error("typed turn: the pipeline does not end, it is cut")
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSE_S)
        finally:
            # Whoever cancels this for the second time leaves no pipeline behind that nobody ends.
            task.cancel()
        if task.done():
            await release_pipeline(runner, worker)
