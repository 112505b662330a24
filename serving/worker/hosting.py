"""What a worker hosts: how it is loaded, what it offers, and what a conversation with it may ask.

The server (``server``) has sockets, leases and deadlines, and knows nothing of engines; a ``Hosted`` has the
engine and knows nothing of sockets. Everything here but ``offers`` blocks, and runs in a thread of the
conversation's own: an engine that hangs holds nobody else's.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from core.errors import PeerError
from models.omni import OmniEngine, OmniHost
from models.omni.hosted import codec
from runtime.engine_hosting.messages import MessageType

Answer = tuple[dict[str, Any], bytes]
# Sends a piece of an answer, facts and bytes; False: nobody wants any more of it. Never waits. With neither
# it sends nothing, and only asks.
Emit = Callable[[dict[str, Any], bytes], bool]


@dataclass(frozen=True, slots=True)
class Lessee:
    """Whose conversation it is, and which process it is with.

    Attributes:
        session_id: as the lease's token says it.
        worker: its name.
        incarnation: of the process.
    """

    session_id: str
    worker: str
    incarnation: str


class Talk(Protocol):
    """One conversation with a hosted engine.

    Attributes:
        is_between: nothing is under way: it may go on with another worker, and nobody notices.
    """

    is_between: bool

    def ask(self, type_: MessageType, facts: Mapping[str, Any], payload: bytes, emit: Emit) -> Answer:
        """Do what a message asks; blocks. ``emit`` raises CapacityError when too much waits to be taken.

        Raises:
            PeerError: nothing that this engine does, or facts that cannot be read.
            AgentError: whatever the engine raises.
        """
        ...

    def stop(self) -> None:
        """End what runs, where it does not end with its next piece; from any thread, returns at once."""
        ...

    def close(self) -> None:
        """Give back what it took; blocks."""
        ...


class Hosted(Protocol):
    """An engine with its weights.

    Attributes:
        kind: of the engine: omni, stt, tts or llm.
        slots: conversations at a time.
        is_duplex: whether a conversation holds it in a call, and may pause.
        unit_ms: of a conversation; None where it has no units.
    """

    kind: str
    slots: int
    is_duplex: bool
    unit_ms: int | None

    def offers(self) -> dict[str, Any]:
        """What whoever wants it has to know."""
        ...

    def open(self, lessee: Lessee) -> Talk:
        """A conversation; blocks."""
        ...

    def close(self) -> None:
        """Give back the weights; blocks."""
        ...


Load = Callable[[], Hosted]


class HostedOmni:
    """A full-duplex engine: one conversation at a time, whatever more its host could hold.

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
        # What an engine of it is like: the first one says it.
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
        # The weights live as long as the process: keep the collector from walking them.
        gc.collect()
        gc.freeze()

    def offers(self) -> dict[str, Any]:
        """See ``Hosted``."""
        return self._offers

    def open(self, lessee: Lessee) -> Talk:
        """See ``Hosted``."""
        return _OmniTalk(self._host.open_engine())

    def close(self) -> None:
        """See ``Hosted``."""
        self._host.close()


class _OmniTalk:
    # What it has heard and said is here.
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
                raise PeerError(f"a full-duplex engine does not {type_.value}")
        return {}, b""

    def stop(self) -> None:
        self._engine.stop()

    def close(self) -> None:
        self._engine.stop()
        self._engine.cleanup()
