"""Event stream of one call: delivers events (``core.call_events``) to their subscribers.

Order. Events are delivered in the order in which they were published, each to all of its subscribers before
the next one. The subscribers of an event are called in the order in which they subscribed. An event that is
published during the delivery of another waits until all subscribers have received that one, so that they all
see the same order.

A subscriber is called at once, on the event loop, and must not block. A subscriber that has to wait (for the
pipeline, a client, a disk) opens a queue instead and reads it in a task of its own. The stream owns no task.

When a subscriber raises, the error is logged and counted, and the other subscribers still receive the event.

Full. A queue has a size and keeps the newest events: the oldest is dropped and counted. When more than
``MOST_NESTED`` events wait for one delivery, subscribers answer each other without end; the next event is
refused with ``EventStormError``.

Not thread-safe: use it only on the event loop of the call.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from loguru import logger

from parley.core.call_events import CallEvent
from parley.core.clock import Clock
from parley.core.errors import AgentError
from parley.runtime.loop_clock import LoopClock

E = TypeVar("E", bound=CallEvent)

# One packet of audio or one frame leads to a handful of events.
MOST_NESTED = 256


class EventStormError(AgentError):
    """Raised when subscribers publish in answer to each other without end: a defect of this program."""


class EventQueue(Generic[E]):
    """Ordered queue of events for one reader. When it is full, the oldest event is dropped.

    Args:
        size: greatest number of events that wait.

    Attributes:
        dropped: number of events that the reader has missed.
    """

    def __init__(self, size: int) -> None:
        self._events: deque[E] = deque()
        self._size = size
        self._news = asyncio.Event()
        self.dropped = 0

    def put(self, event: E) -> None:
        """Append an event."""
        if len(self._events) == self._size:
            self._events.popleft()
            self.dropped += 1
        self._events.append(event)
        self._news.set()

    async def get(self) -> E:
        """Return the oldest event; wait for one when there is none."""
        while not self._events:
            self._news.clear()
            await self._news.wait()
        return self._events.popleft()

    def take_all(self) -> list[E]:
        """Return the events that wait, the oldest first; they wait no longer."""
        taken = list(self._events)
        self._events.clear()
        return taken

    async def __aiter__(self) -> AsyncIterator[E]:
        while True:
            yield await self.get()


class CallEvents:
    """Event stream of one call.

    Args:
        clock: stamps the events.

    Attributes:
        failures: number of deliveries in which a subscriber raised.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or LoopClock()
        self._subscriptions: list[tuple[type[CallEvent], Callable[[Any], None]]] = []
        # Subscribers of each class that was published.
        self._resolved: dict[type[CallEvent], tuple[Callable[[Any], None], ...]] = {}
        self._waiting: deque[CallEvent] = deque()
        self._is_delivering = False
        # Parts of the stream, which refer to the stages that subscribe through them.
        self._scopes: WeakSet[EventScope] = WeakSet()
        self.failures = 0

    def now_ms(self) -> int:
        """Return the current time for the stamp of an event."""
        return self._clock.now_ms()

    def subscribe(self, kind: type[E], subscriber: Callable[[E], None]) -> None:
        """Call ``subscriber`` with every event of a class or of its subclasses."""
        self._subscriptions.append((kind, subscriber))
        self._resolved.clear()

    def has_subscribers(self, kind: type[CallEvent]) -> bool:
        """Return whether any subscriber would receive an event of this class."""
        return bool(self._subscribers_of(kind))

    def open_queue(self, *kinds: type[CallEvent], size: int) -> EventQueue[CallEvent]:
        """Return a queue that receives every event of these classes from now on."""
        queue: EventQueue[CallEvent] = EventQueue(size)
        for kind in kinds:
            self.subscribe(kind, queue.put)
        return queue

    def publish(self, event: CallEvent) -> None:
        """Deliver an event, after those that are being delivered.

        Raises:
            EventStormError: too many events wait for the delivery of one.
        """
        if len(self._waiting) >= MOST_NESTED:
            raise EventStormError(
                f"{len(self._waiting)} events are waiting; the next one is {type(event).__name__}"
            )
        self._waiting.append(event)
        if self._is_delivering:
            return
        with self._delivering():
            while self._waiting:
                self._deliver(self._waiting.popleft())

    async def wait_for(
        self, kind: type[E], *, within_ms: int, where: Callable[[E], bool] = lambda _event: True
    ) -> E | None:
        """Return the next event of a class that satisfies ``where``; None when none comes in time."""
        found: asyncio.Future[E] = asyncio.get_running_loop().create_future()

        def on_event(event: E) -> None:
            if not found.done() and where(event):
                found.set_result(event)

        self.subscribe(kind, on_event)
        try:
            async with asyncio.timeout(within_ms / 1000):
                return await found
        except TimeoutError:
            return None
        finally:
            self.unsubscribe(kind, on_event)

    def close(self) -> None:
        """Remove all subscribers, which refer to the stages of the call; called when the call is over."""
        for scope in list(self._scopes):
            scope.close()
        self._subscriptions.clear()
        self._resolved.clear()

    def unsubscribe(self, kind: type[CallEvent], subscriber: Callable[[Any], None]) -> None:
        """End a subscription."""
        self._subscriptions = [each for each in self._subscriptions if each != (kind, subscriber)]
        self._resolved.clear()

    @contextmanager
    def _delivering(self) -> Iterator[None]:
        self._is_delivering = True
        try:
            yield
        finally:
            self._is_delivering = False
            # Events are left only by an exception that ends the program.
            self._waiting.clear()

    def _deliver(self, event: CallEvent) -> None:
        for subscriber in self._subscribers_of(type(event)):
            try:
                subscriber(event)
            except Exception as error:  # one stage fails, the call continues
                self.failures += 1
                name = getattr(subscriber, "__qualname__", repr(subscriber))
                logger.opt(exception=error).error(
                    f"{name} failed on {type(event).__name__}: {type(error).__name__}"
                )

    def _subscribers_of(self, kind: type[CallEvent]) -> tuple[Callable[[Any], None], ...]:
        found = self._resolved.get(kind)
        if found is None:
            found = tuple(call for subscribed, call in self._subscriptions if issubclass(kind, subscribed))
            self._resolved[kind] = found
        return found


