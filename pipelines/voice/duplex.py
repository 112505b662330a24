"""Full-duplex pipeline: an engine that runs on a clock replaces the cascade's turns, model and voice.

``run_duplex`` builds one call's pipeline around the deployment's omni engine, runs it until the caller is
gone and returns. It shares with a cascade the session and its commit gate, perception, echo control, the
playout clock, idle prompts and records. The recogniser runs in parallel with the engine, because a speech
model does not transcribe its caller.

    transport.input -> (echo control) -> VAD -> STT -> perception -> turns -> waits -> gate
        -> (guessed) guarded LLM -> voice -> engine -> transport.output -> (heard) -> bot turns

The two-tier engine decides in its own small tier. Everything between the turns and the engine is its large
tier: any model and any voice of the registry, with tools, guesses, phrases that cover a silence and
apologies. A provider's service in place of an engine has a pipeline of its own
(``pipelines.voice.realtime``). For another engine the same small tier detects the end of a turn and when the
bot must be silent (``processors.duplex.turn_monitor``). Questions then end at the engine, and the voice only
greets, prompts and apologises.
"""

import asyncio

from pipecat.frames.frames import LLMContextFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.core.call_events import AnswerHeard, FinalWords
from parley.core.errors import ConfigError
from parley.pipelines.builder import Background, Stages, build
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import idle_keeper, run_call
from parley.pipelines.modes import DUPLEX
from parley.pipelines.sockets.client_tools import offered_tools
from parley.pipelines.stages.desk import DeskVoice
from parley.pipelines.stages.hold import CallHold
from parley.pipelines.stages.omni import OmniStages, is_two_tier
from parley.pipelines.stages.omni_ends import OmniAllowance
from parley.pipelines.stages.over_bot import OverBot, own_voice, spotting
from parley.pipelines.stages.privacy import CallPrivacy
from parley.pipelines.stages.shared import (
    asking_back,
    closed_on_failure,
    commit_gate,
    perception_of,
    sight_of,
    speculation_of,
    voice_detector,
    wait_guard,
)
from parley.pipelines.stages.ticks import UnitRecords, WriteTick, tick_log
from parley.pipelines.voice.echo import open_front_end
from parley.pipelines.voice.realtime import run_realtime
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.dialogue.epoch_guard import EpochGuard
from parley.processors.duplex.question_filter import QuestionFilter
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.telemetry.turn_events import TurnLogWriter


async def run_duplex(engines: Engines, transport: BaseTransport, call: Call) -> None:
    """Hold one full-duplex conversation over ``transport`` until it ends.

    Raises:
        ConfigError: the engines were loaded without duplex, or the call asks for voicemail detection.
    """
    if call.voicemail is not None:
        raise ConfigError("phone.voicemail: full duplex does not detect answering machines; see phone.mode")
    if engines.realtime is not None:
        await run_realtime(engines, transport, call)
        return
    if not engines.omni:
        raise ConfigError("this process was started without full duplex: start it with --mode duplex")
    idle, privacy = idle_keeper(engines, call), CallPrivacy(engines, call)
    offered = offered_tools(engines.answering, call, more=privacy.tools)
    async with offered as tools, tick_log(engines, call) as write_tick:
        with closed_on_failure() as opened:
            opened.append(stop_words := await engines.build_stop_words())
            opened.append(hosted := engines.open_front_end())
            worker, background = await _build(
                engines, transport, call, OverBot(stop_words), hosted, privacy, tools, write_tick
            )
        parallel = [*(start() for start in background), tools.recover()]
        await run_call(
            engines,
            worker,
            transport,
            call,
            idle,
            mode=DUPLEX,
            background=parallel,
            # A speech model answers what it hears; a language model answers for the two-tier engine.
            reads_annotations=is_two_tier(engines),
        )


