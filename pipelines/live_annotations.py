"""Live calls of one process, for outside specialists that report about them.

A call is here from the beginning of its pipeline to its end, under the id of its session. Reports are events
of the call, which its perception puts into the sequencer at once (``processors.fusion.perception``). Nothing
is kept here. The gateway bounds the rate (``serving.gateway.annotations_api``).

A stream ends when the last program has left that held it open by a socket, so that no turn waits for it. A
program without a socket holds nothing open: its stream stops delaying turns by the sequencer's ``stall_us``.
"""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from parley.core.call_events import OutsideReportsReceived, OutsideStreamEnded
from parley.core.errors import PeerError
from parley.core.timeline import OutsideReport, Source
from parley.pipelines.call import Call


class CallAnnotations:
    """Entry of annotations into one call: the gateway's ``AnnotationEntry``.

    Args:
        call: live call.
        are_read: see ``AnnotationEntry``.

    Attributes:
        began_us: when the call began, on the session clock.
        are_read: as given.
        ended: set when the call is over.
    """

    def __init__(self, call: Call, *, are_read: bool) -> None:
        self._events = call.events
        self._clock = call.conversation.clock
        self._held: Counter[Source] = Counter()
        self.began_us = self._clock.now_us()
        self.are_read = are_read
        self.ended = asyncio.Event()

    def now_us(self) -> int:
        """Return the time of the session clock."""
        return self._clock.now_us()

    def take(self, reports: Sequence[OutsideReport]) -> None:
        """Report to the call.

        Raises:
            PeerError: the call is over.
        """
        if self.ended.is_set():
            raise PeerError("the call has ended: report about the next one when it has begun")
        self._events.publish(OutsideReportsReceived(self._events.now_ms(), tuple(reports)))

    def hold(self, stream: Source) -> None:
        """Count one more socket that reports in a stream."""
        self._held[stream] += 1

    def release(self, stream: Source) -> None:
        """Count one socket less; the stream ends with the last one."""
        self._held[stream] -= 1
        if not self._held[stream]:
            self._events.publish(OutsideStreamEnded(self._events.now_ms(), stream))


class LiveAnnotations:
    """Entries of the live calls of one process, by session: the gateway's ``AnnotationEntries``."""

    def __init__(self) -> None:
        self._entries: dict[str, CallAnnotations] = {}

    def find(self, session_id: str) -> CallAnnotations | None:
        """Return the entry of the live call of a session; None where this process holds none."""
        return self._entries.get(session_id)

    @contextmanager
    def opened(self, call: Call, *, are_read: bool) -> Iterator[None]:
        """Let reports into a call while the block runs.

        A call that takes a session over replaces the entry of the one before, which is about to end.
        """
        session_id = call.conversation.session_id
        entry = self._entries[session_id] = CallAnnotations(call, are_read=are_read)
        try:
            yield
        finally:
            entry.ended.set()
            if self._entries.get(session_id) is entry:
                del self._entries[session_id]
