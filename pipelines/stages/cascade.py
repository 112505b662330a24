"""Stages of a cascade between voice activity and the output: words, turns, model and voice.

A call by turns has them from its beginning. A call with a realtime service gets them when the service has
failed (``pipelines.stages.service_failover``).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMUserAggregator
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport

from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.listeners import Listener
from parley.pipelines.phone.answering_machine import Screening
from parley.pipelines.stages.desk import DeskVoice
from parley.pipelines.stages.dialogue import DialogueStages, dialogue_of
from parley.pipelines.stages.hold import HoldOfCall
from parley.pipelines.stages.last_engine_end import LastEngineEnd
from parley.pipelines.stages.models import CallModels, models_of
from parley.pipelines.stages.over_bot import OverBot
from parley.pipelines.stages.privacy import CallPrivacy
from parley.pipelines.stages.shared import perception_of
from parley.pipelines.stages.sight import Sight
from parley.pipelines.stages.turns import TurnStages, backchannels, turns_of
from parley.pipelines.voice.echo import CallFrontEnd
from parley.pipelines.voice.reprompt import Reprompt
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.dialogue.epoch_guard import EpochGuard
from parley.processors.dialogue.filler_processor import Say
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.fusion.perception import Perception
from parley.processors.playout.playout import ThoughtTap
from parley.processors.turns.audio_stop import AudioStop
from parley.processors.turns.turn_events import publish_turns


@dataclass(frozen=True, kw_only=True)
class CascadeSurroundings:
    """Parts of a call around the stages of its cascade.

    Attributes:
        front: echo control.
        over_bot: listeners to voices over the bot.
        detector: returns the detector of voices, which passes the caller's audio to the given listeners.
        listeners: further receivers of the caller's audio.
        thought: tap directly after the model.
        play: puts audio into the pipeline, before the output.
        sight: stages that take pictures of the caller.
        screening: detection of an answering machine.
        hold: hold of the call.
    """

    front: CallFrontEnd
    over_bot: OverBot
    detector: Callable[[Sequence[Listener]], SharedVadAnalyzer]
    listeners: Sequence[Listener]
    thought: ThoughtTap
    play: Say
    sight: Sight
    screening: Screening
    hold: HoldOfCall


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
    context: LLMContext,
    around: CascadeSurroundings,
    *,
    privacy: CallPrivacy,
    tools: DurableTools,
) -> CascadeStages:
    """Return the stages of a cascade between voice activity and the output. Loads no model."""
    models = await models_of(engines, call, context, privacy, tools, passes_audio=False)
    LastEngineEnd(call, engines.deployment.bot.voiceless_phrase)
    perception = perception_of(engines, call, engines.deployment.hearing.stt.name)
    desk = DeskVoice(engines, call, around.play, transport.output(), sees=around.sight.is_on)
    turns = turns_of(
        *(engines, transport, call, context, around.over_bot, around.front),
        detector=around.detector,
        listeners=[*around.listeners, desk.bridge.hear],
        words_of_turn=privacy.words_of_turn,
    )
    dialogue = dialogue_of(
        *(engines, call, context, perception, models.thinking, models.tts),
        say=around.thought.push_frame,
        screening=around.screening,
        desk=desk,
        camera=around.sight.camera,
        is_held=around.hold.is_on,
    )
    tasks = [*privacy.background, *backchannels(engines, call, around.play), *around.screening.background]
    return CascadeStages(
        vad=turns.vad,
        perception=_perception_stages(models, privacy, perception, around),
        user=turns.user,
        dialogue=_dialogue_stages(call, models, dialogue, around),
        speech=[around.thought, models.tts, *around.screening.gate],
        unseen=[*privacy.unseen(models.stt), dialogue.speculation.head, *models.thinking],
        background=[*tasks, desk.run, desk.speak, desk.steps.run],
        connect=partial(_connect, engines, call, desk, turns, dialogue),
        overhear=turns.overhear,
    )


def _perception_stages(
    models: CallModels, privacy: CallPrivacy, perception: Perception, around: CascadeSurroundings
) -> list[FrameProcessor]:
    return [models.stt, AudioStop(), *privacy.stage, perception, *around.screening.detector]


def _dialogue_stages(
    call: Call, models: CallModels, dialogue: DialogueStages, around: CascadeSurroundings
) -> list[FrameProcessor]:
    asked = [*dialogue.speculation.around(models.thinking), EpochGuard(call.conversation)]
    return [dialogue.waits, dialogue.gate, *around.screening.hold, *around.hold.dialogue, *asked]


def _connect(
    engines: Engines,
    call: Call,
    desk: DeskVoice,
    turns: TurnStages,
    dialogue: DialogueStages,
    worker: PipelineWorker,
) -> None:
    """Publish the caller's turns, read the client's messages, and prompt after a noise."""
    desk.steps.listen(worker)
    publish_turns(call.events, turns.user, call.live.input.flush)
    live, phrase, waits = call.live, engines.deployment.bot.reprompt, dialogue.waits
    Reprompt(call.events, live.floor, live.input, phrase, was_wait_cut_off=lambda: waits.cut_off)
