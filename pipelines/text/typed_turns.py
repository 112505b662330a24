"""Typed turns of a session: the answer streams as it is made, and is committed before it is reported as done.

One turn is one short pipeline (``pipelines.builder``): the session's view, what answers, and a collector.
Nothing lives between two turns but the session itself, so a turn may come to any process, before or behind a
voice call, and a server that died in the middle has nothing to restore. The person's words are committed
before the model is asked; the answer is committed as far as it was handed out, also when the reader goes away
in the middle.

The same key asks once. A committed turn is not committed again. When the session has its answer too, that
answer is returned instead of a new one. This also holds when a summary covers both. A turn whose answer was
cut off is asked again as at its time. The view is that of the moment, without the partial answer and without
later turns. The new answer supersedes the partial one and stands in its turn. A key that belongs to other
words is refused.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from types import MappingProxyType
from typing import cast

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    LLMContextFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import LLMAssistantAggregator
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import LLMService
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import FallbackAnswers
from parley.core.client_rules import ClientRules
from parley.core.errors import EngineError
from parley.core.passage_notes import CitedPassage, cited_as_json
from parley.core.pictures import Picture
from parley.core.usage import Usage
from parley.models.tools import HandedCall, HandedOverTool, Tool
from parley.pipelines.builder import Stages, build_turn
from parley.pipelines.engines.llm_runtime import LlmRuntime, Memory
from parley.pipelines.release import release_pipeline
from parley.pipelines.session_tiers import SessionTiers
from parley.pipelines.tenant_charges import tokens_of
from parley.pipelines.text.answer_collector import AnswerCollector
from parley.pipelines.text.client_tool_uses import use_drafts
from parley.pipelines.text.shown_history import take_share
from parley.pipelines.usage_records import usage_payload
from parley.processors.dialogue.commit_gate import Answers
from parley.processors.dialogue.durable_tools import handed_calls
from parley.processors.dialogue.tool_choice import required_tool
from parley.protocols.openai_chat import ToolOffer
from parley.runtime.event_stream import CallEvents
from parley.session_store.commit_queue import DROPPABLE
from parley.session_store.conversation import Conversation
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.history import ClientToolUse
from parley.session_store.prompt import BY_DEPLOYMENT
from parley.session_store.store import SessionReader
from parley.telemetry.engine_names import THINKING_SECTION

TRANSPORT = "text"
# Pipecat waits up to 20 s for a processor that does not pass on its cancellation.
CLOSE_S = 3.0


@dataclass(frozen=True, slots=True)
class TurnCommitted:
    """Report that the caller's turn is durable."""

    turn: Event


@dataclass(frozen=True, slots=True)
class AnswerPiece:
    """Next piece of the answer."""

    text: str


@dataclass(frozen=True, slots=True)
class AnswerCommitted:
    """Report that the answer is complete and durable.

    Attributes:
        turn: event of the answer.
        usage: tokens of the model for it, results of tools included; None where the model reports none.
    """

    turn: Event
    usage: Usage | None = None

    @property
    def passages(self) -> tuple[CitedPassage, ...]:
        """Passages that the answer rests on; empty where it rests on none."""
        stored = self.turn.payload.get("passages")
        # A session that was imported may hold anything.
        read = map(CitedPassage.from_json, stored if isinstance(stored, list) else ())
        return tuple(passage for passage in read if passage is not None)


@dataclass(frozen=True, slots=True)
class TurnHeld:
    """Report that no model answers the turn: a human has the session, whose words come on their own."""

    turn: Event


@dataclass(frozen=True, slots=True)
class CallsHandedOver:
    """Report that the answer goes on when the client has run tools, and returned their results.

    Attributes:
        turn: that is answered.
        calls: durable.
        usage: as in ``AnswerCommitted``.
    """

    turn: Event
    calls: tuple[HandedCall, ...]
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ClientTools:
    """Tools of the client of one typed turn.

    Attributes:
        offer: tools that it offers for the answer.
        uses: calls of this turn with their results.
        resumed: turn of the session in which the model made these calls; None: the client brings them with a
            new turn.
    """

    offer: ToolOffer = ToolOffer()
    uses: tuple[ClientToolUse, ...] = ()
    resumed: Event | None = None


TypedEvent = TurnCommitted | AnswerPiece | AnswerCommitted | CallsHandedOver | TurnHeld


