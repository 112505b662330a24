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
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, cast

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    ErrorFrame,
    Frame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.aggregators.llm_response_universal import (
    LLMUserAggregator,
    LLMUserAggregatorParams,
    UserTurnMessageAddedMessage,
)
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_start import ExternalUserTurnStartStrategy, VADUserTurnStartStrategy
from pipecat.turns.user_stop import ExternalUserTurnStopStrategy, SpeechTimeoutUserTurnStopStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from core.errors import ConfigError
from core.timeline import Source
from pipelines.call import Call
from pipelines.echo import open_echo_control
from pipelines.engines import CLOUD_VOICE_RATE_HZ, Engines
from pipelines.lifetime import (
    LIMITED,
    OVER_LIMIT,
    call_worker,
    history_of,
    hold,
    idle_keeper,
    introduce,
    record_turns,
    voice_activity,
)
from processors.duplex.realtime import AnswerWatch, CallerTurns, RealtimeReplies, ServiceGate, TypedWords
from processors.duplex.services import Opening, RealtimeRow, Turns, Typing
from processors.front_end.vad import SharedVadAnalyzer
from processors.fusion.perception import Perception
from processors.playout.assistant import HeardAssistantAggregator
from processors.taps.turn_marks import TurnMarks
from processors.turns.idle import IdleKeeper
from telemetry.turns import TurnLog

# Behind the end of a voice, where nobody else tells: about what providers wait.
TURN_SILENCE_S = 0.6
# From an error of the service to the end of the call, for what it has written down meanwhile.
LATE_WORDS_S = 1.0

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
        built = await build_realtime(engines, row, transport, call, idle=idle, rtvi=rtvi)
    except BaseException:
        call.close_front_end()
        raise
    await hold(
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
    idle: IdleKeeper,
    rtvi: bool = True,
) -> Built:
    """The pipeline of one call. Loads no model; what the service builds is built in a thread."""
    deployment = engines.deployment
    bot, hearing, conversation, turns = deployment.bot, deployment.hearing, call.conversation, call.turns
    usage = engines.answering.usage
    start = beginning(
        row.opening,
        prompt=bot.system_prompt,
        greeting=bot.greeting_again if conversation.events else bot.greeting,
        history=history_of(conversation),
    )
    echo, tts, service = await asyncio.gather(
        open_echo_control(engines, transport, call),
        engines.build_tts(),
        asyncio.to_thread(row.build, engines.answering.shared, system_instruction=start.instructions),
    )
    context = LLMContext(messages=cast(list[LLMContextMessage], list(start.messages)))
    marks = TurnMarks(turns)
    perception = Perception(
        conversation,
        call_id=call.call_id,
        settings=hearing.perception,
        latencies=engines.latencies,
        engines={Source.STT: row.name},
        notice=lambda frame: on_perceived(frame),
    )
    caller = CallerTurns(conversation, transport=call.transport, perceive=perception.take)
    watch = AnswerWatch(
        deployment.duplex.answer_ms, on_waiting=idle.on_waiting, is_speaking=lambda: replies.is_speaking
    )

    def on_perceived(frame: Frame) -> None:
        idle.on_frame(frame)
        if isinstance(frame, VADUserStartedSpeakingFrame):
            caller.on_voice_started(round(frame.start_secs * 1000))
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            caller.on_voice_stopped()
        elif isinstance(frame, TranscriptionFrame):
            turns.words_arrived()
            caller.on_words()
            watch.on_words()

    def on_typed(text: str) -> None:
        turns.user_typed(text)
        idle.on_turn_ended(text)
        caller.take(text, typed=True)
        watch.on_turn_ended()
        watch.on_words()

    gate = ServiceGate(takes_contexts=start.is_sent)
    typed = TypedWords(row.typing, hand_on=gate.push_frame, on_typed=on_typed)
    replies = RealtimeReplies(
        call.playout, continuous=row.continuous, on_speaks=watch.on_answer, notice=marks.thinking
    )
    thought, entry, exit_ = call.playout.taps(on_speech=marks.speaking)
    idle.holds_reply = lambda: replies.is_speaking
    call.is_answering = idle.is_answering
    user = LLMUserAggregator(
        context,
        params=LLMUserAggregatorParams(user_turn_strategies=_strategies(row.turns), empty_user_turn=None),
    )
    assistant = HeardAssistantAggregator(context, user)
    vad = SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=hearing.voice.params(),
        on_onset=idle.on_onset,
        pause_ms=hearing.voice.pause_ms,
        on_audio=turns.heard,
        hosted=call.front_end,
    )

    def take_typed(text: str) -> float:
        """Count a text; the service answers it, so one that is taken is a turn."""
        wait_s = call.conversation.take_typed(text)
        if not wait_s:
            usage.try_take(call.rules.counted)
        return wait_s

    worker = call_worker(
        [
            transport.input(),
            *echo,
            voice_activity(vad),
            typed,
            user,
            # Behind the turns: the service's words come from there.
            perception,
            thought,
            tts,
            gate,
            service,
            replies,
            entry,
            transport.output(),
            exit_,
            assistant,
        ],
        output_rate_hz=CLOUD_VOICE_RATE_HZ,
        # What it pushes comes again from the replies.
        unseen=[service],
        rtvi=rtvi,
        reads_rtvi=call.client.reads_rtvi,
        take_typed=take_typed,
        refuses_text=(
            f"{row.name} takes no typed words in a call. Please say it." if row.typing is Typing.NONE else ""
        ),
        refuses_turn=lambda: "" if usage.has_request(call.rules.counted) else OVER_LIMIT,
    )
    call.report = worker.queue_frame
    record_turns(worker, assistant, call, rtvi=rtvi)
    ending = _Ending(worker, gate, deployment.thinking.guard.apology)

    def on_spoken() -> None:
        # Speech goes to the service as it comes, which answers it by itself: without the call nothing does.
        if not usage.try_take(call.rules.counted) and call.end[0] == "stopped":
            call.end = LIMITED, OVER_LIMIT
            ending.over(
                "its client has no turns left", says=deployment.remembering.gate.over_limit, is_failure=False
            )

    _follow(user, caller, idle, turns, watch, call, on_spoken)

    @service.event_handler("on_error")
    async def on_error(_service: Any, error: ErrorFrame) -> None:
        ending.over(f"the realtime service {row.name} failed: {error.error}")

    begun = False

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        nonlocal begun
        idle.on_connected()
        if begun:
            return
        begun = True
        if start.greets:
            watch.on_words()
        if start.is_sent:
            await worker.queue_frame(LLMRunFrame())

    if rtvi:
        introduce(worker, conversation)
    return Built(worker, caller, (watch.run(ending.unanswered), ending.run()))


