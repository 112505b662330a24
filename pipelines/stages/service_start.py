"""Beginning of a conversation with a realtime service: the caller has joined, and heard what comes first."""

import asyncio

from pipecat.frames.frames import LLMRunFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.core.call_events import CallerJoined
from parley.pipelines.call import Call
from parley.pipelines.stages.service import Beginning, ask_last
from parley.pipelines.stages.service_announcements import ServiceAnnouncements
from parley.processors.duplex.answer_watch import AnswerWatch


class ServiceStart:
    """Begins the conversation with the service once. ``run`` is a task of the call.

    Args:
        call: the call.
        start: beginning of the service.
        watch: watch over its answers.
        announcements: said before.
        context: context of the service.
    """

    def __init__(
        self,
        call: Call,
        start: Beginning,
        watch: AnswerWatch,
        announcements: ServiceAnnouncements,
        context: LLMContext,
    ) -> None:
        self._call, self._start, self._watch = call, start, watch
        self._announcements, self._context = announcements, context
        self._joined, self._is_begun = asyncio.Event(), False
        call.events.subscribe(CallerJoined, self._on_caller_joined)

    async def run(self) -> None:
        """Have the announcements said, and begin after them."""
        await self._joined.wait()
        if not self._is_begun:
            await self._announcements.say()
            ask_last(self._context, self._start)
            self._begin()

    def _on_caller_joined(self, _event: CallerJoined) -> None:
        if not self._is_begun and not self._announcements.are_due:
            # Before anything that the caller types.
            self._begin()
        self._joined.set()

    def _begin(self) -> None:
        self._is_begun = True
        if self._start.greets:
            self._watch.on_words()
        if self._start.is_sent:
            self._call.live.input.put(LLMRunFrame())
