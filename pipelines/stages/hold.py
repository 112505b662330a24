"""Hold of a call by its caller: the client's request, the stages that wait, and what is said afterwards.

A client reports it with an RTVI ``client-message`` of type ``hold`` (``{"is_on": true}``), and is sent the
state (``server-message`` of kind ``hold``) when it has connected and at each change. A request is an event
(``HoldRequested``), so any part of a call may make one. A hold

* interrupts the bot as its caller would: what was heard until then is what the conversation keeps;
* lets nothing be said, asked or heard (``processors.turns.hold``). A question of the caller waits;
* leaves to a human who is fetched meanwhile, or takes the session, what waits for an answer of the model;
* ends when the caller goes on. The question that waits is answered, else the rest of the reply is said from
  the first word that was not heard, else the bot waits. A speech model with words of its own is paused with
  its ticks and decides by itself what it says afterwards;
* ends with the call after ``HOLD_MOST_S`` (``processors.turns.idle`` says goodbye).

``run`` is a task of the call.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from loguru import logger
from pipecat.frames.frames import Frame, InterruptionFrame, TTSSpeakFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pydantic import BaseModel, ConfigDict, ValidationError

from parley.core.call_events import (
    GoodbyeDue,
    HoldBegan,
    HoldEnded,
    HoldRequested,
    QuestionReopened,
    ReplyFinished,
    ReplyResumed,
    ReplyStarted,
    ResponseEnded,
    ResponseStarted,
    TierChanged,
    ToolsCalled,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.tiers import HELD, Tier
from parley.core.timeline import HeardReply
from parley.core.token_bucket import TokenBucket
from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.client_messages import on_client_message
from parley.processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from parley.processors.turns.hold import HeldMedia, HeldSpeech
from parley.processors.turns.over_bot.replies import BOOKS_MS, rest_of
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.hold import (
    BY_CALLER,
    BY_GOODBYE,
    BY_TIME,
    HOLD_MOST_S,
    HoldAct,
    HoldMachine,
    HoldSignal,
)

# Type of the client's messages, and kind of the server's.
TYPE = "hold"
# Clicks of a person; a client that sends more is broken or hostile.
REPORTS_PER_S, BURST = 2, 10
# Requests that wait for the task: the last one counts.
MOST_WAITING = 8
# The goodbye of a hold that is too long comes before an engine's own end of its pause.
ENGINE_MARGIN_MS = 1_000


class HoldReport(BaseModel):
    """Request of a client."""

    model_config = ConfigDict(extra="forbid", strict=True)

    is_on: bool


class HoldOfCall(Protocol):
    """Hold of one call: ``CallHold``, or ``NoHold`` for a call that cannot be put on hold."""

    @property
    def head(self) -> list[FrameProcessor]:
        """Stages directly after the transport's input."""
        ...

    @property
    def dialogue(self) -> list[FrameProcessor]:
        """Stages after the commit gate."""
        ...

    @property
    def background(self) -> Background:
        """Tasks of the call."""
        ...

    def is_on(self) -> bool:
        """Return whether the call is on hold."""
        ...

    def listen(self, worker: PipelineWorker) -> None:
        """Receive the requests of the client of a pipeline, and send it the state."""
        ...


class NoHold:
    """Hold of a call that cannot be put on hold: it has no stages, and is never on."""

    @property
    def head(self) -> list[FrameProcessor]:
        """No stages."""
        return []

    @property
    def dialogue(self) -> list[FrameProcessor]:
        """No stages."""
        return []

    @property
    def background(self) -> Background:
        """No tasks."""
        return []

    def is_on(self) -> bool:
        """Return False."""
        return False

    def listen(self, worker: PipelineWorker) -> None:
        """Receive nothing."""


def hold_of(call: Call, *, engine_pause_ms: int | None = None) -> HoldOfCall:
    """Return the hold of a call; ``NoHold`` where its client speaks no RTVI. See ``CallHold``."""
    if not call.capabilities.speaks_rtvi:
        return NoHold()
    return CallHold(call, engine_pause_ms=engine_pause_ms)


