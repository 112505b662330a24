"""Hosted engines of a worker: loading, capabilities, and the requests of a conversation.

The server (``server``) has sockets, leases and deadlines, and no reference to engines; a ``Hosted`` has the
engine and no reference to sockets. Everything here except ``offers`` blocks, and runs in a thread of the
conversation. An engine that hangs holds up no other conversation.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from parley.core.errors import PeerError
from parley.models.omni import OmniEngine, OmniHost
from parley.models.omni.hosted import codec
from parley.runtime.engine_hosting.messages import MessageType

Answer = tuple[dict[str, Any], bytes]
# Sends a piece of an answer, facts and bytes; returns False when no more of it is wanted. Never waits.
# Without facts and bytes it sends nothing, and only checks.
Emit = Callable[[dict[str, Any], bytes], bool]


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Identity of a conversation and of the process that serves it.

    Attributes:
        session_id: from the lease's token.
        worker: its name.
        incarnation: of the process.
    """

    session_id: str
    worker: str
    incarnation: str


class EngineSession(Protocol):
    """Conversation with a hosted engine.

    Attributes:
        is_between: nothing is in progress: it can continue with another worker unnoticed.
    """

    is_between: bool

    def ask(self, type_: MessageType, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        """Carry out a request; blocks. ``emit`` raises CapacityError when too much waits to be sent.

        Raises:
            PeerError: not supported by this engine, or facts that cannot be read.
            AgentError: as the engine raises.
        """
        ...

    def stop(self) -> None:
        """Stop a running call that does not end with its next piece; thread-safe, returns at once."""
        ...

    def close(self) -> None:
        """Release the resources of the conversation; blocks."""
        ...


class Hosted(Protocol):
    """Engine with its weights.

    Attributes:
        kind: of the engine: omni, stt, tts or llm.
        slots: concurrent conversations.
        is_duplex: a conversation holds it during a call, and may pause.
        unit_ms: of a conversation; None where it has no units.
    """

    kind: str
    slots: int
    is_duplex: bool
    unit_ms: int | None

    def offers(self) -> dict[str, Any]:
        """Return the facts that a client needs about it."""
        ...

    def open(self, lessee: LeaseHolder) -> EngineSession:
        """Open a conversation; blocks."""
        ...

    def forget(self, session_id: str) -> int:
        """Drop what is kept of a deleted session, for good; return the number of contexts. Does not block."""
        ...

    def close(self) -> None:
        """Release the weights; blocks."""
        ...


Load = Callable[[], Hosted]


class HostedOmni:
    """Full-duplex engine: one conversation at a time, even if its host could hold more.

    Args:
        host: of the weights.
        name: of the engine.
    """

    kind = "omni"
    is_duplex = True
    slots = 1

    def __init__(self, host: OmniHost, name: str) -> None:
        self._host = host
        self._name = name
        # The first engine is opened to read its properties.
        engine = host.open_engine()
        try:
            self._offers = {
                "kind": self.kind,
                "name": name,
                "slots": self.slots,
                "unit_ms": engine.unit_ms,
                "first_unit_ms": engine.first_unit_ms,
                "input_rate_hz": engine.input_rate_hz,
                "output_rate_hz": engine.output_rate_hz,
                "context_units": engine.context_units,
                "takes_frames": engine.takes_frames,
            }
        finally:
            engine.cleanup()
        self.unit_ms: int | None = engine.unit_ms
        # The weights live as long as the process: exclude them from garbage collection.
        gc.collect()
        gc.freeze()

    def offers(self) -> dict[str, Any]:
        """Return the facts about the engine (``Hosted``)."""
        return self._offers

    def open(self, lessee: LeaseHolder) -> EngineSession:
        """Open a conversation (``Hosted``)."""
        return _OmniTalk(self._host.open_engine())

    def forget(self, session_id: str) -> int:
        """Return 0 (``Hosted``): a conversation leaves nothing."""
        return 0

    def close(self) -> None:
        """Release the weights (``Hosted``)."""
        self._host.close()


class _OmniTalk:
    # The history of the conversation is in the engine.
    is_between = False

    def __init__(self, engine: OmniEngine) -> None:
        self._engine = engine

    def ask(self, type_: MessageType, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        engine = self._engine
        match type_:
            case MessageType.PREPARE:
                engine.prepare(codec.to_preparation(facts, payload))
            case MessageType.PREFILL:
                engine.prefill(*codec.to_unit(facts, payload))
            case MessageType.GENERATE:
                return codec.of_result(engine.generate(force_listen=facts.get("force_listen") is True))
            case MessageType.FINALIZE:
                engine.finalize()
            case _:
                raise PeerError(f"a full-duplex engine does not support {type_.value}")
        return {}, b""

    def stop(self) -> None:
        self._engine.stop()

    def close(self) -> None:
        self._engine.stop()
        self._engine.cleanup()
