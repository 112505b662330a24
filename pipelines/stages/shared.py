"""Stages that every voice pipeline makes of the same parts, each with the events of its call."""

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.transports.base_transport import BaseTransport

from parley.core.timeline import Source
from parley.pipelines.call import OPENING, Call
from parley.pipelines.engines.engines import Engines
from parley.processors.dialogue.commit_gate import Answers, CommitGate
from parley.processors.dialogue.filler_processor import FillerProcessor, Say
from parley.processors.dialogue.speculation import Speculation
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.processors.front_end.vad import VOICE, SharedVadAnalyzer
from parley.processors.fusion.camera_specialist import CameraSpecialist
from parley.processors.fusion.perception import Perception
from parley.processors.perception.caller_camera import CallerCamera
from parley.processors.perception.camera_tap import CameraTap
from parley.processors.perception.picture_sources import PictureSources
from parley.processors.speech.engine_tts import EngineTtsService
from parley.transports.gain import SupportsGain
from parley.turn_taking.clarification import Clarification

Listener = Callable[[bytes], None]


class Closes(Protocol):
    """Part of a call that has to be closed."""

    def close(self) -> None: ...


@contextmanager
def closed_on_failure() -> Iterator[list[Closes | None]]:
    """Close the appended parts when a call's pipeline cannot be built; otherwise its stages close them."""
    opened: list[Closes | None] = []
    try:
        yield opened
    except BaseException:
        for each in opened:
            if each is not None:
                each.close()
        raise


def gain_of(transport: BaseTransport) -> Callable[[float], None]:
    """Return a function that sets the bot's volume in dB; without effect for a transport without gain."""
    return transport.set_gain_db if isinstance(transport, SupportsGain) else lambda _gain_db: None


def fan_out(listeners: Sequence[Listener]) -> Listener:
    """Return a listener that passes each piece of audio to all of them."""

    def listen(pcm: bytes) -> None:
        for each in listeners:
            each(pcm)

    return listen


def voice_detector(
    engines: Engines, call: Call, hosted: HostedFrontEnd | None, listeners: Sequence[Listener]
) -> SharedVadAnalyzer:
    """Return voice activity; ``listeners`` receive the caller's audio before it is judged."""
    return SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=VOICE.params(),
        events=call.events,
        pause_ms=VOICE.pause_ms,
        listeners=listeners,
        hosted=hosted,
    )


def perception_of(engines: Engines, call: Call, recogniser: str) -> Perception:
    """Return the stage that orders what is perceived; ``recogniser`` names the row that transcribes."""
    return Perception(
        call.conversation,
        call_id=call.call_id,
        latencies=engines.latencies,
        engines={Source.STT: recogniser},
        events=call.events,
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


def camera_of(engines: Engines, call: Call) -> CallerCamera | None:
    """Return the stage that holds the pictures of the caller; None where the model does not see them."""
    if not engines.answering.sees or not call.capabilities.video:
        return None
    return CallerCamera(engines.deployment.thinking.vision)


def watcher_of(engines: Engines, call: Call) -> CameraSpecialist | None:
    """Return the specialist of the camera in a call that has one; None without a specialist or a camera."""
    if not call.capabilities.video:
        return None
    return engines.camera_specialist_of(call.conversation, call.events)


@dataclass(frozen=True)
class Sight:
    """Stages that take the pictures of one call.

    Attributes:
        taps: that pass them on.
        background: tasks.
        is_on: pictures have an effect in this call.
    """

    taps: Sequence[CameraTap] = ()
    background: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    is_on: bool = False


def sight_of(engines: Engines, call: Call, *, has_model: bool, passes_on: bool) -> Sight:
    """Return the stages for pictures; none where neither a model nor a specialist looks at them.

    Args:
        engines: of the process.
        call: the call.
        has_model: the model that answers takes pictures of the caller's camera.
        passes_on: a later stage takes pictures.
    """
    specialist = watcher_of(engines, call)
    if not call.capabilities.video or not (has_model or specialist):
        return Sight()
    sources = PictureSources(call.events)
    background = [sources.run] if specialist is None else [sources.run, specialist.run]
    tap = CameraTap(sources.see, None if specialist is None else specialist.see, passes_on=passes_on)
    return Sight([tap], background, is_on=True)


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
    camera: CallerCamera | None = None,
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