class CallHold:
    """Hold of one call whose client speaks RTVI.

    Args:
        call: the call.
        engine_pause_ms: longest pause of a speech model with words of its own; None: the deployment's model
            and voice speak.
    """

    def __init__(self, call: Call, *, engine_pause_ms: int | None = None) -> None:
        self._call, self._engine_pause_ms = call, engine_pause_ms
        most_ms = HOLD_MOST_S * 1_000
        if engine_pause_ms is not None:
            most_ms = min(most_ms, engine_pause_ms - ENGINE_MARGIN_MS)
        self.most_s = most_ms // 1_000
        self._machine = HoldMachine(most_ms)
        self._clock = LoopClock()
        self._media, self._speech = (
            HeldMedia(is_on=call.resumption.begins_held),
            HeldSpeech(is_on=call.resumption.begins_held),
        )
        self._rate = TokenBucket(REPORTS_PER_S, BURST)
        self._signals: deque[HoldSignal] = deque(maxlen=MOST_WAITING)
        self._news = asyncio.Event()
        # An answer is awaited, being written, or follows tools that run.
        self._is_awaited = self._is_written = self._follows_tools = False
        # What the hold took: an answer, or the replies that it cut.
        self._is_answer_lost, self._lost = False, list[HeardReply]()
        # The rest of it is on its way and has not begun: another hold takes it again.
        self._is_rest_due = False
        events = call.events
        events.subscribe(HoldRequested, self._on_requested)
        events.subscribe(GoodbyeDue, lambda _event: self._signal(HoldSignal.FAREWELL))
        events.subscribe(WaitBegan, lambda event: self._note_wait(event.reason, is_on=True))
        events.subscribe(WaitEnded, lambda event: self._note_wait(event.reason, is_on=False))
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ResponseEnded, self._on_response_ended)
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(TierChanged, self._on_tier_changed)
        if call.resumption.begins_held:
            self._signal(HoldSignal.HOLD)

    @property
    def head(self) -> list[FrameProcessor]:
        """Stages directly after the transport's input."""
        return [self._media]

    @property
    def dialogue(self) -> list[FrameProcessor]:
        """Stages after the commit gate."""
        return [self._speech]

    @property
    def background(self) -> Background:
        """Tasks of the call."""
        run: Callable[[], Coroutine[Any, Any, None]] = self.run
        return [run]

    def is_on(self) -> bool:
        """Return whether the call is on hold."""
        return self._speech.is_on

    def listen(self, worker: PipelineWorker) -> None:
        """Receive the requests of the client of a pipeline, and send it the state."""
        if not self._call.peer.speaks_rtvi:
            return
        on_client_message(worker, TYPE, self.take)

        @worker.rtvi.event_handler("on_client_ready")
        async def on_ready(_rtvi: Any) -> None:
            self._send()

    def take(self, data: object) -> None:
        """Publish a request of the client, or drop it."""
        if not self._rate.take(1, self._clock.now_us()):
            return
        try:
            report = HoldReport.model_validate(data)
        except ValidationError as error:
            logger.debug(f"a request for a hold was dropped: {error.error_count()} faults")
            return
        events = self._call.events
        events.publish(HoldRequested(events.now_ms(), report.is_on))

    async def run(self) -> None:
        """Carry out the requests, and end a hold that is too long, until cancelled."""
        while True:
            due_ms = self._machine.next_deadline_ms()
            left_s = None if due_ms is None else max(0, due_ms - self._call.events.now_ms()) / 1_000
            try:
                async with asyncio.timeout(left_s):
                    await self._news.wait()
            except TimeoutError:
                self._signals.append(HoldSignal.DUE)
            self._news.clear()
            while self._signals:
                await self._carry_out(self._signals.popleft())

    async def _carry_out(self, signal: HoldSignal) -> None:
        if signal is HoldSignal.DUE and not self._machine.is_held:
            return
        match self._machine.on(signal, self._call.events.now_ms()):
            case HoldAct.BEGIN:
                await self._begin()
            case HoldAct.RESUME:
                await self._resume()
            case HoldAct.END:
                await self._end(BY_TIME if signal is HoldSignal.DUE else BY_GOODBYE)
            case HoldAct.NOTHING:
                return
        self._send()

    async def _begin(self) -> None:
        events, pipeline = self._call.events, self._call.live.input
        self._media.hold()
        self._speech.hold()
        if not self._is_rest_due:
            self._lost = []
            self._is_answer_lost = self._is_awaited or self._is_written or self._follows_tools
        self._is_written = self._follows_tools = False
        events.publish(HoldBegan(events.now_ms()))
        events.publish(WaitBegan(events.now_ms(), Wait.HOLD))
        await pipeline.queue(InterruptionFrame())
        if self._engine_pause_ms is not None:
            await pipeline.queue(DuplexPauseFrame(self._engine_pause_ms))

    async def _resume(self) -> None:
        call = self._call
        await self._until_booked()
        await self._open(BY_CALLER)
        frames: list[Frame] = []
        if self._engine_pause_ms is None and not self._speech.has_question:
            frames = rest_of(self._lost, is_answer_lost=self._is_answer_lost)
        if frames and isinstance(frames[0], TTSSpeakFrame):
            first = next(reply for reply in self._lost if reply.unheard == frames[0].text)
            call.events.publish(ReplyResumed(call.events.now_ms(), first.mark.last_word + 1))
        elif self._speech.has_question:
            call.events.publish(QuestionReopened(call.events.now_ms()))
        self._is_rest_due = bool(frames)
        self._speech.open()
        for frame in frames:
            await call.live.input.queue(frame)
        await self._speech.release()

    async def _end(self, by: str) -> None:
        """End the hold for the farewell of the bot: the caller stays unheard."""
        self._speech.drop()
        await self._open(by)

    async def _open(self, by: str) -> None:
        events = self._call.events
        if by == BY_CALLER:
            self._media.release()
        if self._engine_pause_ms is not None:
            await self._call.live.input.queue(DuplexResumeFrame())
        events.publish(WaitEnded(events.now_ms(), Wait.HOLD))
        events.publish(HoldEnded(events.now_ms(), by))

    async def _until_booked(self) -> None:
        """Return when the heard part of what the hold cut is known, or will not become known."""
        clock, events = self._call.live.playout.heard_clock, self._call.events
        due_ms = events.now_ms() + BOOKS_MS
        while clock.open_ids and (left_ms := due_ms - events.now_ms()) > 0:
            await events.wait_for(ReplyFinished, within_ms=left_ms)

    def _send(self) -> None:
        if self._call.peer.speaks_rtvi:
            data = {"kind": TYPE, "is_on": self._machine.is_held, "most_s": self.most_s}
            self._call.live.input.put(RTVIServerMessageFrame(data=data))

    def _signal(self, signal: HoldSignal) -> None:
        self._signals.append(signal)
        self._news.set()

    def _on_requested(self, event: HoldRequested) -> None:
        self._signal(HoldSignal.HOLD if event.is_on else HoldSignal.GO_ON)

    def _note_wait(self, reason: Wait, *, is_on: bool) -> None:
        if reason is Wait.ANSWER:
            self._is_awaited, self._follows_tools = is_on, False

    def _on_response_started(self, _event: ResponseStarted) -> None:
        self._is_written, self._follows_tools = True, False

    def _on_response_ended(self, _event: ResponseEnded) -> None:
        self._is_written = False

    def _on_reply_started(self, _event: ReplyStarted) -> None:
        self._is_rest_due = False

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        self._follows_tools = True

    def _on_tier_changed(self, event: TierChanged) -> None:
        if event.tier in HELD:
            self._is_answer_lost, self._lost = False, []
            self._speech.forget_question()
        if event.tier is Tier.HUMAN:
            self._speech.forget_phrases()

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if self._machine.is_held:
            self._lost = [*([] if self._is_rest_due else self._lost), event.heard]
            self._is_rest_due = False
        elif event.heard.in_context:
            # Also one that its caller cut while it was written.
            self._is_written = False
