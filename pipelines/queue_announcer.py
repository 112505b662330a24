"""Announcements to a caller who waits for a worker: the position, shown by the client and spoken.

Input: the newest position, from the code that assigns workers. Output: server messages (``queue``) and a
phrase, when the position has changed and again every ``again_s``, so that the line does not seem dead. The
call owns its one task. A caller who gets no worker at all is notified with the end of the call, by other
code.
"""

import asyncio
import math
from contextlib import suppress

from pipecat.frames.frames import TTSSpeakFrame
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.call_events import Wait, WaitBegan, WaitEnded
from parley.pipelines.pipeline_input import PipelineInput
from parley.runtime.event_stream import CallEvents
from parley.serving.pool.pool import AssignmentRefused
from parley.serving.scheduler.types import QueuePlace

# Least interval between reports of the position: to a client, and to the caller by the voice.
QUEUE_REPORT_S, QUEUE_SAID_S = 0.5, 10.0
# Interval at which a waiting caller hears their place although it has not changed, so that the line does not
# seem dead. Callers on hold take half a minute of silence for a lost call.
QUEUE_AGAIN_S = 30.0


class QueueAnnouncer:
    """Announcer of a waiting caller's position: shown by a client, spoken by the voice."""

    def __init__(self, phrase: str, again_s: float, events: CallEvents) -> None:
        self._phrase, self._again_s = phrase, again_s
        self._events = events
        self._news = asyncio.Event()
        self._place: QueuePlace | None = None
        self._waits = False

    def take(self, news: QueuePlace | AssignmentRefused | None) -> None:
        """Set the newest position; None when the caller has a worker."""
        place = news if isinstance(news, QueuePlace) else None
        self._place = place
        if self._waits is not (place is not None):
            self._waits = place is not None
            kind = WaitBegan if self._waits else WaitEnded
            self._events.publish(kind(self._events.now_ms(), Wait.QUEUE))
        # A caller who gets none is notified with the end of the call.
        if not isinstance(news, AssignmentRefused):
            self._news.set()

    async def run(self, pipeline: PipelineInput) -> None:
        """Announce until cancelled."""
        loop = asyncio.get_running_loop()
        said_position, said_s = 0, -math.inf
        while True:
            # A position that changed too soon after the last announcement is announced later. One that stays
            # is repeated, so that the line does not seem dead.
            every_s = QUEUE_SAID_S if self._moved(said_position) else self._again_s
            left_s = max(0.0, said_s + every_s - loop.time()) if self._place is not None else None
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._news.wait()
            if self._place is None and not self._news.is_set():
                # It was refused meanwhile; other code reports the reason.
                continue
            self._news.clear()
            place = self._place
            wait_s = None if place is None or place.wait_ms is None else round(place.wait_ms / 1000)
            data: dict[str, object] = {
                "kind": "queue",
                "position": place.position if place else 0,
                "wait_s": wait_s,
            }
            if place is not None:
                # A client that holds the ticket may leave the queue: DELETE /api/queue/{ticket}.
                data["ticket_id"] = place.ticket_id
            await pipeline.queue(RTVIServerMessageFrame(data=data))
            if place is None:
                said_position = 0
            elif loop.time() - said_s >= (QUEUE_SAID_S if self._moved(said_position) else self._again_s):
                said_position, said_s = place.position, loop.time()
                if self._phrase:
                    text = self._phrase.format(position=place.position)
                    await pipeline.queue(TTSSpeakFrame(text, append_to_context=False))
            await asyncio.sleep(QUEUE_REPORT_S)

    def _moved(self, said_position: int) -> bool:
        return self._place is not None and self._place.position != said_position
