"""Detection of an answering machine in a call placed by us: parts of a cascade, where the call requires it.

A call requires it by ``Call.voicemail``. The result is an event (``CallAnswered``), and is written into the
session with the end of the call.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipecat.classifiers.base_classifier import BaseClassifier
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.errors import AgentError
from parley.core.tuning import tuned
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.greeting import announcements_of, greeting_of
from parley.processors.turns.voicemail import ModelClassifier, RulesClassifier, VoicemailScreen
from parley.turn_taking.answering_machine import VoicemailTuning


def _nothing_is_held() -> bool:
    return False


def _begin_nothing() -> None:
    """Do nothing: there is no detection to begin."""


@dataclass(frozen=True)
class Screening:
    """Processors of the detection by their place in a pipeline; empty where a call has none.

    Attributes:
        tap: processors directly after the transport.
        detector: processors after the recogniser.
        hold: processors after the commit gate.
        gate: processors after the voice.
        begin: publishes that the bot may not speak yet.
        holds: returns whether questions are held.
        is_on: the call has a detection, which also greets.
        background: tasks of the call.
    """

    tap: tuple[FrameProcessor, ...] = ()
    detector: tuple[FrameProcessor, ...] = ()
    hold: tuple[FrameProcessor, ...] = ()
    gate: tuple[FrameProcessor, ...] = ()
    begin: Callable[[], None] = _begin_nothing
    holds: Callable[[], bool] = _nothing_is_held
    is_on: bool = False
    background: tuple[Callable[[], Coroutine[Any, Any, None]], ...] = ()


async def open_screening(engines: Engines, call: Call) -> Screening:
    """Return the detection of a call; an empty one where the call has none."""
    if call.phone.voicemail is None:
        return Screening()
    settings = tuned(VoicemailTuning, call.phone.voicemail)
    phrases = engines.deployment.language().answering
    classifier: BaseClassifier = RulesClassifier(phrases)
    # Without its model a call is judged by rules.
    with suppress(AgentError):
        model = await engines.answering.judging()
        if model is not None:
            classifier = ModelClassifier(model, answer_ms=settings.answer_ms, phrases=phrases)
    screen = VoicemailScreen(
        settings,
        classifier=classifier,
        greeting=greeting_of(call, engines.deployment.bot),
        announcements=announcements_of(engines, call),
        rate_hz=INPUT_RATE_HZ,
        events=call.events,
    )
    return Screening(
        tap=(screen.tap,),
        detector=(screen.detector,),
        hold=(screen.hold,),
        gate=(screen.gate,),
        begin=screen.begin,
        holds=lambda: screen.hold.holds,
        is_on=True,
        background=(partial(screen.run, call.live.input.queue),),
    )
