"""The cascade: ears, turns, thought, voice, in the order the data meets them.

``run_conversation`` builds one call's pipeline from the shared engines, runs it until the caller is gone and
returns. It owns everything of the call: Pipecat's worker owns the tasks, and whatever ends it (hang-up,
cancellation, idleness, a session that another process took over) ends them. The call is one transport of a
session, which was there before it and stays behind it.

    transport.input -> (echo control) -> VAD -> STT -> (audio stops) -> (perceived) -> user turns -> (waits)
        -> (committed) -> (guessed) guarded LLM -> TTS -> transport.output -> (heard) -> bot turns
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from loguru import logger
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMUserAggregator, LLMUserAggregatorParams
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_start import (
    BaseUserTurnStartStrategy,
    TranscriptionUserTurnStartStrategy,
    VADUserTurnStartStrategy,
)
from pipecat.turns.user_turn_strategies import UserTurnStrategies

from core.call_events import AnswerHeard
from pipelines.builder import Background, Stages, build
from pipelines.call import Call
from pipelines.client_tools import offered_tools
from pipelines.echo import open_echo_control
from pipelines.engines import Engines
from pipelines.lifetime import hold, idle_keeper, voice_activity
from pipelines.reprompt import Reprompt
from pipelines.screening import Screening, open_screening
from pipelines.stages import (
    Listener,
    commit_gate,
    fan_out,
    gain_of,
    perception_of,
    speculation_of,
    voice_detector,
    wait_guard,
)
from processors.dialogue.commit_gate import CommitGate
from processors.dialogue.durable_tools import DurableTools
from processors.dialogue.engine_llm import EngineLlmService
from processors.dialogue.speculation import Speculation
from processors.dialogue.wait_guard import WaitGuard
from processors.front_end.vad import SharedVadAnalyzer
from processors.fusion.perception import Perception
from processors.playout.assistant import HeardAssistantAggregator
from processors.turns.audio_stop import AudioStop
from processors.turns.backchannel import BackchannelKeeper, Say
from processors.turns.barge_in import BargeInStartStrategy
from processors.turns.endpoint import EndpointStopStrategy
from processors.turns.looks import VoiceLooks
from processors.turns.stop_words import StopWords
from processors.turns.turn_events import publish_turns
from telemetry.turn_events import TurnLogWriter
from turn_taking.asking_back import AskingBack
from turn_taking.backchannel import BackchannelPolicy
from turn_taking.barge_in import BargeIn
from turn_taking.policies import endpoint_policy
from turn_taking.speculation import Guesser


@dataclass(frozen=True)
class OverBot:
    """Listeners to voices over the bot, except the recogniser; each is None where the deployment has none.

    Attributes:
        stop_words: spots words that stop the bot.
        looks: looks at how the beginning of a voice sounds.
    """

    stop_words: StopWords | None
    looks: VoiceLooks | None

    @property
    def all(self) -> tuple[StopWords | VoiceLooks, ...]:
        """Those that there are."""
        return tuple(each for each in (self.stop_words, self.looks) if each is not None)


async def run_conversation(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    rtvi: bool = True,
    handle_sigint: bool = False,
    finished: asyncio.Event | None = None,
) -> None:
    """Hold one conversation over ``transport`` until it ends.

    Args:
        engines: of the process.
        transport: Pipecat's or ours.
        call: the session that it is a part of, and its records.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handle_sigint: end the conversation on Ctrl-C.
        finished: set by whoever wants the conversation to end in good order, after what is being said.
    """
    idle = idle_keeper(engines, call)
    async with offered_tools(engines.answering, call) as tools:
        worker, background = await _open(engines, transport, call, tools, rtvi=rtvi)
        await hold(
            engines,
            worker,
            transport,
            call,
            idle,
            # What a crash left half done may take a slow server's time; no greeting waits for it.
            beside=[*(start() for start in background), tools.recover()],
            rtvi=rtvi,
            handle_sigint=handle_sigint,
            finished=finished,
        )


async def _open(
    engines: Engines, transport: BaseTransport, call: Call, tools: DurableTools, *, rtvi: bool
) -> tuple[PipelineWorker, Background]:
    """Open what the pipeline of one call needs of its own, and build it."""
    over_bot = OverBot(None, None)
    try:
        screening = await open_screening(engines, call)
        over_bot = OverBot(await engines.build_stop_words(), None)
        over_bot = OverBot(over_bot.stop_words, await engines.build_looks())
        return await _build(engines, transport, call, screening, over_bot, tools=tools, rtvi=rtvi)
    except BaseException:
        call.close_front_end()
        for each in over_bot.all:
            each.close()
        raise


async def _build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    screening: Screening,
    over_bot: OverBot,
    *,
    tools: DurableTools,
    rtvi: bool,
) -> tuple[PipelineWorker, Background]:
    """Return the pipeline of one call, and its tasks. Loads no model; what a cloud service builds is built in
    a thread.
    """
    context, events = LLMContext(), call.events
    hear_over_bot = fan_out([each.hear for each in over_bot.all])
    echo, stt, thinking, tts = await asyncio.gather(
        open_echo_control(engines, transport, call, on_cancelled=hear_over_bot if over_bot.all else None),
        engines.build_stt(audio_passthrough=False),
        engines.answering.build(tools=tools, context=context, rules=call.rules),
        engines.build_tts(),
    )
    TurnLogWriter(call.turns, events)
    events.subscribe(AnswerHeard, lambda event: engines.answered(event.latency_ms))
    thought, entry, exit_ = call.playout.taps(guards_protected=_guards_protected(engines))
    background = [*_backchannels(engines, call, entry.push_frame), *screening.background]

    perception = perception_of(engines, call, engines.deployment.hearing.stt.name)
    turns = _turns(engines, transport, call, context, over_bot, [] if echo else [hear_over_bot])
    dialogue = _dialogue(
        engines, call, context, perception, thinking, tts, say=thought.push_frame, screening=screening
    )
    assistant = HeardAssistantAggregator(context, turns.user)
    stages = Stages(
        head=[transport.input(), *screening.ear, *echo, voice_activity(turns.vad)],
        perception=[stt, AudioStop(), perception, *screening.detector],
        turns=[turns.user],
        dialogue=[
            dialogue.waits,
            dialogue.gate,
            *screening.hold,
            *dialogue.speculation.around(thinking),
        ],
        speech=[thought, tts, *screening.gate],
        playout=[entry, transport.output(), exit_],
        tail=assistant,
        # What they push is a guess, or comes again from the tail.
        unseen=[dialogue.speculation.head, *thinking],
    )
    worker = build(engines, transport, call, stages, rtvi=rtvi, greets=not screening.is_on)
    publish_turns(events, turns.user, call.input.flush)
    reprompt, waits = engines.deployment.bot.reprompt, dialogue.waits
    Reprompt(events, call.floor, call.input, reprompt, was_wait_cut_off=lambda: waits.cut_off)
    screening.begin()
    return worker, background


@dataclass(frozen=True)
class _Turns:
    """Whose turn it is.

    Attributes:
        user: begins and ends the caller's turns.
        vad: finds voices.
    """

    user: LLMUserAggregator
    vad: SharedVadAnalyzer


def _turns(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    context: LLMContext,
    over_bot: OverBot,
    listeners: Sequence[Listener],
) -> _Turns:
    endpoint = EndpointStopStrategy(
        endpoint_policy(engines.deployment.hearing.endpoint),
        completeness=engines.turn,
        executor=engines.executors.turn,
        events=call.events,
        guesser=Guesser(engines.deployment.thinking.speculation),
    )
    starts = _starts(
        engines, transport, call, endpoint, over_bot, lambda: user.broadcast_interruption(), lambda: vad
    )
    user = LLMUserAggregator(
        context,
        params=LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(start=starts, stop=[endpoint]),
            # Pipecat would have the model answer a developer message, which stays in the context and which
            # the documents take for a question: ``Reprompt`` asks again instead.
            empty_user_turn=None,
        ),
    )
    vad = voice_detector(engines, call, [call.turns.heard, endpoint.hear, *listeners])
    return _Turns(user, vad)


@dataclass(frozen=True)
class _Dialogue:
    """From a turn to the words of its answer.

    Attributes:
        waits: keeps a waiting caller company.
        gate: holds a question until its turn is durable.
        speculation: asks ahead of the end of a turn.
    """

    waits: WaitGuard
    gate: CommitGate
    speculation: Speculation


def _dialogue(
    engines: Engines,
    call: Call,
    context: LLMContext,
    perception: Perception,
    thinking: Sequence[FrameProcessor],
    tts: FrameProcessor,
    *,
    say: Say,
    screening: Screening,
) -> _Dialogue:
    usage, ask_back = engines.answering.usage, engines.deployment.hearing.ask_back
    waits = wait_guard(engines, call, say, is_asked=lambda _question: not screening.holds())
    gate = commit_gate(
        engines,
        call,
        context,
        perception,
        AskingBack(ask_back) if ask_back is not None else None,
        take_turn=lambda _question: usage.try_take(call.rules.counted),
    )
    return _Dialogue(
        waits, gate, speculation_of(engines, call, gate, tts, _foresee_part(call, gate, thinking))
    )


def _guards_protected(engines: Engines) -> bool:
    settings = engines.deployment.hearing.barge_in
    return settings is not None and settings.protected_yields_to_stop


def _foresee_part(
    call: Call, gate: CommitGate, thinking: Sequence[FrameProcessor]
) -> Callable[[str], LLMContext | None] | None:
    """Return what gives a question to be read ahead; None where no model reads ahead."""
    if not any(isinstance(each, EngineLlmService) and each.reads_ahead for each in thinking):
        return None

    def foresee_part(text: str) -> LLMContext | None:
        # A reply that the caller may interrupt is not yet what was heard of it.
        return None if call.playout.books.open_ids else gate.foreseen(text, is_whole=False)

    return foresee_part


def _backchannels(engines: Engines, call: Call, say: Say) -> Background:
    """Return the task that hums; none where nothing does, or an unfinished turn cannot be told."""
    settings = engines.deployment.speaking.backchannel
    if not call.client.hums or settings is None or not settings.is_on:
        return []
    if engines.turn is None:
        logger.warning("speaking.backchannel needs hearing.turn, which is off: the bot does not hum")
        return []
    keeper = BackchannelKeeper(
        call.events,
        BackchannelPolicy(settings),
        sound=engines.kept_speech,
        rate_hz=engines.output_rate_hz,
        # Plain audio, after everything that would take it for a reply.
        say=say,
    )
    return [keeper.run]


def _starts(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    endpoint: EndpointStopStrategy,
    over_bot: OverBot,
    interrupt: Callable[[], Coroutine[Any, Any, None]],
    vad: Callable[[], SharedVadAnalyzer],
) -> list[BaseUserTurnStartStrategy]:
    """Return what begins the caller's turns and decides about voices over the bot."""
    settings = engines.deployment.hearing.barge_in
    if settings is None:
        return [VADUserTurnStartStrategy(), TranscriptionUserTurnStartStrategy()]
    self_voice, own_words, clock = call.self_voice, call.own_words, call.conversation.clock
    barge_in = BargeInStartStrategy(
        BargeIn(settings),
        call.events,
        endpoint=endpoint,
        set_gain_db=gain_of(transport),
        interrupt=interrupt,
        is_own=self_voice.is_own if self_voice is not None else None,
        are_own=(lambda text: own_words.explains(text, clock.now_us() // 1000))
        if own_words is not None
        else None,
        heard_ms=lambda: vad().judged_ms,
        level_db=lambda: vad().voice_level_db,
        stop_words=over_bot.stop_words,
        looks=over_bot.looks,
    )
    call.floor.add_holder(lambda: barge_in.holds_reply)
    return [barge_in]