async def ask(
    conversation: Conversation,
    answering: LlmRuntime,
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
    tiers: SessionTiers | None = None,
    answers: Answers | None = None,
    own_tools: Sequence[Tool] = (),
    pictures: Sequence[Picture] = (),
    tools: ClientTools = ClientTools(),  # noqa: B008
    is_counted: bool = False,
) -> AsyncGenerator[TypedEvent, None]:
    """Ask one typed turn and stream its answer. Close the generator when the reader goes away.

    On cancellation, the delivered text is queued for the session before anything else is ended. The pipeline
    needs time to end, and the caller of this generator may not wait for it.

    Args:
        conversation: the session.
        answering: the language models and tools.
        text: text that the caller typed.
        key: the same key asks once.
        store: store of the session, for repeated turns that a summary covers already; without it they are
            asked anew.
        answer_timeout_s: longest wait for the end of the answer.
        transport: name of the transport of the words, for the session.
        supersedes: keys of earlier turns that this turn replaces.
        instruction: text that the client adds to the deployment's prompt, where its rules permit it.
        memory: memory that the model has of the conversation so far.
        rules: rules of the client; None for those of an anonymous one, whose turns are not counted.
        tiers: rules of the tiers; None where no human can be fetched and no other medium is offered.
        answers: returns the own answer of the call that the turn belongs to, before ``tiers`` are asked;
            None: it has none.
        own_tools: tools of that call.
        pictures: that the caller shows with the text; for a model that sees (``LlmRuntime.sees``).
        tools: of the client, checked (``check_offer``).
        is_counted: text and pictures are counted into the session already, with what came before them.

    Raises:
        ShareError: the client has used up its turns; nothing was committed.
        KeyReusedError: the key belongs to other words.
        StoreError: another process holds the session, or its store is unreachable.
        CapacityError: too much waits for the store, or was typed into the session (ShareError), or the text
            is larger than what a session ever takes (OversizedError).
        EngineError: no answer was made.
    """
    asked = _AskedTurn(
        conversation,
        answering,
        text,
        rules or answering.rules(),
        store=store,
        answer_timeout_s=answer_timeout_s,
        instruction=instruction,
        memory=memory,
        tiers=tiers,
        answers=answers,
        own_tools=own_tools,
        tools=tools,
    )
    with ExitStack() as unasked:
        # Before the commit: a refused turn has changed nothing, and may be sent again.
        unasked.enter_context(await answering.usage.take(asked.rules.counted))
        if not is_counted:
            take_share(conversation, (text, *(each.text for each in tools.uses)), pictures)
        before_seq = conversation.last_seq
        turn = tools.resumed
        if turn is None:
            said_now = conversation.user_turn(
                text, transport=transport, key=key, supersedes=supersedes, pictures=pictures
            )
            turn = await conversation.in_time(said_now)
        is_again = turn.seq <= before_seq
        # A turn after all known events is new, and has no answer yet.
        replies = await _replies_to(conversation, store, turn) if is_again else []
        yield TurnCommitted(turn)
        is_answered = False
        async with aclosing(_without_model(asked, turn, replies, is_again=is_again)) as events:
            async for event in events:
                is_answered = True
                yield event
        if is_answered:
            return
        # From here on the model is asked: the turn stays counted, also when no answer comes.
        unasked.pop_all()
    async with aclosing(_ModelAnswer(asked, turn, replies).events()) as events:
        async for event in events:
            yield event


@dataclass(frozen=True, slots=True)
class _AskedTurn:
    """Turn that is asked; the attributes are arguments of ``ask``."""

    conversation: Conversation
    answering: LlmRuntime
    text: str
    rules: ClientRules
    _: KW_ONLY
    store: SessionReader | None
    answer_timeout_s: float
    instruction: str | None
    memory: Memory | None
    tiers: SessionTiers | None
    answers: Answers | None
    own_tools: Sequence[Tool]
    tools: ClientTools

    def made_by(self, collector: AnswerCollector) -> Mapping[str, object]:
        """Return the field of an answer about the model that made it."""
        return self.answering.made_by(
            self.conversation, self.instruction, model=collector.model, writers=collector.writers
        )


