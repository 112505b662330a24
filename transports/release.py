"""Interface of transports that release the pipeline of a call when it has ended."""

from typing import Protocol, runtime_checkable


@runtime_checkable
class ReleasesCall(Protocol):
    """Transport that holds references to the pipeline of its call, or to its callbacks."""

    def release(self) -> None:
        """Drop those references after the pipeline has ended. The connection may go on."""
        ...
