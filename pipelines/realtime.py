"""Full duplex by a service of Pipecat's: one model that hears, decides and speaks, at its provider.

``run_realtime`` builds one call's pipeline around the service that the deployment names, runs it until the
caller is gone and returns. The service hears all of the call and answers by itself; nothing is held back
until it is durable, because nothing here decides when it answers. What it says is followed by the playout
clock, and the caller's turns are made of what it writes down.

    transport.input -> (echo control) -> VAD -> perception -> turns -> voice -> service -> replies
        -> transport.output -> (heard) -> bot turns

The deployment's voice prompts a silent caller and apologises; it stands in front of the service, which lets
pass what it is no part of. Voice activity is for the idle prompts, for the moment when a turn began, and for
clients where the service does not say when the caller talks. A service that reports an error is taken to be
gone: an apology, and the call ends.
"""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    LLMRunFrame,
    TTSSpeakFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import (
    LLMUserAggregator,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_start import ExternalUserTurnStartStrategy, VADUserTurnStartStrategy
from pipecat.turns.user_stop import ExternalUserTurnStopStrategy, SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from core.call_events import CallEnding, CallerJoined, FinalWords, TurnEnded, TurnTranscribed
from core.errors import ConfigError
from pipelines.builder import Stages, build
from pipelines.call import Call
from pipelines.echo import open_echo_control
from pipelines.engines import CLOUD_VOICE_RATE_HZ, Engines
from pipelines.lifetime import LIMITED, OVER_LIMIT, history_of, hold, idle_keeper, voice_activity
from pipelines.stages import perception_of, voice_detector
from processors.duplex.realtime import AnswerWatch, CallerTurns, RealtimeReplies, ServiceGate, TypedWords
from processors.duplex.services import Opening, RealtimeRow, Turns, Typing
from processors.playout.assistant import HeardAssistantAggregator
from processors.turns.turn_events import publish_service_turns
from telemetry.turn_events import TurnLogWriter

# Behind the end of a voice, where nobody else tells: about what providers wait.
TURN_SILENCE_S = 0.6
# From an error of the service to the end of the call, for what it has written down meanwhile.
LATE_WORDS_MS = 1_000

GREET = (
    "The call begins now, and the person on the line has said nothing yet. Greet them with these words: {}"
)
BEFORE = "What was said in this conversation before this call, as far as it was heard:"


@dataclass(frozen=True)
class Beginning:
    """How the service is told what to be, what was said before and what to greet with.

    Attributes:
        instructions: system prompt of the service.
        messages: its first context.
        is_sent: whether a first context is sent at all.
        greets: whether it was asked to greet.
    """

    instructions: str
    messages: tuple[dict[str, str], ...]
    is_sent: bool
    greets: bool


def beginning(
    opening: Opening, *, prompt: str, greeting: str, history: tuple[tuple[str, str], ...]
) -> Beginning:
    """What a service is told when a call begins.

    Args:
        opening: how it takes it.
        prompt: system prompt of the deployment.
        greeting: what the bot is to begin with; empty to wait for the caller.
        history: role and words of what was said before.
    """
    ask = GREET.format(greeting) if greeting else ""
    if opening is Opening.CONTEXT or (opening is Opening.ANSWERED_CONTEXT and ask):
        said = [{"role": role, "content": words} for role, words in history]
        asked = [{"role": "developer", "content": ask}] if ask else []
        return Beginning(prompt, (*said, *asked), is_sent=True, greets=bool(ask))
    # A context would be answered, or is not read.
    told = "\n".join((BEFORE, *(f"{role}: {words}" for role, words in history))) if history else ""
    by_instruction = ask if opening is Opening.INSTRUCTIONS else ""
    whole = "\n\n".join(part for part in (prompt, told, by_instruction) if part)
    return Beginning(whole, (), is_sent=False, greets=bool(by_instruction))


async def run_realtime(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    rtvi: bool = True,
    handle_sigint: bool = False,
    finished: asyncio.Event | None = None,
) -> None:
    """Hold one conversation with a realtime service over ``transport`` until it ends.

    Args:
        engines: of the process, loaded for duplex.
        transport: Pipecat's or ours.
        call: the session that it is a part of, and its records.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handle_sigint: end the conversation on Ctrl-C.
        finished: set by whoever wants the conversation to end in good order, after what is being said.

    Raises:
        ConfigError: the deployment names no realtime service, or it cannot be built.
    """
    row = engines.realtime
    if row is None:
        raise ConfigError("this deployment names no realtime service: duplex.engine")
    idle = idle_keeper(engines, call)
    if engines.deployment.thinking.tools:
        logger.warning("a realtime service is offered no tools in this version: thinking.tools is not used")
    try:
        built = await build_realtime(engines, row, transport, call, rtvi=rtvi)
    except BaseException:
        call.close_front_end()
        raise
    await hold(
        engines,
        built.worker,
        transport,
        call,
        idle,
        beside=built.beside,
        last=built.caller.close,
        rtvi=rtvi,
        handle_sigint=handle_sigint,
        finished=finished,
    )


@dataclass(frozen=True)
class Built:
    """One call's pipeline.

    Attributes:
        worker: of the pipeline.
        caller: what the caller said, on its way into the session.
        beside: what runs beside the pipeline.
    """

    worker: PipelineWorker
    caller: CallerTurns
    beside: tuple[Coroutine[Any, Any, None], ...]


async def build_realtime(
    engines: Engines,
    row: RealtimeRow[Any],
    transport: BaseTransport,
    call: Call,
    *,
    rtvi: bool = True,
) -> Built:
    """The pipeline of one call. Loads no model; what the service builds is built in a thread."""
    deployment, conversation = engines.deployment, call.conversation
    start = beginning(
        row.opening,
        prompt=deployment.bot.system_prompt,
        greeting=deployment.bot.greeting_again if conversation.events else deployment.bot.greeting,
        history=history_of(conversation),
    )
    echo, tts, service = await asyncio.gather(
        open_echo_control(engines, transport, call),
        engines.build_tts(),
        asyncio.to_thread(row.build, engines.answering.shared, system_instruction=start.instructions),
    )
    TurnLogWriter(call.turns, call.events, words=FinalWords)
    perception = perception_of(engines, call, row.name)
    caller = CallerTurns(conversation, call.events, transport=call.transport, perceive=perception.take)
    user = _user_aggregator(row, start)
    model = _ServiceStages(engines, row, call, takes_contexts=start.is_sent)
    thought, entry, exit_ = call.playout.taps()
    vad = voice_detector(engines, call, [call.turns.heard])
    stages = Stages(
        head=[transport.input(), *echo, voice_activity(vad)],
        perception=[],
        # Words come from the service: what is perceived of them stands after the turns.
        turns=[model.typed, user, perception],
        dialogue=[],
        speech=[thought, tts, model.gate, service, model.replies],
        playout=[entry, transport.output(), exit_],
        tail=HeardAssistantAggregator(user.context, user),
        # What it pushes comes again from the replies.
        unseen=[service],
    )
    worker = build(
        engines,
        transport,
        call,
        stages,
        rtvi=rtvi,
        output_rate_hz=CLOUD_VOICE_RATE_HZ,
        refuses_text=f"{row.name} takes no typed words in a call. Please say it."
        if row.typing is Typing.NONE
        else "",
        take_typed=partial(_take_typed, engines, call),
        greets=False,
    )
    publish_service_turns(call.events, user, call.input.flush)
    ending = _Ending(call, model.gate, deployment.thinking.guard.apology)
    ending.follow(service, row.name)
    _Allowance(engines, call, ending)
    _Start(call, start, model.watch)
    return Built(worker, caller, (model.watch.run(ending.unanswered), ending.run()))


class _ServiceStages:
    """What stands around the service.

    Attributes:
        watch: notices an answer that does not come.
        gate: keeps from the service what is not for it.
        typed: leads typed words past the turns.
        replies: makes replies of what the service says.
    """

    def __init__(self, engines: Engines, row: RealtimeRow[Any], call: Call, *, takes_contexts: bool) -> None:
        events = call.events
        # Not through this object: it would hold itself.
        replies: RealtimeReplies
        self.watch = AnswerWatch(
            engines.deployment.duplex.answer_ms, events, is_speaking=lambda: replies.is_speaking
        )
        self.gate = ServiceGate(takes_contexts=takes_contexts)
        self.typed = TypedWords(row.typing, hand_on=self.gate.push_frame, events=events)
        replies = self.replies = RealtimeReplies(
            call.playout, continuous=row.continuous, on_speaks=self.watch.on_answer
        )
        call.floor.add_holder(lambda: replies.is_speaking)


def _user_aggregator(row: RealtimeRow[Any], start: Beginning) -> LLMUserAggregator:
    return LLMUserAggregator(
        LLMContext(messages=cast(list[LLMContextMessage], list(start.messages))),
        params=LLMUserAggregatorParams(user_turn_strategies=_strategies(row.turns), empty_user_turn=None),
    )


class _Ending:
    """Says that something went wrong, and ends the call behind it, once. ``run`` is its caller's task.

    Args:
        call: that ends.
        gate: in front of the service.
        apology: what is said of a failure.
    """

    def __init__(self, call: Call, gate: ServiceGate, apology: str) -> None:
        self._call, self._gate = call, gate
        self._apology = self._says = apology
        self._is_over = asyncio.Event()

    def follow(self, service: FrameProcessor, name: str) -> None:
        """End the call when the service reports an error."""

        @service.event_handler("on_error")
        async def on_error(_service: Any, error: ErrorFrame) -> None:
            self.over(f"the realtime service {name} failed: {error.error}")

    def over(self, why: str, *, says: str = "", is_failure: bool = True) -> None:
        """Nothing more is expected of the service.

        Args:
            why: for the log.
            says: to the caller, in place of the apology.
            is_failure: of the service, which is logged as an error.
        """
        if not self._is_over.is_set():
            logger.log("ERROR" if is_failure else "INFO", f"the call ends: {why}")
            self._says = says or self._apology
            self._gate.shut()
            self._is_over.set()

    async def unanswered(self, is_last: bool) -> None:
        """An answer did not come; ``is_last``: and nobody is to wait for another."""
        if is_last:
            self.over("the realtime service does not answer")
        elif not self._is_over.is_set():
            logger.warning("the realtime service has not answered")
            await self._say(self._apology)

    async def run(self) -> None:
        """Say why when it is over, and end the call."""
        await self._is_over.wait()
        await self._say(self._says)
        # Words on their way would come after the end; what is said takes longer than that.
        await self._call.events.wait_for(TurnTranscribed, within_ms=LATE_WORDS_MS)
        await self._call.input.queue(EndFrame())

    async def _say(self, text: str) -> None:
        await self._call.input.queue(TTSSpeakFrame(text, append_to_context=False))


def _take_typed(engines: Engines, call: Call, text: str) -> float:
    """Count a text; the service answers it, so one that is taken is a turn."""
    wait_s = call.conversation.take_typed(text)
    if not wait_s:
        engines.answering.usage.try_take(call.rules.counted)
    return wait_s


class _Allowance:
    """Counts the turns of a client, and ends the call when it has none left.

    Speech goes to the service as it comes, which answers it by itself: without the call nothing does.
    """

    def __init__(self, engines: Engines, call: Call, ending: _Ending) -> None:
        self._usage, self._call, self._ending = engines.answering.usage, call, ending
        self._over_limit = engines.deployment.remembering.gate.over_limit
        call.events.subscribe(TurnEnded, self._on_turn_ended)

    def _on_turn_ended(self, _event: TurnEnded) -> None:
        call = self._call
        if not self._usage.try_take(call.rules.counted) and call.end[0] == "stopped":
            call.events.publish(CallEnding(call.events.now_ms(), LIMITED, OVER_LIMIT))
            self._ending.over("its client has no turns left", says=self._over_limit, is_failure=False)


class _Start:
    """Begins the conversation with the service when the caller is there, once."""

    def __init__(self, call: Call, start: Beginning, watch: AnswerWatch) -> None:
        self._call, self._start, self._watch = call, start, watch
        self._is_begun = False
        call.events.subscribe(CallerJoined, self._on_caller_joined)

    def _on_caller_joined(self, _event: CallerJoined) -> None:
        if self._is_begun:
            return
        self._is_begun = True
        if self._start.greets:
            self._watch.on_words()
        if self._start.is_sent:
            self._call.input.put(LLMRunFrame())


def _strategies(turns: Turns) -> UserTurnStrategies:
    """Who begins and ends the caller's turns, and whether that interrupts the bot. Words are waited for by
    nobody: they come when they come.
    """
    if turns is Turns.VOICE:
        return UserTurnStrategies(
            start=[VADUserTurnStartStrategy(enable_interruptions=False)],
            stop=[
                SpeechTimeoutUserTurnStopStrategy(
                    user_speech_timeout=TURN_SILENCE_S, wait_for_transcript=False
                )
            ],
        )
    # One that falls silent by itself writes a turn down before it says that it is over.
    alone = turns is Turns.SERVICE_ALONE
    return UserTurnStrategies(
        start=[ExternalUserTurnStartStrategy(enable_interruptions=not alone)],
        stop=[ExternalUserTurnStopStrategy(wait_for_transcript=alone)],
    )
