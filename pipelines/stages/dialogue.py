"""Stages of a cascade from a turn to the words of its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frame_processor import FrameProcessor

from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.phone.answering_machine import Screening
from parley.pipelines.stages.desk import DeskVoice
from parley.pipelines.stages.shared import asking_back, commit_gate, speculation_of, wait_guard
from parley.processors.dialogue.commit_gate import CommitGate
from parley.processors.dialogue.engine_llm import EngineLlmService
from parley.processors.dialogue.filler_processor import FillerProcessor, Say
from parley.processors.dialogue.speculation import Speculation
from parley.processors.fusion.perception import Perception
from parley.processors.perception.caller_camera import TurnPictures


@dataclass(frozen=True)
class DialogueStages:
    """Stages from a turn to the words of its answer.

    Attributes:
        waits: speaks to a caller who waits.
        gate: holds a question until its turn is durable.
        speculation: asks ahead of the end of a turn.
    """

    waits: FillerProcessor
    gate: CommitGate
    speculation: Speculation


def dialogue_of(
    engines: Engines,
    call: Call,
    context: LLMContext,
    perception: Perception,
    thinking: Sequence[FrameProcessor],
    tts: FrameProcessor,
    *,
    say: Say,
    screening: Screening,
    desk: DeskVoice,
    camera: TurnPictures,
    is_held: Callable[[], bool],
) -> DialogueStages:
    """Return the stages from a turn to its answer."""
    usage = engines.answering.usage

    def is_asked(question: LLMContextFrame) -> bool:
        return not screening.holds() and not is_held() and desk.is_asked(question)

    waits = wait_guard(engines, call, say, is_asked=is_asked)
    gate = commit_gate(
        engines,
        call,
        context,
        perception,
        asking_back(engines),
        take_turn=lambda _question: usage.try_take(call.rules.counted),
        answers=desk.answers(),
        camera=camera,
    )
    return DialogueStages(
        waits, gate, speculation_of(engines, call, gate, tts, _foresee_part(engines, call, gate, thinking))
    )


def _foresee_part(
    engines: Engines, call: Call, gate: CommitGate, thinking: Sequence[FrameProcessor]
) -> Callable[[str], LLMContext | None] | None:
    """Return a function that builds a question from the words so far.

    None where no model reads it ahead and no documents are searched for it.
    """
    reads = any(isinstance(each, EngineLlmService) and each.reads_ahead for each in thinking)
    if not reads and not engines.answering.searches:
        return None

    def foresee_part(text: str) -> LLMContext | None:
        # The heard part of a reply that the caller may interrupt is not known yet.
        return None if call.live.playout.heard_clock.open_ids else gate.foreseen(text, is_whole=False)

    return foresee_part
