"""Transports that let go of the pipeline of a call when it has ended."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class ReleasesCall(Protocol):
    """A transport that holds references to the pipeline of its call, or to its callbacks."""

    def release(self) -> None:
        """Drop those references: the pipeline has ended. The connection may go on."""
        ...
