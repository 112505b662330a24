"""Messages between the owner of an engine and the process that the engine runs in.

A question has a number above zero. Its answer (``done``, ``failed``) and the pieces before it repeat the
number; a message with the number zero has no answer. Pure; standard library only, because a worker may have a
Python environment of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol

from core.errors import AgentError, CapacityError, ConfigError, EngineBusyError, EngineError

# Errors that keep their class; every other one is an EngineError to the receiver.
_KEPT = (ConfigError, CapacityError, EngineBusyError)


class MessageType(StrEnum):
    """Kind of a message. Workers of other machines send and receive those that docs/workers.md lists."""

    # To a worker, first of all.
    LEASE = "lease"
    WATCH = "watch"
    # To a child, first of all, and for each of its streams.
    LOAD = "load"
    OPEN = "open"
    # Of a conversation.
    PREPARE = "prepare"
    PREFILL = "prefill"
    GENERATE = "generate"
    FINALIZE = "finalize"
    CLEANUP = "cleanup"
    # Of a stream that is recognised: an utterance, its audio, its end.
    START = "start"
    AUDIO = "audio"
    FINISH = "finish"
    DISCARD = "discard"
    # Of a voice: a clause. Of a front end: a piece of a caller, windows of voice activity.
    SPEAK = "speak"
    PROCESS = "process"
    MEASURE = "measure"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    RELEASE = "release"
    PING = "ping"
    # From an operator.
    DRAIN = "drain"
    # To the owner.
    LEASED = "leased"
    REFUSED = "refused"
    TAKEN = "taken"
    PIECE = "piece"
    DONE = "done"
    FAILED = "failed"
    REVOKED = "revoked"
    STATE = "state"
    PONG = "pong"


@dataclass(frozen=True, slots=True)
class EngineMessage:
    """One message.

    Attributes:
        type: what it is.
        number: of a question, and of its answer; 0 of a message that is neither.
        facts: whatever belongs to its type.
        payload: bytes, laid out as the facts say.
    """

    type: MessageType
    number: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


class SettingsModel(Protocol):
    """Settings that cross as JSON: a pydantic model, which a child may have to do without."""

    def model_dump_json(self) -> str: ...


def resolve(target: str) -> Any:
    """Return the attribute named ``"package.module:Attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Facts of ``load``: which engine a child makes.

    Attributes:
        factory: ``"package.module:Attribute"``, or a name of a registry; called with the settings.
        settings_type: ``"package.module:Attribute"`` of their model; None: the factory takes none.
        settings: as JSON.
    """

    factory: str
    settings_type: str | None = None
    settings: str | None = None

    @classmethod
    def of(cls, factory: str, settings: SettingsModel | None) -> "EngineSpec":
        """Return the spec of an engine with these settings."""
        if settings is None:
            return cls(factory)
        kind = type(settings)
        return cls(factory, f"{kind.__module__}:{kind.__qualname__}", settings.model_dump_json())

    def read_settings(self) -> Any:
        """Return the settings."""
        return resolve(self.settings_type or "").model_validate_json(self.settings)


@dataclass(frozen=True, slots=True)
class AudioTaken:
    """Facts of ``taken``: audio that an engine has worked through.

    Attributes:
        size_bytes: of the audio; 0 for work after the last piece.
        work_us: how long the engine worked on it, in microseconds of the clock.
    """

    size_bytes: int
    work_us: int


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """An error as it crosses between processes.

    Attributes:
        kind: name of its class; ``class`` among the facts.
        message: its words.
        retryable: whether the same question may succeed later.
    """

    kind: str
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: AgentError) -> "EngineFailure":
        """Return what the other side has to know of an error."""
        kind = next((each.__name__ for each in _KEPT if isinstance(error, each)), EngineError.__name__)
        return cls(kind, str(error), bool(getattr(error, "retryable", False)))

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "EngineFailure":
        """Return the failure of a ``failed`` message; facts that are missing are taken for empty ones."""
        return cls(str(facts.get("class")), str(facts.get("message")), bool(facts.get("retryable")))

    def facts(self) -> dict[str, Any]:
        """Return the facts of a ``failed`` message."""
        return {"class": self.kind, "message": self.message, "retryable": self.retryable}

    def error(self, engine: str, *, prefix: str = "") -> AgentError:
        """Return the error to raise on this side.

        Args:
            engine: registry name of the engine.
            prefix: what the message begins with.
        """
        message = prefix + self.message
        match self.kind:
            case "ConfigError":
                return ConfigError(message)
            case "CapacityError":
                return CapacityError(message, limit=1)
            case "EngineBusyError":
                return EngineBusyError(message, engine=engine)
            case _:
                return EngineError(message, engine=engine, retryable=self.retryable)


def failed(number: int, error: AgentError) -> EngineMessage:
    """Return the answer to a question that failed."""
    return EngineMessage(MessageType.FAILED, number, EngineFailure.of(error).facts())
