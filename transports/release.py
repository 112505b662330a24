"""Transports that let go of the pipeline of a call when it has ended."""

from typing import Protocol, runtime_checkable

from pipecat.utils.base_object import BaseObject


@runtime_checkable
class ReleasesCall(Protocol):
    """A transport that holds references to the pipeline of its call, or to its callbacks."""

    def release(self) -> None:
        """Drop those references: the pipeline has ended. The connection may go on."""
        ...


def forget_handlers(target: BaseObject) -> None:
    """Remove the handlers of all events of an object; events that come later have no effect."""
    for event in target._event_handlers.values():
        event.handlers.clear()
