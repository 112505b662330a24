"""Ends of a call with a realtime service: it fails, does not answer, or its client has no turns left."""

import asyncio
from typing import Any

from loguru import logger
from pipecat.frames.frames import EndFrame, ErrorFrame, TTSSpeakFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.call_events import CallEnding, TurnEnded, TurnTranscribed
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import LIMITED, OVER_LIMIT
from parley.processors.duplex.realtime import ServiceGate

# From an error of the service to the end of the call, for words that it has transcribed meanwhile.
LATE_WORDS_MS = 1_000
FAILED = "service_failed", "the realtime service of this server has failed; try again in a moment"
# Turns that wait for their count; the store takes seconds for one at most.
MOST_UNCOUNTED = 16


class ServiceEnding:
    """Speaks an apology and ends the call after it, once. ``run`` is its caller's task.

    Args:
        call: the call to end.
        gate: gate ahead of the service.
        apology: words spoken on a failure.
    """

    def __init__(self, call: Call, gate: ServiceGate, apology: str) -> None:
        self._call, self._gate = call, gate
        self._apology = self._says = apology
        self._is_over = asyncio.Event()

    def follow(self, service: FrameProcessor, name: str) -> None:
        """End the call when the service reports an error."""

        @service.event_handler("on_error")
        async def on_error(_service: Any, error: ErrorFrame) -> None:
            self.over(f"the realtime service {name} failed: {error.error}")

    def over(self, why: str, *, says: str = "", is_failure: bool = True) -> None:
        """Expect nothing more of the service.

        Args:
            why: reason, for the log.
            says: words to the caller, in place of the apology.
            is_failure: the service failed, which is logged as an error.
        """
        if not self._is_over.is_set():
            logger.log("ERROR" if is_failure else "INFO", f"the call ends: {why}")
            if is_failure:
                self._call.events.publish(CallEnding(self._call.events.now_ms(), *FAILED))
            self._says = says or self._apology
            self._gate.shut()
            self._is_over.set()

    async def unanswered(self, is_last: bool) -> None:
        """Handle a missing answer; ``is_last`` when no other one is to be awaited."""
        if is_last:
            self.over("the realtime service does not answer")
        elif not self._is_over.is_set():
            logger.warning("the realtime service has not answered")
            await self._say(self._apology)

    async def run(self) -> None:
        """Speak the reason when the call is over, and end it."""
        await self._is_over.wait()
        await self._say(self._says)
        # Words still on their way would come after the end; the spoken apology takes longer than that.
        await self._call.events.wait_for(TurnTranscribed, within_ms=LATE_WORDS_MS)
        await self._call.live.input.queue(EndFrame())

    async def _say(self, text: str) -> None:
        await self._call.live.input.queue(TTSSpeakFrame(text, append_to_context=False))


class ServiceAllowance:
    """Counter of a client's turns that ends the call when it has none left.

    Speech goes to the service as it comes, and the service answers it by itself. Only the end of the call
    stops it. ``run`` is its caller's task.
    """

    def __init__(self, engines: Engines, call: Call, ending: ServiceEnding) -> None:
        self._usage, self._call, self._ending = engines.answering.usage, call, ending
        self._over_limit = engines.deployment.remembering.gate.over_limit
        self._ends: list[CallEnding] = []
        # Turns to be counted, in order: true for one without which the call ends.
        self._turns: asyncio.Queue[bool] = asyncio.Queue(MOST_UNCOUNTED)
        call.events.subscribe(TurnEnded, self._on_turn_ended)
        call.events.subscribe(CallEnding, self._ends.append)

    async def run(self) -> None:
        """Count turns; end the call at the first one too many."""
        while True:
            is_needed = await self._turns.get()
            if not await self._usage.try_take(self._call.rules.counted) and is_needed:
                self._end()

    def take_typed(self, text: str) -> float:
        """Count a text. The service answers it, so an accepted one counts as a turn.

        Returns:
            Seconds to wait before it may be sent again; 0 when it is accepted.
        """
        wait_s = self._call.conversation.take_typed(text)
        if not wait_s:
            self._count(is_needed=False)
        return wait_s

    def _on_turn_ended(self, _event: TurnEnded) -> None:
        self._count(is_needed=True)

    def _count(self, *, is_needed: bool) -> None:
        if self._turns.full():
            # The store has not answered for that many.
            self._end()
        else:
            self._turns.put_nowait(is_needed)

    def _end(self) -> None:
        call = self._call
        if not self._ends:
            call.events.publish(CallEnding(call.events.now_ms(), LIMITED, OVER_LIMIT))
            self._ending.over("its client has no turns left", says=self._over_limit, is_failure=False)