class _Ending:
    """Says that something went wrong, and ends the call behind it, once. ``run`` is its caller's task.

    Args:
        worker: of the pipeline.
        gate: in front of the service.
        apology: what is said of a failure.
    """

    def __init__(self, worker: PipelineWorker, gate: ServiceGate, apology: str) -> None:
        self._worker = worker
        self._gate = gate
        self._apology = self._says = apology
        self._is_over = asyncio.Event()

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
        await asyncio.sleep(LATE_WORDS_S)
        await self._worker.queue_frame(EndFrame())

    async def _say(self, text: str) -> None:
        await self._worker.queue_frame(TTSSpeakFrame(text, append_to_context=False))


def _follow(
    user: LLMUserAggregator,
    caller: CallerTurns,
    idle: IdleKeeper,
    turns: TurnLog,
    watch: AnswerWatch,
    call: Call,
    on_spoken: Callable[[], None],
) -> None:
    """Keep the session, the turn log and the silences in step with the caller's turns.

    ``on_spoken`` is called at the end of each turn; must not block.
    """

    in_turn = False

    @user.event_handler("on_user_turn_started")
    async def on_started(_aggregator: Any, _strategy: Any) -> None:
        nonlocal in_turn
        in_turn = True
        idle.on_turn_started()
        if call.on_turn_started is not None:
            call.on_turn_started()

    @user.event_handler("on_user_turn_stopped")
    async def on_stopped(_aggregator: Any, _strategy: Any, _message: Any) -> None:
        turns.user_turn_ended(silence_ms=0, completeness=None)
        nonlocal in_turn
        in_turn = False
        watch.on_turn_ended()
        idle.on_turn_ended("")
        if call.on_turn is not None:
            call.on_turn("")
        on_spoken()

    @user.event_handler("on_user_turn_message_added")
    async def on_message(_aggregator: Any, message: UserTurnMessageAddedMessage) -> None:
        turns.user_said(message.content)
        idle.on_turn_ended(message.content)
        # The words of a turn may come in the middle of the next one, which says what follows.
        if call.on_turn is not None and not in_turn:
            call.on_turn(message.content)
        caller.take(message.content)


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
