"""Typed facts attached to a frame whose class belongs to another library.

A processor may have more information about a frame than its class has fields for. Such a fact has a name, a
type and one definition. It is stored in the frame's ``metadata``, which copies of the frame keep.
"""

from typing import Any, Generic, Protocol, TypeVar, cast

T = TypeVar("T")


class HasMetadata(Protocol):
    """Frame with a ``metadata`` mapping."""

    metadata: dict[str, Any]


class FrameFact(Generic[T]):
    """Fact that a frame carries.

    Args:
        name: unique in the product.
    """

    def __init__(self, name: str) -> None:
        self._key = f"parley_{name}"

    def of(self, frame: HasMetadata) -> T | None:
        """Return the fact of a frame; None where it has none."""
        return cast(T | None, frame.metadata.get(self._key))

    def put(self, frame: HasMetadata, value: T) -> None:
        """Attach the fact to a frame."""
        frame.metadata[self._key] = value

    def take(self, frame: HasMetadata) -> T | None:
        """Return the fact of a frame and remove it."""
        return cast(T | None, frame.metadata.pop(self._key, None))

    def is_on(self, frame: HasMetadata) -> bool:
        """Return whether a frame carries the fact."""
        return self._key in frame.metadata


# Prompt with which a model was asked for the response that a frame begins.
PROMPT = FrameFact[str]("prompt")
# Author of a piece of an answer that the service of the call did not write: the name of the engine that took
# over, or that of the deployment (``DEPLOYMENT``).
AUTHOR = FrameFact[str]("author")
# When a frame of the caller's camera reached this process, in the time of its loop.
CAPTURED_S = FrameFact[float]("captured_s")
