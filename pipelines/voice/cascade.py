"""The cascade pipeline: recogniser, turns, language model and voice, in the order of the data.

``run_conversation`` builds one call's pipeline from the shared engines, runs it until the caller is gone and
returns. It owns everything of the call. Pipecat's worker owns the tasks, and every end of the pipeline
(hang-up, cancellation, idleness, a session that another process took over) ends them. The call is one
transport of a session, which exists before and after it.

    transport.input -> (camera) -> (echo control) -> VAD -> STT -> (audio stops) -> (perceived) -> user turns
        -> (waits) -> (committed) -> (guessed) guarded LLM -> (of this epoch) -> TTS -> transport.output
        -> (heard) -> bot turns
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMUserAggregator
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport

from parley.core.call_events import AnswerHeard
from parley.pipelines.builder import Background, Stages, build
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import idle_keeper, run_call
from parley.pipelines.phone.answering_machine import Screening, open_screening
from parley.pipelines.sockets.client_tools import offered_tools
from parley.pipelines.stages.desk import DeskVoice
from parley.pipelines.stages.dialogue import dialogue_of
from parley.pipelines.stages.hold import CallHold
from parley.pipelines.stages.models import models_of
from parley.pipelines.stages.over_bot import OverBot
from parley.pipelines.stages.privacy import CallPrivacy
from parley.pipelines.stages.shared import (
    Listener,
    camera_of,
    closed_on_failure,
    perception_of,
    sight_of,
    voice_detector,
)
from parley.pipelines.stages.shown_pictures import ShownPictures
from parley.pipelines.stages.turns import backchannels, guards_protected, turns_of
from parley.pipelines.stages.voiceless_end import VoicelessEnd
from parley.pipelines.voice.echo import CallFrontEnd, open_front_end
from parley.pipelines.voice.reprompt import Reprompt
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.dialogue.epoch_guard import EpochGuard
from parley.processors.dialogue.filler_processor import FillerProcessor, Say
from parley.processors.dialogue.rtvi import ShowPicture
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.perception.caller_camera import CallerCamera
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.processors.playout.playout import ThoughtTap
from parley.processors.turns.audio_stop import AudioStop
from parley.processors.turns.turn_events import publish_turns
from parley.telemetry.turn_events import TurnLogWriter


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
        opened.append(stop_words := await engines.build_stop_words(call.events, call.recorded_words))
        opened.append(looks := await engines.build_looks())
        opened.append(hosted := engines.open_front_end())
        over_bot = OverBot(stop_words, looks)
        return await _build(
            engines, transport, call, screening, over_bot, hosted, privacy=privacy, tools=tools
        )


async def _build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    screening: Screening,
    over_bot: OverBot,
    hosted: HostedFrontEnd | None,
    *,
    privacy: CallPrivacy,
    tools: DurableTools,
) -> tuple[PipelineWorker, Background]:
    """Return the pipeline of one call, and its tasks."""
    context = LLMContext()
    front = await open_front_end(engines, transport, call, hosted, on_cancelled=over_bot.hear)
    thought, entry, exit_ = call.live.playout.taps(guards_protected=guards_protected(engines))
    camera, hold = camera_of(engines, call), CallHold(call)
    sight = sight_of(engines, call, has_model=engines.cascade_sees, passes_on=camera is not None)
    specialists = engines.specialists_of(call.conversation, call.events)
    cascade = await cascade_stages(
        *(engines, transport, call, over_bot, front),
        detector=partial(voice_detector, engines, call, front.hosted),
        context=context,
        screening=screening,
        privacy=privacy,
        tools=tools,
        thought=thought,
        play=entry.push_frame,
        listeners=[specialists.hear],
        camera=camera,
        sees=sight.is_on,
        hold=hold,
    )
    stages = Stages(
        head=[
            transport.input(),
            *hold.head,
            *sight.taps,
            *([camera] if camera else []),
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
        show=_show(engines, call, camera),
        greets=not screening.is_on,
        asks_again=True,
    )
    cascade.connect(worker)
    hold.listen(worker)
    screening.begin()
    return worker, [*sight.background, specialists.run, *hold.background, *cascade.background]


def _show(engines: Engines, call: Call, camera: CallerCamera | None) -> ShowPicture | None:
    """Return what takes a picture that the caller shows; None where no model sees it."""
    if camera is None:
        return None
    return ShownPictures(engines.answering.pictures, call.conversation, camera, call.events).take


@dataclass(frozen=True, kw_only=True)
class CascadeStages:
    """Stages of a cascade between voice activity and the output, and what belongs to them.

    Attributes:
        vad: detects voices.
        perception: recogniser and perceived features.
        user: begins and ends the caller's turns.
        dialogue: from a turn to the words of its answer.
        speech: the voice.
        unseen: stages whose frames are guesses, or come again from the tail.
        background: tasks of the stages.
        connect: publishes the turns and reads the client's messages, once the stages have their place in the
            pipeline of a worker; call it once.
        overhear: see ``TurnStages``.
    """

    vad: SharedVadAnalyzer
    perception: Sequence[FrameProcessor]
    user: LLMUserAggregator
    dialogue: Sequence[FrameProcessor]
    speech: Sequence[FrameProcessor]
    unseen: Sequence[FrameProcessor]
    background: Background
    connect: Callable[[PipelineWorker], None]
    overhear: Listener

    @property
    def stages(self) -> list[FrameProcessor]:
        """Stages in the order of the data."""
        return [*self.perception, self.user, *self.dialogue, *self.speech]


async def cascade_stages(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    over_bot: OverBot,
    front: CallFrontEnd,
    *,
    detector: Callable[[Sequence[Listener]], SharedVadAnalyzer],
    context: LLMContext,
    screening: Screening,
    privacy: CallPrivacy,
    tools: DurableTools,
    thought: ThoughtTap,
    play: Say,
    listeners: Sequence[Listener],
    camera: CallerCamera | None,
    sees: bool,
    hold: CallHold | None = None,
) -> CascadeStages:
    """Return the stages of a cascade between voice activity and the output.

    ``detector`` returns the detector of voices, which passes the caller's audio to the given listeners;
    ``play`` puts audio into the pipeline, before the output; ``listeners`` receive the caller's audio too;
    ``sees`` is true where pictures have an effect in the call; ``hold`` is None where the caller of the call
    cannot put it on hold.
    """
    models = await models_of(engines, call, context, privacy, tools, passes_audio=False)
    TurnLogWriter(call.live.turns, call.events)
    VoicelessEnd(call, engines.deployment.bot.voiceless_phrase)
    call.events.subscribe(AnswerHeard, engines.answers.publish)
    perception = perception_of(engines, call, engines.deployment.hearing.stt.name)
    desk = DeskVoice(engines, call, play, transport.output(), sees=sees)
    turns = turns_of(
        *(engines, transport, call, context, over_bot, front),
        detector=detector,
        listeners=[*listeners, desk.bridge.hear],
        words_of_turn=privacy.words_of_turn,
    )
    dialogue = dialogue_of(
        *(engines, call, context, perception, models.thinking, models.tts),
        say=thought.push_frame,
        screening=screening,
        desk=desk,
        camera=camera,
        is_held=_never if hold is None else hold.is_on,
    )

    tasks = [*privacy.background, *backchannels(engines, call, play), *screening.background]
    return CascadeStages(
        vad=turns.vad,
        perception=[models.stt, AudioStop(), *privacy.stage, perception, *screening.detector],
        user=turns.user,
        dialogue=[
            dialogue.waits,
            dialogue.gate,
            *screening.hold,
            *([] if hold is None else hold.dialogue),
            *dialogue.speculation.around(models.thinking),
            EpochGuard(call.conversation),
        ],
        speech=[thought, models.tts, *screening.gate],
        unseen=[*privacy.unseen(models.stt), dialogue.speculation.head, *models.thinking],
        background=[*tasks, desk.run, desk.speak, desk.steps.run],
        connect=partial(_connect, engines, call, desk, turns.user, dialogue.waits),
        overhear=turns.overhear,
    )


def _never() -> bool:
    return False


def _connect(
    engines: Engines,
    call: Call,
    desk: DeskVoice,
    user: LLMUserAggregator,
    waits: FillerProcessor,
    worker: PipelineWorker,
) -> None:
    """Publish the caller's turns, read the client's messages, and prompt after a noise."""
    desk.steps.listen(worker)
    publish_turns(call.events, user, call.live.input.flush)
    live, phrase = call.live, engines.deployment.bot.reprompt
    Reprompt(call.events, live.floor, live.input, phrase, was_wait_cut_off=lambda: waits.cut_off)
