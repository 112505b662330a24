"""Errors of Parley, classified by what the code that catches them can do.

An error carries its facts as fields; the message is for people. Exceptions of other libraries are translated
where they enter. Messages hold no transcripts and no audio.
"""

from typing import Any


class AgentError(Exception):
    """Root of every error that Parley raises on purpose. It survives pickling with its facts."""

    def __reduce__(self) -> tuple[Any, ...]:
        # By default the class would be called with the message alone, which lacks the facts.
        return _unpickled, (type(self), self.args), self.__dict__


def _unpickled(kind: type[AgentError], arguments: tuple[Any, ...]) -> AgentError:
    return kind.__new__(kind, *arguments)


def one_line(error: BaseException) -> str:
    """Return the type and the text of an error of foreign code, without line breaks."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def reason_of(error: OSError | ValueError) -> str:
    """Return why a file cannot be read, for a message that names it: without the path and the number."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


class ConfigError(AgentError):
    """The deployment is wrong: correct it and start again.

    Attributes:
        known: accepted values, where they are a closed list.
    """

    def __init__(self, message: str, *, known: tuple[str, ...] = ()) -> None:
        super().__init__(f"{message} (known: {', '.join(known)})" if known else message)
        self.known = known


class ModelFileError(ConfigError):
    """A file of a local model is missing or altered: fetch it, or use another engine."""


class PeerError(AgentError):
    """The other side of a connection misbehaved or vanished: retry or hang up."""


class EngineError(AgentError):
    """An engine failed: fall back.

    Attributes:
        engine: registry name of the engine.
        retryable: true when the same call may succeed later.
    """

    def __init__(self, message: str, *, engine: str, retryable: bool = True) -> None:
        super().__init__(message)
        self.engine = engine
        self.retryable = retryable


class EngineBusyError(EngineError):
    """An engine is full at the moment and took nothing: wait, then try again."""


class CapacityError(AgentError):
    """A limit was reached: queue or refuse.

    Attributes:
        limit: the bound that was reached.
    """

    def __init__(self, message: str, *, limit: int) -> None:
        super().__init__(message)
        self.limit = limit


class OversizedError(CapacityError):
    """A request needs more than its limit ever permits: waiting does not help, a smaller one does.

    Attributes:
        size: what the request needs, in the unit of the limit.
    """

    def __init__(self, message: str, *, size: int, limit: int) -> None:
        super().__init__(message, limit=limit)
        self.size = size


class StoreError(AgentError):
    """The session store refused the request: report it, and change the request."""


class UnknownSessionError(StoreError):
    """The session does not exist, or it was deleted."""


class SessionExistsError(StoreError):
    """A session with this id exists already and is not overwritten."""


class FencedError(StoreError):
    """Another process has claimed the session since: stop; none of this was written."""


class KeyReusedError(StoreError):
    """The idempotency key already belongs to other words: none of this was or will be written."""


class StoreUnavailableError(StoreError):
    """The database does not answer now; nothing was acknowledged. Retry with the same idempotency keys."""


class StoreClosedError(StoreUnavailableError):
    """The session store was closed in this process: nothing more is written here, now or later."""


class MediaError(AgentError):
    """The bytes are not the media they claim to be."""


class ShapeError(AgentError):
    """An array has another dtype, shape or range than the function states: a bug of the calling code."""


class IllegalTransition(AgentError):
    """A state machine received an event that its state does not accept: a bug.

    Attributes:
        state: state at that moment.
        event: event that was received.
    """

    def __init__(self, state: object, event: object) -> None:
        super().__init__(f"no transition from {state} on {event}")
        self.state = state
        self.event = event
