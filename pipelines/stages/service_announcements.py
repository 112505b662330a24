"""Announcements of a call with a realtime service, said by the deployment's voice before the service begins.

Until the caller has heard them the service hears nothing of the caller, so that it does not answer what was
said before, and what it says by itself is held back (``processors.duplex.realtime``). Where a phrase cannot
be said, the service begins all the same: the recording, which requires that it was heard, does not.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from loguru import logger
from pipecat.frames.frames import Frame

from parley.core.call_events import PhraseChosen
from parley.pipelines.announcements import SAID_S, Saying, when_heard
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.greeting import announcements_of
from parley.pipelines.stages.service import ServiceStages
from parley.processors.speech.phrases import protected_phrase


class ServiceAnnouncements:
    """Announcements of one call.

    Args:
        call: the call.
        phrases: the announcements, in order; the service begins at once without any.
        model: stages around the service.
    """

    def __init__(self, call: Call, phrases: Sequence[str], model: ServiceStages) -> None:
        self._call, self._phrases, self._model = call, tuple(phrases), model
        self._unheard = list(phrases)
        # Of the whole call: the stages with the service may be taken out of it.
        self._saying = Saying(call.live.events, self._phrases)
        if not phrases:
            return
        model.hold()
        for phrase in self._phrases:
            when_heard(call.live.events, phrase, partial(self._unheard.remove, phrase))

    @property
    def are_due(self) -> bool:
        """True when the caller has something to hear before the service begins."""
        return bool(self._unheard)

    async def say(self) -> None:
        """Have them said, and let the service begin when the caller has heard them, or cannot."""
        if not self._phrases:
            return
        for frame in self.frames():
            await self._call.live.input.queue(frame)
        with suppress(TimeoutError):
            async with asyncio.timeout(SAID_S):
                await self._saying.over.wait()
        if self._unheard:
            logger.warning("a caller has not heard all announcements of a call with a realtime service")
        await self._model.release()

    def frames(self) -> list[Frame]:
        """Return what has the voice say those that the caller has not heard, each as a whole."""
        for phrase in self._unheard:
            self._call.live.events.publish(PhraseChosen(self._call.live.events.now_ms(), phrase))
        return [protected_phrase(phrase) for phrase in self._unheard]


def service_announcements(engines: Engines, call: Call, model: ServiceStages) -> ServiceAnnouncements:
    """Return the announcements of a call; none for a client that cannot hear them."""
    phrases = announcements_of(engines, call) if call.client.speaks_announcements else ()
    return ServiceAnnouncements(call, phrases, model)
