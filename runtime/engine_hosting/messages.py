"""Messages between the owner of an engine and the process that runs it.

A question has a number above zero. Its answer (``done``, ``failed``) and the pieces before it repeat the
number; a message with the number zero has no answer. Pure; standard library only, because a worker may have
its own Python environment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import import_module
from typing import Any, Protocol

from parley.core.errors import AgentError, CapacityError, ConfigError, EngineBusyError, EngineError

# Errors that keep their class; any other becomes an EngineError at the receiver.
_KEPT = (ConfigError, CapacityError, EngineBusyError)


class MessageType(StrEnum):
    """Type of a message. Workers on other machines use those that docs/how-to/workers.md lists."""

    # To a worker, before any other message.
    LEASE = "lease"
    WATCH = "watch"
    # To a child: LOAD first, OPEN for each of its streams.
    LOAD = "load"
    OPEN = "open"
    # To a conversational engine.
    PREPARE = "prepare"
    PREFILL = "prefill"
    GENERATE = "generate"
    FINALIZE = "finalize"
    CLEANUP = "cleanup"
    # To a stream of a recogniser: an utterance, its audio, its end.
    START = "start"
    AUDIO = "audio"
    FINISH = "finish"
    DISCARD = "discard"
    # To a voice: SPEAK, a clause. To a front end: PROCESS, audio of a caller; MEASURE, windows of voice
    # activity.
    SPEAK = "speak"
    PROCESS = "process"
    MEASURE = "measure"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"
    RELEASE = "release"
    PING = "ping"
    # From who watches a worker: end; FORGET, drop the context of a deleted session, where it "forgets".
    DRAIN = "drain"
    FORGET = "forget"
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
    """Message of the protocol.

    Attributes:
        type: type of the message.
        number: number of a question and of its answer; 0 for a message that is neither.
        facts: fields that belong to the type.
        payload: bytes, laid out as the facts describe.
    """

    type: MessageType
    number: int = 0
    facts: Mapping[str, Any] = field(default_factory=dict)
    payload: bytes = b""


class SettingsModel(Protocol):
    """Settings that are sent as JSON: a pydantic model, which may be missing in a child's environment."""

    def model_dump_json(self) -> str: ...


def resolve(target: str) -> Any:
    """Return the attribute named ``"package.module:Attribute"``."""
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Facts of ``load``: the engine that a child creates.

    Attributes:
        factory: ``"package.module:Attribute"``, or a name of a registry; called with the settings.
        settings_type: ``"package.module:Attribute"`` of the model of the settings; None if the factory takes
            none.
        settings: the settings as JSON.
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
        """Return the settings as an instance of ``settings_type``."""
        return resolve(self.settings_type or "").model_validate_json(self.settings)


@dataclass(frozen=True, slots=True)
class AudioTaken:
    """Facts of ``taken``: audio that an engine has processed.

    Attributes:
        size_bytes: size of the audio; 0 for work after the last piece.
        work_us: wall-clock time that the engine worked on it.
    """

    size_bytes: int
    work_us: int


@dataclass(frozen=True, slots=True)
class EngineFailure:
    """Error as it is sent between processes.

    Attributes:
        kind: name of its class; the key ``class`` in the facts.
        message: text of the error.
        retryable: the same question may succeed later.
    """

    kind: str
    message: str
    retryable: bool

    @classmethod
    def of(cls, error: AgentError) -> "EngineFailure":
        """Return the representation of an error for the other side."""
        kind = next((each.__name__ for each in _KEPT if isinstance(error, each)), EngineError.__name__)
        return cls(kind, str(error), bool(getattr(error, "retryable", False)))

    @classmethod
    def read(cls, facts: Mapping[str, Any]) -> "EngineFailure":
        """Return the failure of a ``failed`` message; missing facts do not raise."""
        return cls(str(facts.get("class")), str(facts.get("message")), bool(facts.get("retryable")))

    def facts(self) -> dict[str, Any]:
        """Return the facts of a ``failed`` message."""
        return {"class": self.kind, "message": self.message, "retryable": self.retryable}

    def error(self, engine: str, *, prefix: str = "") -> AgentError:
        """Return the error to raise on this side.

        Args:
            engine: registry name of the engine.
            prefix: text put before the message.
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