async def _build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    over_bot: OverBot,
    hosted: HostedFrontEnd | None,
    privacy: CallPrivacy,
    tools: DurableTools,
    write_tick: WriteTick,
) -> tuple[PipelineWorker, Background]:
    """Return the pipeline of one call, and its tasks. Loads no model."""
    context, events, decides_itself = LLMContext(), call.events, is_two_tier(engines)
    front, stt, tts, thinking = await asyncio.gather(
        # A stop word is best detected in one signal: the output of echo control switches between two.
        open_front_end(engines, transport, call, hosted, on_cancelled=over_bot.hear),
        engines.build_stt(events=events, recorded=call.recorded_words, as_kept=privacy.utterance),
        engines.build_tts(events, call.choices.voice),
        engines.answering.build(
            tools=tools,
            context=context,
            rules=call.rules,
            conversation=call.conversation,
            events=events,
            reveal=privacy.reveal,
            requested=lambda: call.client.requested(),
            prompt=call.choices.prompt(engines.deployment.bot.system_prompt),
        ),
    )
    TurnLogWriter(call.live.turns, events, words=FinalWords)
    events.subscribe(AnswerHeard, engines.answers.publish)
    perception = perception_of(engines, call, engines.deployment.hearing.stt.name)
    specialists = engines.specialists_of(call.conversation, events)
    sight = sight_of(engines, call, has_model=engines.sees, passes_on=engines.sees)
    units = UnitRecords(events, write_tick)
    engine = OmniStages(
        engines,
        transport,
        call,
        context,
        on_tick=units.take,
        front=front,
        words_of_turn=privacy.words_of_turn,
    )
    omni, thought = engine.omni, engine.thought
    hold = CallHold(
        call, engine_pause_ms=None if decides_itself else engines.deployment.duplex.ticks.pause_ms
    )
    allowance = OmniAllowance(call, engines.answering.usage, engine.is_asked)
    _, entry, exit_ = call.live.playout.taps()
    # A speech model answers what it hears, and cannot be kept from that: no human takes its calls over.
    desk = (
        DeskVoice(engines, call, entry.push_frame, transport.output(), sees=sight.is_on)
        if decides_itself
        else None
    )

    def is_asked(question: LLMContextFrame) -> bool:
        is_free = desk is None or desk.is_asked(question)
        return engine.is_asked(question) and is_free and not hold.is_on()

    waits = wait_guard(
        engines, call, thought.push_frame, is_asked=is_asked, is_covered=lambda: omni.wants_content
    )
    gate = commit_gate(
        engines,
        call,
        context,
        perception,
        asking_back(engines) if decides_itself else None,
        take_turn=allowance.take_turn,
        answers=None if desk is None else desk.answers(),
    )
    speculation = speculation_of(engines, call, gate, tts)
    background = [
        *privacy.background,
        *hold.background,
        allowance.run,
        specialists.run,
        *engine.background(),
        *own_voice(front.self_voice, engine),
        *sight.background,
    ]
    background += [] if desk is None else [desk.run, desk.speak, desk.steps.run]
    if call.rtvi and call.client.reads_rtvi:
        background.append(lambda: units.run(call.live.input, lambda: omni.unit_ms))
    background += spotting(events, over_bot, engine)
    hear_voices = [] if front.echo else over_bot.listeners
    hear_voices += [] if desk is None else [desk.bridge.hear]
    listeners = [call.live.turns.heard, specialists.hear, *engine.listeners, *hear_voices]
    stages = Stages(
        head=[
            transport.input(),
            *hold.head,
            *sight.taps,
            *front.echo,
            VoiceActivity(voice_detector(engines, call, front.hosted, listeners)),
        ],
        perception=[stt, *privacy.stage, perception],
        turns=[engine.user],
        dialogue=[
            waits,
            gate,
            QuestionFilter(engine.is_asked),
            *hold.dialogue,
            *speculation.around(thinking),
            EpochGuard(call.conversation),
        ],
        speech=[thought, tts, omni],
        playout=[entry, transport.output(), exit_],
        tail=[HeardAssistantAggregator(context, None)],
        # Their frames are guesses, or the engine speaks them at a later time.
        unseen=[*privacy.unseen(stt), speculation.head, *thinking, *([tts] if decides_itself else [])],
    )
    worker = build(engines, transport, call, stages)
    if desk is not None:
        desk.steps.listen(worker)
    hold.listen(worker)
    return worker, background
