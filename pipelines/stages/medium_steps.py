"""Steps to another medium in a call: what its client is sent, what it answers, and the deadline of a step.

A client that can change its medium reports so (RTVI ``client-message`` of type ``tier`` with ``can``). It is
sent each change of the tier that concerns a step (``server-message`` of kind ``tier``), also one that was
open before the call: the caller took the offer in writing, and calls for it. The client answers for the
caller, who presses a button, and reports a step that it cannot take. To a client that reports nothing no step
is offered.

A step that is not taken within ``tiers.step_s`` is over. ``run`` is a task of the call.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Literal

from loguru import logger
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from parley.core.call_events import TierChanged
from parley.core.tiers import SEEN, Medium, Tier, TierEvent
from parley.core.token_bucket import TokenBucket
from parley.pipelines.call import Call
from parley.pipelines.client_messages import on_client_message
from parley.pipelines.medium_steps import MediumSteps
from parley.runtime.loop_clock import LoopClock

# Type of the client's messages, and kind of the server's.
TYPE = "tier"
# Clicks of a person; a client that sends more is broken or hostile.
REPORTS_PER_S, BURST = 2, 10


class TierReport(BaseModel):
    """Report of a client about its media."""

    model_config = ConfigDict(extra="forbid")

    can: frozenset[Medium] | None = Field(None, max_length=len(Medium))
    answer: Literal["accepted", "declined", "failed"] | None = None


class ClientMedia:
    """Media to which the client of one call can change.

    Args:
        sees: pictures have an effect in this call.
    """

    def __init__(self, *, sees: bool) -> None:
        self._sees = sees
        self._can: frozenset[Medium] = frozenset()

    def report(self, can: frozenset[Medium]) -> None:
        """Note what the client can do."""
        # Who can show something can stop as well.
        self._can = (can if self._sees else can - SEEN) - {Medium.VOICE}
        if not self._can.isdisjoint(SEEN):
            self._can |= {Medium.VOICE}

    def now(self) -> Collection[Medium]:
        """Return the media."""
        return self._can


class CallSteps:
    """Steps of one call.

    Args:
        call: the call.
        steps: rules of the steps of its session.
        media: media to which its client can change.
        say: says a phrase of the deployment to the caller.
    """

    def __init__(
        self, call: Call, steps: MediumSteps, media: ClientMedia, say: Callable[[str], None]
    ) -> None:
        self._call, self._steps, self._media, self._say = call, steps, media, say
        self._conversation = call.conversation
        self._clock = LoopClock()
        self._rate = TokenBucket(REPORTS_PER_S, BURST)
        self._news = asyncio.Event()
        self._began_us = call.conversation.clock.now_us()
        call.events.subscribe(TierChanged, self._on_tier_changed)

    def listen(self, worker: PipelineWorker) -> None:
        """Receive the messages of the client of a pipeline."""
        if not self._call.peer.speaks_rtvi or not self._steps.is_open:
            return
        on_client_message(worker, TYPE, self.take)

    def take(self, data: object) -> None:
        """Act on a report of the client, or drop it."""
        if not self._rate.take(1, self._clock.now_us()):
            return
        try:
            report = TierReport.model_validate(data)
        except ValidationError as error:
            logger.debug(f"a report about media was dropped: {error.error_count()} faults")
            return
        if report.can is not None:
            self._media.report(report.can)
            if self._conversation.tier.is_step:
                self._send()
        match report.answer:
            case "accepted":
                phrase = self._steps.accept()
            case "declined":
                phrase = self._steps.decline()
            case "failed":
                self._steps.fail(TierEvent.FAILED)
                return
            case None:
                return
        if phrase:
            self._say(phrase)

    async def run(self) -> None:
        """End a step that is not taken in time, until cancelled."""
        while True:
            self._news.clear()
            is_due = self._conversation.tier.tier is Tier.STEPPING
            try:
                async with asyncio.timeout(self._left_s() if is_due else None):
                    await self._news.wait()
            except TimeoutError:
                self._steps.fail(TierEvent.EXPIRED)

    def _left_s(self) -> float:
        """Return the time until the step is over; one that began in writing counts from here."""
        conversation = self._conversation
        began_us = max(conversation.tier.since_us, self._began_us)
        return max(0.0, self._steps.settings.step_s - (conversation.clock.now_us() - began_us) / 1e6)

    def _on_tier_changed(self, event: TierChanged) -> None:
        self._news.set()
        if event.to is None:
            return
        self._send()
        match self._conversation.tier.reason:
            case TierEvent.REACHED.value if event.to in SEEN:
                self._say(self._steps.settings.phrases["seen"])
            case TierEvent.FAILED.value | TierEvent.EXPIRED.value:
                self._say(self._steps.settings.phrases["failed"])

    def _send(self) -> None:
        tier = self._conversation.tier
        data = {
            "kind": TYPE,
            "tier": tier.tier.value,
            "to": None if tier.to is None else tier.to.value,
            "reason": tier.reason,
            "epoch": tier.epoch,
        }
        self._call.live.input.put(RTVIServerMessageFrame(data=data))