async def _without_model(
    asked: _AskedTurn, turn: Event, replies: Sequence[Event], *, is_again: bool
) -> AsyncGenerator[TypedEvent, None]:
    """Yield the events of a turn that no model answers; none where the model is to be asked.

    That is a turn that has its answer, one whose calls the client has, and one that the rules of the call or
    of the tiers answer. Results that the client brings are committed on the way.
    """
    conversation = asked.conversation
    if replies and not replies[-1].payload.get("truncated"):
        yield AnswerPiece(str(replies[-1].payload.get("text", "")))
        yield AnswerCommitted(replies[-1])
        return
    if drafts := use_drafts(conversation, asked.tools.uses, turn=turn, mark=asked.rules.mark):
        await conversation.in_time(conversation.append(*drafts))
    elif handed := () if asked.tools.uses else tuple(handed_calls(conversation.events, turn)):
        # The same turn again: its calls are the client's, and it may not have received them.
        yield CallsHandedOver(turn, handed)
        return
    instead = _own_answer(asked, is_again=is_again)
    if instead is None:
        return
    if not instead:
        yield TurnHeld(turn)
        return
    yield AnswerPiece(instead)
    phrase = _bot_turn(
        conversation, turn, replies, instead, asked.rules, (), truncated=False, by=BY_DEPLOYMENT
    )
    [answer] = await conversation.in_time(conversation.append(phrase))
    yield AnswerCommitted(answer)


def _own_answer(asked: _AskedTurn, *, is_again: bool) -> str | None:
    """Return the answer of the call or of the tiers; empty where a human has the session, None for none."""
    instead = None if asked.answers is None else asked.answers(asked.text, is_again=is_again)
    if instead is None and asked.tiers is not None:
        instead = asked.tiers.answer(asked.text, is_again=is_again)
    return instead


class _ModelAnswer:
    """Answer of the model to one turn, in whatever way it ends.

    Args:
        asked: the turn as it is asked.
        turn: its event.
        replies: partial answers to it from before.
    """

    def __init__(self, asked: _AskedTurn, turn: Event, replies: Sequence[Event]) -> None:
        self._asked, self._turn, self._replies = asked, turn, replies
        self._conversation = asked.conversation
        self._said: list[str] = []
        self._is_whole = False
        # A human has the session, or the calls of the answer are the client's: no answer is committed.
        self._is_elsewhere = False
        # Words before a call that is required are held: without the call they are no answer.
        self._is_required = asked.tools.offer.choice.is_required
        self._holds = asked.conversation.tier.holds
        self._deadline_s = asyncio.get_running_loop().time() + asked.answer_timeout_s

    @property
    def _spoken(self) -> str:
        return "".join(self._said).strip()

    async def events(self) -> AsyncGenerator[TypedEvent, None]:
        """Yield the events of the answer. Raises as ``ask`` does."""
        asked, turn = self._asked, self._turn
        async with (
            _remembering(self._conversation, asked.store, turn),
            _thinking(asked, turn, self._deadline_s) as collector,
        ):
            try:
                async with aclosing(self._streamed(collector)) as events:
                    async for event in events:
                        yield event
            except TimeoutError:
                raise EngineError(
                    f"no answer arrived within {asked.answer_timeout_s:g} s", engine="language model"
                ) from None
            finally:
                self._note_end(collector)
            if self._is_elsewhere:
                return
            async with aclosing(self._completed(collector)) as events:
                async for event in events:
                    yield event

    async def _streamed(self, collector: AnswerCollector) -> AsyncGenerator[TypedEvent, None]:
        """Yield the pieces of the answer, and what takes its place.

        Raises:
            EngineError: the model failed, or did not call a tool that is required.
            TimeoutError: the deadline has passed.
        """
        while (piece := await _next_piece(self._conversation, collector, self._deadline_s)) is not None:
            if self._conversation.tier.holds != self._holds:
                # A human was fetched, or took the session, meanwhile: the rest is not sent.
                self._is_elsewhere = True
                yield TurnHeld(self._turn)
                return
            self._said.append(piece)
            if not self._is_required:
                yield AnswerPiece(piece)
        if collector.failed is not None:
            raise EngineError(
                "the language model failed in the middle of the answer", engine="language model"
            )
        self._is_whole = True
        if self._is_required and not collector.handed:
            self._said.clear()
            raise EngineError(
                "the model did not call the tool that tool_choice requires", engine="language model"
            )
        if not collector.handed:
            return
        self._is_elsewhere = True
        if spoken := self._spoken:
            if self._is_required:
                yield AnswerPiece(spoken)
            before = _said_before_calls(self._conversation, self._turn, spoken, self._asked.rules)
            await self._conversation.in_time(self._conversation.append(before))
        yield CallsHandedOver(self._turn, tuple(collector.handed), collector.usage)

    def _note_end(self, collector: AnswerCollector) -> None:
        """Count tokens and cost of the answer, which are spent however it ends; record its partial words."""
        if collector.usage is not None:
            self._charge(collector.model, collector.usage)
        if self._spoken and not self._is_whole and not self._is_required:
            self._conversation.record(self._reply(self._spoken, collector, truncated=True))

    def _charge(self, model: str, usage: Usage) -> None:
        """Charge the tenant with the use of the model, and record it where the deployment has prices."""
        answering, conversation = self._asked.answering, self._conversation
        priced = answering.priced(model, usage)
        answering.usage.tenants.spend(
            self._asked.rules.identity, tokens=tokens_of(usage), cost=priced.known_cost
        )
        settings = answering.prices.settings
        if settings is not None and settings.in_session:
            payload = {**usage_payload([priced], settings.currency), "scope": "typed", "turn": self._turn.seq}
            conversation.record(conversation.draft(Kind.USAGE, "system", payload))

    async def _completed(self, collector: AnswerCollector) -> AsyncGenerator[TypedEvent, None]:
        """Commit the whole answer, with the offer of another tier at its end where one is due."""
        spoken, tiers = self._spoken, self._asked.tiers
        if not spoken:
            raise EngineError("no model answered", engine="language model")
        rule = None if tiers is None else tiers.new_offers().on_reply(spoken, may_offer=tiers.may_offer)
        if tiers is not None and rule is not None and (offer := tiers.offer(rule)):
            spoken = f"{spoken} {offer}"
            yield AnswerPiece(f" {offer}")
        reply = self._reply(spoken, collector, truncated=False)
        [answer] = await self._conversation.in_time(self._conversation.append(reply))
        yield AnswerCommitted(answer, collector.usage)

    def _reply(self, text: str, collector: AnswerCollector, *, truncated: bool) -> Draft:
        return _bot_turn(
            self._conversation,
            self._turn,
            self._replies,
            text,
            self._asked.rules,
            collector.passages,
            truncated=truncated,
            made_by=self._asked.made_by(collector),
        )


