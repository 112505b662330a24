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

from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.core.errors import ConfigError
from parley.pipelines.builder import Background, Stages, build
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import idle_keeper, run_call
from parley.pipelines.modes import DUPLEX
from parley.pipelines.sockets.client_tools import offered_tools
from parley.pipelines.stages.hold import hold_of
from parley.pipelines.stages.models import models_of
from parley.pipelines.stages.omni import OmniStages, is_two_tier
from parley.pipelines.stages.omni_dialogue import OmniDesk, omni_dialogue_of
from parley.pipelines.stages.over_bot import OverBot, own_voice, spotting
from parley.pipelines.stages.privacy import CallPrivacy
from parley.pipelines.stages.shared import (
    closed_on_failure,
    perception_of,
    voice_detector,
)
from parley.pipelines.stages.sight import sight_of
from parley.pipelines.stages.ticks import UnitRecords, WriteTick, tick_log
from parley.pipelines.voice.echo import CallFrontEnd, with_echo_control
from parley.pipelines.voice.realtime import run_realtime
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.playout.assistant import HeardAssistantAggregator


async def run_duplex(engines: Engines, transport: BaseTransport, call: Call) -> None:
    """Hold one full-duplex conversation over ``transport`` until it ends.

    Raises:
        ConfigError: the engines were loaded without duplex, or the call asks for voicemail detection.
    """
    if call.phone.voicemail is not None:
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
            opened.append(front := CallFrontEnd(engines.open_front_end()))
            worker, background = await _build(
                engines, transport, call, OverBot(stop_words), front, privacy, tools, write_tick
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
    opened: CallFrontEnd,
    privacy: CallPrivacy,
    tools: DurableTools,
    write_tick: WriteTick,
) -> tuple[PipelineWorker, Background]:
    """Return the pipeline of one call, and its tasks. Loads no model."""
    context = LLMContext()
    front, models = await asyncio.gather(
        # A stop word is best detected in one signal: the output of echo control switches between two.
        with_echo_control(engines, transport, call, opened, cancelled=over_bot.listeners),
        models_of(engines, call, context, privacy, tools, passes_audio=True),
    )
    perception = perception_of(engines, call, engines.deployment.hearing.stt.name)
    specialists = engines.specialists_of(call.conversation, call.events)
    sight = sight_of(engines, call, has_model=engines.sees, passes_on=engines.sees)
    units = UnitRecords(call.events, write_tick)
    engine = OmniStages(
        *(engines, transport, call, context),
        front=front,
        words_of_turn=privacy.words_of_turn,
    )
    # A speech model ends its own pause; a language model answers for the two-tier engine.
    pause_ms = None if is_two_tier(engines) else engines.deployment.duplex.ticks.pause_ms
    hold = hold_of(call, engine_pause_ms=pause_ms)
    _, entry, exit_ = call.live.playout.taps()
    desk = OmniDesk(engines, call, entry.push_frame, transport, sees=sight.is_on)
    dialogue = omni_dialogue_of(*(engines, call, context, perception, models, engine, desk, hold))
    listeners = [call.live.turns.heard, specialists.hear, *engine.listeners]
    listeners += [] if front.echo else over_bot.listeners
    detector = voice_detector(engines, call, front, [*listeners, *desk.listeners])
    stages = Stages(
        head=[transport.input(), *hold.head, *sight.stages, *front.echo, VoiceActivity(detector)],
        perception=[models.stt, *privacy.stage, perception],
        turns=[engine.user],
        dialogue=dialogue.stages,
        speech=[engine.thought, models.tts, engine.omni],
        playout=[entry, transport.output(), exit_],
        tail=[HeardAssistantAggregator(context, None)],
        unseen=[*privacy.unseen(models.stt), *dialogue.unseen],
    )
    # The two-tier engine says it in the voice of the reply; a speech model has a voice of its own.
    worker = build(engines, transport, call, stages, says_rest=is_two_tier(engines))
    desk.connect(worker)
    hold.listen(worker)
    background = [*privacy.background, *dialogue.background, specialists.run, *engine.background()]
    background += [*own_voice(call.events, front, engine), *sight.background, *desk.background]
    background += spotting(call.events, over_bot, engine)
    if call.peer.speaks_rtvi and call.client.reads_rtvi:
        background.append(lambda: units.run(call.live.input, lambda: engine.omni.unit_ms))
    return worker, background
