"""Observers of calls: subscribers to the event stream that other packages provide.

A deployment names a class; each call creates one object of it, which subscribes in its constructor, and
closes it when the call is over. An observer cannot harm its call: what it raises is logged, and the call
continues. It is called on the event loop of all calls, so it must not block (``runtime.event_stream``).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loguru import logger

from parley.core.registry import Registry
from parley.runtime.event_stream import CallEvents


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """Identity of a call.

    Attributes:
        session_id: id of the session, which may have had calls before.
        call_id: id of this call.
        transport: name of the transport in the session's records.
        mode: "cascade", "duplex" or "realtime".
    """

    session_id: str
    call_id: str
    transport: str
    mode: str = "cascade"


class CallObserver(Protocol):
    """Observer of one call, created as ``Observer(events, call, settings)``; it subscribes to ``events``."""

    def close(self) -> None:
        """Release the observer: the call is over and no event follows. Must not block."""
        ...


ObserverFactory = Callable[[CallEvents, ObservedCall], CallObserver]
# Parley has none of its own.
OBSERVERS: Registry[CallObserver] = Registry("observer", {})


def open_observers(
    factories: Iterable[ObserverFactory], events: CallEvents, call: ObservedCall
) -> list[CallObserver]:
    """Create the observers of a call; one that raises is logged and left out."""
    observers = []
    for factory in factories:
        try:
            observers.append(factory(events, call))
        except Exception as error:  # foreign code: the call continues without it
            logger.opt(exception=error).error(f"an observer could not be created: {type(error).__name__}")
    return observers


def close_observers(observers: Sequence[CallObserver]) -> None:
    """Close the observers of a call; one that raises is logged."""
    for observer in observers:
        try:
            observer.close()
        except Exception as error:  # foreign code: the other observers are closed all the same
            name = type(observer).__qualname__
            logger.opt(exception=error).error(f"{name} failed at the end of a call: {type(error).__name__}")