class EventScope(CallEvents):
    """Part of a call's stream, for stages that are replaced while the call goes on.

    Its subscribers receive the events of the whole stream, and what they publish reaches all subscribers of
    it. After ``close`` they receive nothing, and what they still publish is dropped: a stage that was
    replaced takes no more part in the call. It is closed with the stream at the latest.

    Args:
        whole: the stream.
    """

    def __init__(self, whole: CallEvents) -> None:
        super().__init__()
        self._whole = whole
        self._is_closed = False
        whole._scopes.add(self)

    def now_ms(self) -> int:
        return self._whole.now_ms()

    def subscribe(self, kind: type[E], subscriber: Callable[[E], None]) -> None:
        if not self._is_closed:
            super().subscribe(kind, subscriber)
            self._whole.subscribe(kind, subscriber)

    def unsubscribe(self, kind: type[CallEvent], subscriber: Callable[[Any], None]) -> None:
        super().unsubscribe(kind, subscriber)
        self._whole.unsubscribe(kind, subscriber)

    def has_subscribers(self, kind: type[CallEvent]) -> bool:
        return not self._is_closed and self._whole.has_subscribers(kind)

    def publish(self, event: CallEvent) -> None:
        if not self._is_closed:
            self._whole.publish(event)

    def close(self) -> None:
        """End its subscriptions; nothing is received or published through it any more."""
        self._is_closed = True
        for kind, subscriber in self._subscriptions:
            self._whole.unsubscribe(kind, subscriber)
        super().close()
