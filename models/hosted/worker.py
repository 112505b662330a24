"""Worker at a known address: authorisation of a connection, and a description of its engine.

Every conversation goes to the same worker. A pool chooses between several (``serving.pool``) and has the same
interface, ``Leasing``.
"""

import time
import uuid
from typing import Any, Protocol

from pydantic import Field

from parley.core.errors import ConfigError, EngineError
from parley.core.strict_model import StrictModel
from parley.models.hosted.link import ConversationLink
from parley.protocols.worker_tokens import LEAST_SECRET_BYTES, Claim, sign
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.worker_secret import secret_in

# Validity of a token, which is used at once.
TOKEN_S = 30
# Longest interval between two STATE messages of a worker.
STATE_S = 5.0


class WorkerAddress(StrictModel):
    """Address of a worker, and the secret that it shares."""

    url: str = Field(pattern=r"^wss?://[^/\s]+", description="address of the worker")
    name: str = Field(
        "worker", min_length=1, max_length=100, description="name of the worker, as it is configured there"
    )
    secret_env: str = Field(
        "PARLEY_WORKER_SECRET", description="environment variable with the secret that the worker shares"
    )
    load_timeout_s: float = Field(
        600, gt=0, le=3_600, description="longest wait for the worker to load its model"
    )

    def check(self) -> None:
        """Check that the secret is set, as ``core.files.Checked`` requires."""
        self.secret()

    def secret(self) -> bytes:
        """Return the secret that authorises connections to the worker.

        Raises:
            ConfigError: it is not set, or too short.
        """
        secret = secret_in(self.secret_env)
        if not secret:
            raise ConfigError(
                f"'worker' needs a secret of at least {LEAST_SECRET_BYTES} characters in the environment "
                f"variable {self.secret_env}, the same as the worker's"
            )
        return secret


class Leasing(Protocol):
    """Placement of conversations: a pool, or always the same worker. Thread-safe."""

    def lease(self) -> tuple[str, EngineMessage]:
        """Return the address of a worker for a new conversation, and the first message to send."""
        ...


class OneWorker:
    """Placement of every conversation on one worker with a known address.

    Args:
        address: address of the worker.

    Raises:
        ConfigError: the secret is not set.
    """

    def __init__(self, address: WorkerAddress) -> None:
        self._address = address
        self._secret = address.secret()

    def lease(self) -> tuple[str, EngineMessage]:
        """Return a lease for a session of its own; any process of the worker will do."""
        return self._address.url, self._first(MessageType.LEASE, uuid.uuid4().hex)

    def lease_of(self, session_id: str, epoch: int, cached: object) -> tuple[str, EngineMessage]:
        """Return a lease for a session, as ``models.llm.hosted.engine.SessionLeasing``."""
        return self._address.url, self._first(MessageType.LEASE, session_id, epoch)

    def refused(self, session_id: str) -> bool:
        """Return False: there is no other worker."""
        return False

    def ended(self, session_id: str, epoch: int) -> None:
        """Do nothing: the worker itself counts its conversations."""

    def not_taken(self, url: str) -> bool:
        """Return False: there is no other worker."""
        return False

    def watch(self) -> EngineMessage:
        """Return the first message of a link that watches the state of the worker."""
        return self._first(MessageType.WATCH, "")

    def watches(self) -> list[tuple[str, EngineMessage]]:
        """Return the address of the worker with ``watch`` (``models.llm.hosted.engine.SessionLeasing``)."""
        return [(self._address.url, self.watch())]

    def _first(self, type_: MessageType, session_id: str, epoch: int = 0) -> EngineMessage:
        claim = Claim(self._address.name, "", session_id, epoch, int(time.time()) + TOKEN_S)
        return EngineMessage(type_, facts=claim.facts(sign(self._secret, claim)))


def forget_session(
    url: str, watch: EngineMessage, session_id: str, *, engine: str, within_s: float
) -> int | None:
    """Have a worker drop what it keeps of a deleted session; return the number of contexts. Blocks.

    Args:
        url: address of the worker.
        watch: the first message of a link that watches it.
        session_id: of the session.
        engine: registry name of the engine, for errors.
        within_s: longest wait for each step.

    Returns:
        None where the worker is of a release that cannot; it drops the context by itself after a while.

    Raises:
        AgentError: the worker is not reached, or does not answer.
    """
    link = ConversationLink(url, watch, open_s=within_s, write_s=within_s, engine=engine)
    try:
        # A worker that does not know the message would end the link.
        if not (link.facts.get("engine") or {}).get("forgets"):
            return None
        answer = link.ask(MessageType.FORGET, {"session_id": session_id}, within_s=within_s)
        contexts = None if answer is None else answer.facts.get("contexts")
        return contexts if isinstance(contexts, int) else 0
    finally:
        link.close()


def loaded_engine(
    address: WorkerAddress, engine: str, kind: str, *, open_s: float, write_s: float
) -> dict[str, Any]:
    """Return a worker's description of its engine; wait while it loads.

    Args:
        address: address of the worker.
        engine: registry name of the engine that runs there, for errors.
        kind: expected kind of the engine.
        open_s: longest wait for the first answer.
        write_s: longest write.

    Raises:
        ConfigError: the secret is missing, or the engine is of another kind.
        EngineError: the worker is not reached, or its model does not load, or not in time.
    """
    deadline_s = time.monotonic() + address.load_timeout_s
    link = ConversationLink(
        address.url, OneWorker(address).watch(), open_s=open_s, write_s=write_s, engine=engine
    )
    try:
        facts = link.facts
        while facts.get("engine") is None:
            if facts.get("state") == "dead" or time.monotonic() > deadline_s:
                raise EngineError(f"{engine}: its model failed to load", engine=engine)
            facts = link.next(MessageType.STATE, within_s=STATE_S).facts
    finally:
        link.close()
    loaded: dict[str, Any] = facts["engine"]
    if loaded.get("kind") != kind:
        raise ConfigError(
            f"{engine}: the engine of {address.name!r} is of kind {loaded.get('kind')!r}, not {kind!r}"
        )
    return loaded
