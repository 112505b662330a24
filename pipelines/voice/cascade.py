"""The cascade pipeline: recogniser, turns, language model and voice, in the order of the data.

``run_conversation`` builds one call's pipeline from the shared engines, runs it until the caller is gone and
returns. It owns everything of the call. Pipecat's worker owns the tasks, and every end of the pipeline
(hang-up, cancellation, idleness, a session that another process took over) ends them. The call is one
transport of a session, which exists before and after it.

    transport.input -> (camera) -> (echo control) -> VAD -> STT -> (audio stops) -> (perceived) -> user turns
        -> (waits) -> (committed) -> (guessed) guarded LLM -> (of this epoch) -> TTS -> transport.output
        -> (heard) -> bot turns
"""

from functools import partial

from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.pipelines.builder import Background, Stages, build
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import idle_keeper, run_call
from parley.pipelines.phone.answering_machine import Screening, open_screening
from parley.pipelines.sockets.client_tools import offered_tools
from parley.pipelines.stages.cascade import CascadeSurroundings, cascade_stages
from parley.pipelines.stages.hold import hold_of
from parley.pipelines.stages.over_bot import OverBot
from parley.pipelines.stages.privacy import CallPrivacy
from parley.pipelines.stages.shared import (
    closed_on_failure,
    voice_detector,
)
from parley.pipelines.stages.sight import sight_by_turns
from parley.pipelines.stages.turns import guards_protected
from parley.pipelines.voice.echo import CallFrontEnd, with_echo_control
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.playout.assistant import HeardAssistantAggregator


async def run_conversation(engines: Engines, transport: BaseTransport, call: Call) -> None:
    """Hold one conversation over ``transport`` until it ends; see ``Pipeline``."""
    idle, privacy = idle_keeper(engines, call), CallPrivacy(engines, call)
    async with offered_tools(engines.answering, call, more=privacy.tools) as tools:
        worker, background = await _open(engines, transport, call, privacy, tools)
        # Recovery of tool calls that a crash cut off may take a slow server's time; no greeting waits for it.
        parallel = [*(start() for start in background), tools.recover()]
        await run_call(engines, worker, transport, call, idle, background=parallel)


async def _open(
    engines: Engines, transport: BaseTransport, call: Call, privacy: CallPrivacy, tools: DurableTools
) -> tuple[PipelineWorker, Background]:
    """Open the resources that the pipeline of one call needs for itself, and build it."""
    with closed_on_failure() as opened:
        screening = await open_screening(engines, call)
        opened.append(
            stop_words := await engines.build_stop_words(call.events, call.resumption.recorded_words)
        )
        opened.append(looks := await engines.build_looks())
        opened.append(front := CallFrontEnd(engines.open_front_end()))
        over_bot = OverBot(stop_words, looks)
        return await _build(
            engines, transport, call, screening, over_bot, front, privacy=privacy, tools=tools
        )


async def _build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    screening: Screening,
    over_bot: OverBot,
    opened: CallFrontEnd,
    *,
    privacy: CallPrivacy,
    tools: DurableTools,
) -> tuple[PipelineWorker, Background]:
    """Return the pipeline of one call, and its tasks."""
    context = LLMContext()
    front = await with_echo_control(engines, transport, call, opened, cancelled=over_bot.listeners)
    thought, entry, exit_ = call.live.playout.taps(guards_protected=guards_protected(engines))
    hold, sight = hold_of(call), sight_by_turns(engines, call)
    specialists = engines.specialists_of(call.conversation, call.events)
    around = CascadeSurroundings(
        front=front,
        over_bot=over_bot,
        detector=partial(voice_detector, engines, call, front),
        listeners=[specialists.hear],
        thought=thought,
        play=entry.push_frame,
        sight=sight,
        screening=screening,
        hold=hold,
    )
    cascade = await cascade_stages(*(engines, transport, call, context, around), privacy=privacy, tools=tools)
    stages = Stages(
        head=[
            transport.input(),
            *hold.head,
            *sight.stages,
            *screening.tap,
            *front.echo,
            VoiceActivity(cascade.vad),
        ],
        perception=cascade.perception,
        turns=[cascade.user],
        dialogue=cascade.dialogue,
        speech=cascade.speech,
        playout=[entry, transport.output(), exit_],
        tail=[HeardAssistantAggregator(context, cascade.user)],
        unseen=cascade.unseen,
    )
    worker = build(
        *(engines, transport, call, stages),
        show=sight.show,
        greets=not screening.is_on,
        asks_again=True,
    )
    cascade.connect(worker)
    hold.listen(worker)
    screening.begin()
    return worker, [*sight.background, specialists.run, *hold.background, *cascade.background]
