"""Who answered a call that we placed: the parts of a cascade that find out, where the call wants them.

A call says that it does (``Call.voicemail``). What is found is written on the call (``Call.answered_by``) and
with its end into the session.
"""

from collections.abc import Callable
from contextlib import suppress

from pipecat.classifiers.base_classifier import BaseClassifier

from core.errors import AgentError
from pipelines.call import Call
from pipelines.engines import INPUT_RATE_HZ, Engines
from pipelines.lifetime import greeting_of
from processors.turns.voicemail import MACHINE, ModelClassifier, VoicemailScreen

# Why a person who has just answered is not asked whether they are there.
SCREENING = "screening"


async def open_screen(
    engines: Engines, call: Call, on_screening: Callable[[bool], None]
) -> VoicemailScreen | None:
    """The screen of a call; None where it has none.

    Args:
        engines: of the process.
        call: whose greeting is said by the screen.
        on_screening: told that nothing may be said, and that it may; must not block.
    """
    settings = call.voicemail
    if settings is None:
        return None
    classifier: BaseClassifier | None = None
    # Without its model a call is judged by rules.
    with suppress(AgentError):
        model = await engines.answering.judging()
        classifier = ModelClassifier(model, answer_ms=settings.answer_ms) if model is not None else None
    greeting = greeting_of(call, engines.deployment.bot)
    call.client.greets = False

    def on_answered(by: str) -> None:
        call.answered_by = by
        on_screening(by == MACHINE)
        if by == MACHINE:
            left = "and was left a message" if settings.message is not None else "and was left no message"
            call.end = MACHINE, f"a machine answered {left}"

    on_screening(True)
    return VoicemailScreen(
        settings, classifier=classifier, greeting=greeting, rate_hz=INPUT_RATE_HZ, on_answered=on_answered
    )