def _bot_turn(
    conversation: Conversation,
    turn: Event,
    replies: Sequence[Event],
    text: str,
    rules: ClientRules,
    passages: tuple[CitedPassage, ...],
    *,
    truncated: bool,
    by: str = "",
    made_by: Mapping[str, object] = MappingProxyType({}),
) -> Draft:
    """Return the event of an answer, or of its delivered part; it supersedes earlier partial answers.

    ``by`` names the author of an answer that no model made; ``made_by`` is the field about the model.
    """
    reply_id = _reply_id(turn, len(replies))
    payload: dict[str, object] = {
        "reply_id": reply_id,
        "text": text,
        "truncated": truncated,
        "unheard": "",
        "transport": turn.payload.get("transport", TRANSPORT),
        "turn": turn.seq,
        **rules.mark,
        **made_by,
    }
    if passages:
        payload["passages"] = cited_as_json(passages)
    if by:
        payload["by"] = by
    if replies:
        payload["supersedes"] = [reply.key for reply in replies]
    return conversation.draft(Kind.BOT_TURN, "bot", payload, key=reply_id)


def _said_before_calls(conversation: Conversation, turn: Event, text: str, rules: ClientRules) -> Draft:
    """Return the event of the words that came with calls for the client; the answer to the turn follows."""
    said = sum(event.kind is Kind.TOOL_CALL for event in conversation.events)
    key = f"said.{turn.key}.{said}"
    payload = {"reply_id": key, "text": text, "truncated": False, "unheard": "", "turn": turn.seq}
    payload["transport"] = turn.payload.get("transport", TRANSPORT)
    return conversation.draft(Kind.BOT_TURN, "bot", {**payload, **rules.mark}, key=key)


def _reply_id(turn: Event, before: int) -> str:
    """Return the id of an attempt to answer after ``before`` others; it is the key of its event too."""
    return f"reply.{turn.key}.{before + 1}" if before else f"reply.{turn.key}"


