"""Stages of a full-duplex call from a turn to the words of its answer, and the desk of such a call."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipecat.frames.frames import LLMContextFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.transports.base_transport import BaseTransport

from parley.pipelines.builder import Background
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.listeners import Listener
from parley.pipelines.stages.desk import DeskVoice
from parley.pipelines.stages.hold import HoldOfCall
from parley.pipelines.stages.models import CallModels
from parley.pipelines.stages.omni import OmniStages, is_two_tier
from parley.pipelines.stages.omni_ends import OmniAllowance
from parley.pipelines.stages.shared import asking_back, commit_gate, speculation_of, wait_guard
from parley.processors.dialogue.commit_gate import Answers
from parley.processors.dialogue.epoch_guard import EpochGuard
from parley.processors.dialogue.filler_processor import Say
from parley.processors.duplex.question_filter import QuestionFilter
from parley.processors.fusion.perception import Perception


class OmniDesk:
    """Desk of a call, which is empty where a speech model answers what it hears.

    Such a model cannot be kept from answering, so that no human takes its calls over.
    """

    def __init__(
        self, engines: Engines, call: Call, play: Say, transport: BaseTransport, *, sees: bool
    ) -> None:
        self._voices = (
            [DeskVoice(engines, call, play, transport.output(), sees=sees)] if is_two_tier(engines) else []
        )

    @property
    def listeners(self) -> list[Listener]:
        """Receivers of the caller's audio."""
        return [voice.bridge.hear for voice in self._voices]

    @property
    def background(self) -> Background:
        """Tasks of the call."""
        return [run for voice in self._voices for run in (voice.run, voice.speak, voice.steps.run)]

    def is_asked(self, question: LLMContextFrame) -> bool:
        """Return whether the model is asked now."""
        return all(voice.is_asked(question) for voice in self._voices)

    def answers(self) -> Answers | None:
        """Return the answers of the tiers and of the call itself."""
        return next((voice.answers() for voice in self._voices), None)

    def connect(self, worker: PipelineWorker) -> None:
        """Receive the client's messages of a pipeline."""
        for voice in self._voices:
            voice.steps.listen(worker)


@dataclass(frozen=True)
class OmniDialogue:
    """Stages from a turn to the words of its answer.

    Attributes:
        stages: in the order of the data.
        unseen: stages whose frames are guesses, or which the engine speaks at a later time.
        background: tasks of the stages.
    """

    stages: Sequence[FrameProcessor]
    unseen: Sequence[FrameProcessor]
    background: Background


def omni_dialogue_of(
    engines: Engines,
    call: Call,
    context: LLMContext,
    perception: Perception,
    models: CallModels,
    engine: OmniStages,
    desk: OmniDesk,
    hold: HoldOfCall,
) -> OmniDialogue:
    """Return the stages from a turn to the words of its answer."""
    decides_itself = is_two_tier(engines)
    allowance = OmniAllowance(call, engines.answering.usage, engine.is_asked)

    def is_asked(question: LLMContextFrame) -> bool:
        return engine.is_asked(question) and desk.is_asked(question) and not hold.is_on()

    waits = wait_guard(
        *(engines, call, engine.thought.push_frame),
        is_asked=is_asked,
        is_covered=lambda: engine.omni.wants_content,
    )
    gate = commit_gate(
        *(engines, call, context, perception, asking_back(engines) if decides_itself else None),
        take_turn=allowance.take_turn,
        answers=desk.answers(),
    )
    speculation = speculation_of(engines, call, gate, models.tts)
    stages = [waits, gate, QuestionFilter(engine.is_asked), *hold.dialogue]
    stages += [*speculation.around(models.thinking), EpochGuard(call.conversation)]
    unseen = [speculation.head, *models.thinking, *([models.tts] if decides_itself else [])]
    return OmniDialogue(stages, unseen, [*hold.background, allowance.run])
