"""Stages that every voice pipeline makes of the same parts, each with the events of its call."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.core.timeline import Source
from parley.pipelines.call import OPENING, Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.listeners import Listener
from parley.pipelines.voice.echo import CallFrontEnd
from parley.processors.dialogue.commit_gate import Answers, CommitGate
from parley.processors.dialogue.filler_processor import FillerProcessor, Say
from parley.processors.dialogue.speculation import Speculation
from parley.processors.front_end.vad import VOICE, SharedVadAnalyzer
from parley.processors.fusion.perception import Perception
from parley.processors.perception.caller_camera import NoCamera, TurnPictures
from parley.processors.speech.engine_tts import EngineTtsService
from parley.transports.gain import SupportsGain
from parley.turn_taking.clarification import Clarification


class Closes(Protocol):
    """Part of a call that has to be closed."""

    def close(self) -> None: ...


@contextmanager
def closed_on_failure() -> Iterator[list[Closes]]:
    """Close the appended parts when a call's pipeline cannot be built; otherwise its stages close them."""
    opened: list[Closes] = []
    try:
        yield opened
    except BaseException:
        for each in opened:
            each.close()
        raise


def gain_of(transport: BaseTransport) -> Callable[[float], None]:
    """Return a function that sets the bot's volume in dB; without effect for a transport without gain."""
    return transport.set_gain_db if isinstance(transport, SupportsGain) else lambda _gain_db: None


def voice_detector(
    engines: Engines, call: Call, front: CallFrontEnd, listeners: Sequence[Listener]
) -> SharedVadAnalyzer:
    """Return voice activity; ``listeners`` receive the caller's audio before it is judged."""
    return SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=VOICE.params(),
        events=call.events,
        pause_ms=VOICE.pause_ms,
        listeners=listeners,
        hosted=front.hosted,
    )


def perception_of(engines: Engines, call: Call, recogniser: str) -> Perception:
    """Return the stage that orders what is perceived; ``recogniser`` names the row that transcribes."""
    return Perception(
        call.conversation,
        call_id=call.call_id,
        latencies=engines.latencies,
        engines={Source.STT: recogniser},
        events=call.events,
        rules=engines.deployment.language().perceived,
    )


def wait_guard(
    engines: Engines,
    call: Call,
    say: Say,
    *,
    is_asked: Callable[[LLMContextFrame], bool],
    is_covered: Callable[[], bool] = lambda: True,
) -> FillerProcessor:
    """Return the stage that speaks to a waiting caller, with phrases that it passes to ``say``."""
    guard = engines.deployment.thinking.guard
    return FillerProcessor(
        guard.waiting,
        call.events,
        apology=guard.apology,
        say=say,
        is_asked=is_asked,
        is_covered=is_covered,
        language=engines.deployment.language(),
    )


def asking_back(engines: Engines) -> Clarification | None:
    """Return the rule that asks again after a turn of low confidence; None where the deployment has none."""
    settings = engines.deployment.hearing.ask_back
    if settings is None:
        return None
    return Clarification(settings, language=engines.deployment.language())


def commit_gate(
    engines: Engines,
    call: Call,
    context: LLMContext,
    perception: Perception,
    asking: Clarification | None,
    *,
    take_turn: Callable[[LLMContextFrame], Awaitable[bool]],
    answers: Answers | None = None,
    camera: TurnPictures = NoCamera(),
) -> CommitGate:
    """Return the stage that holds a question until its turn is durable.

    ``answers`` replaces those of the call.
    """
    usage = engines.answering.usage
    return CommitGate(
        call.conversation,
        context,
        call.events,
        transport=call.transport,
        settings=engines.deployment.remembering.gate,
        perceive=perception.take,
        asking=asking,
        answers=answers or call.answers,
        take_turn=take_turn,
        has_turn=lambda: usage.has_request(call.rules.counted),
        own_instructions=(OPENING,),
        camera=camera,
    )


def speculation_of(
    engines: Engines,
    call: Call,
    gate: CommitGate,
    tts: Any,
    foresee_part: Callable[[str], LLMContext | None] | None = None,
) -> Speculation:
    """Return the stage that asks ahead of the end of a turn."""
    return Speculation(
        call.events,
        gate.foreseen,
        foresee_part=foresee_part,
        voice=tts if isinstance(tts, EngineTtsService) else None,
    )