async def _replies_to(conversation: Conversation, store: SessionReader | None, turn: Event) -> list[Event]:
    """Return the replies to a turn so far: partial ones, and possibly a whole answer at the end."""
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
    """Return whether a turn is among the events of the view; then all later ones are too."""
    return any(event.seq == turn.seq for event in conversation.events)


@asynccontextmanager
async def _remembering(
    conversation: Conversation, store: SessionReader | None, turn: Event
) -> AsyncIterator[None]:
    """Restore the events of a turn's time while it is answered, when a summary covers them."""
    if store is None or _is_known(conversation, turn):
        yield
        return
    kinds = [kind for kind in Kind if kind not in DROPPABLE and kind is not Kind.PICTURE]
    events = await store.all_events(conversation.session_id, kinds=kinds)
    with conversation.recalled(turn.seq, events):
        yield


class _Failures(FrameProcessor):
    """Observer ahead of the language model: records that the service itself failed, before its response ends.

    An error of a guarded service comes as the guard's: its fallback answers.
    """

    def __init__(self, collector: AnswerCollector) -> None:
        super().__init__(enable_direct_mode=True)
        self._collector = collector

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, ErrorFrame) and isinstance(frame.processor, LLMService):
            self._collector.fail(frame.error)
        await self.push_frame(frame, direction)


def context_of(conversation: Conversation, turn: Event) -> LLMContext:
    """Return the context with which the model is asked about a turn."""
    messages = conversation.view(turn=turn.seq, pictures=True).messages
    return LLMContext(messages=cast(list[LLMContextMessage], list(messages)))


@asynccontextmanager
async def _thinking(asked: _AskedTurn, turn: Event, deadline_s: float) -> AsyncIterator[AnswerCollector]:
    """Run the language model on one turn while the block runs; yield the collector of its answer.

    Raises:
        EngineError: a tool call that a crash cut off is not settled by the deadline.
    """
    conversation, answering, rules = asked.conversation, asked.answering, asked.rules
    offer = asked.tools.offer
    collector = AnswerCollector()
    handed = [
        HandedOverTool(each.name, each.description, each.parameters, collector.handed.append)
        for each in offer.tools
    ]
    async with answering.tools(conversation, asked.own_tools, rules=rules) as tools:
        try:
            async with asyncio.timeout_at(deadline_s):
                await tools.recover()
        except TimeoutError:
            raise EngineError("an earlier tool call has not finished yet", engine="tools") from None
        context = context_of(conversation, turn)
        if (choice := required_tool(offer.choice)) is not None:
            context.set_tool_choice(choice)
        events = CallEvents()
        events.subscribe(FallbackAnswers, partial(_record_failover, conversation))
        thinking = await answering.build(
            tools=tools,
            context=context,
            turn=turn,
            instruction=asked.instruction,
            memory=asked.memory,
            rules=rules,
            conversation=conversation,
            events=events,
        )
        stages = Stages(
            head=[_Failures(collector)],
            dialogue=thinking,
            playout=[collector],
            tail=[LLMAssistantAggregator(context)],
        )
        async with running(stages) as worker:
            # Taken back while the service is there: another pipeline of the session could not hand them over.
            tools.add(handed, rules=rules)
            try:
                await worker.queue_frame(LLMContextFrame(context))
                yield collector
            finally:
                tools.replace(handed, (), rules=rules)


def _record_failover(conversation: Conversation, event: FallbackAnswers) -> None:
    """Record that the fallback answers in place of the language model, as for a turn of a call."""
    payload = {"stage": THINKING_SECTION, "engine": event.engine, "successor": event.successor}
    conversation.record(conversation.draft(Kind.FAILOVER, "system", {**payload, "reason": event.reason}))


async def _next_piece(
    conversation: Conversation, collector: AnswerCollector, deadline_s: float
) -> str | None:
    """Return the next piece of the answer, None at its end.

    Raises:
        StoreError: another process holds the session.
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
    """Run a pipeline while the block runs; yield its worker."""
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
                logger.error("typed turn: the pipeline does not end, cancelling it")
                task.cancel()
                await asyncio.wait({task}, timeout=CLOSE_S)
        finally:
            # A second cancellation must not leave a pipeline running.
            task.cancel()
        if task.done():
            await release_pipeline(runner, worker)
