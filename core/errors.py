"""The errors of Parley, by what the caller can do about them.

A class carries its facts as fields, the message is for people. Outside exceptions are translated where they
enter. Transcripts and audio stay out of messages.
"""

from typing import Any


class AgentError(Exception):
    """Root of every error that Parley raises on purpose. It leaves a process of a pool as it was raised."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default the class would be called with the message alone, which misses the facts.
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[AgentError], arguments: tuple[Any, ...]) -> AgentError:
    return kind.__new__(kind, *arguments)


class ConfigError(AgentError):
    """The deployment is wrong: fix it and start again.

    Attributes:
        known: what would have been accepted, where that is a closed list.
    """

    def __init__(self, message: str, *, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message} (known: {', '.join(known)})" if known else message)
        self.known = known


class ModelFileError(ConfigError):
    """A file of a local model is missing or altered: fetch it, or use another engine."""


class PeerError(AgentError):
    """Somebody on the other side of a connection misbehaved or vanished: retry or hang up."""


class EngineError(AgentError):
    """An engine failed: fall back.

    Attributes:
        engine: registry name of the engine.
        retryable: whether the same call may succeed later.
    """

    def __init__(self, message: str, *, engine: str, retryable: bool = True) -> None:
        super().__init__(message)
        self.engine = engine
        self.retryable = retryable


class EngineBusyError(EngineError):
    """An engine is full at this moment and took nothing: wait, then ask again."""


class CapacityError(AgentError):
    """No room: queue or refuse.

    Attributes:
        limit: the bound that was reached.
    """

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class StoreError(AgentError):
    """The session store refused: say so and change what was asked."""


class UnknownSessionError(StoreError):
    """There is no such session, or it was deleted."""


class SessionExistsError(StoreError):
    """A session of that id is there already, and is not written over."""


class FencedError(StoreError):
    """Another process has claimed the session since: stop, nothing of this was written."""


class KeyReusedError(StoreError):
    """An idempotency key belongs to other words already: nothing of this was written, now or later."""


class StoreUnavailableError(StoreError):
    """The database does not answer now; nothing was acknowledged. Retry with the same idempotency keys."""


class StoreClosedError(StoreUnavailableError):
    """The session store was closed in this process: nothing more is written here, now or later."""


class MediaError(AgentError):
    """The bytes are not the media they claim to be."""


class ShapeError(AgentError):
    """An array has another dtype, shape or range than the function states. A bug of the caller."""


class IllegalTransition(AgentError):
    """A state machine was given an event that its state does not know. A bug.

    Attributes:
        state: where it was.
        event: what came.
    """

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"no transition from {state} on {event}")
        self.state = state
        self.event = event
