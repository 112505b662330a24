"""Client of an omni engine that runs in a worker.

Input: units of audio and pictures. Output: results. The worker has the engine, of whatever kind, with its
weights and its Python environment. The host requests its description once and waits while it loads. An engine
that is opened holds the worker, with a lease of its own, until ``cleanup``.

Slow: every question has a deadline. Dead, hung or in violation of the protocol: the socket is closed, and
every call fails until ``cleanup``. The worker cleans up by itself or is replaced by its supervisor. ``stop``
returns at once, and a waiting call returns silence within ``POLL_S``.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from pydantic import Field

from parley.core.errors import AgentError, EngineError, PeerError
from parley.core.strict_model import StrictModel
from parley.core.units import Vote
from parley.models.hosted.link import ConversationLink
from parley.models.hosted.worker import Leasing, OneWorker, WorkerAddress, loaded_engine
from parley.models.omni import OmniEngine, Preparation, UnitResult
from parley.models.omni.hosted import codec
from parley.models.omni.phases import EngineCall, Phases
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "worker"


class HostedSettings(StrictModel):
    """Deadlines for a worker."""

    open_timeout_s: float = Field(5, gt=0, le=60, description="longest wait for a lease")
    prepare_timeout_s: float = Field(60, gt=0, le=600, description="longest time to prepare a conversation")
    unit_timeout_s: float = Field(5, gt=0, le=60, description="longest wait for the result of a unit")


class HostedOmniSettings(WorkerAddress, HostedSettings):
    """Worker at a fixed address, and deadlines for it."""


class WorkerOmniHost:
    """Host of the engine of one worker. Thread-safe.

    Args:
        settings: address and deadlines.

    Raises:
        ConfigError: the secret is not set.
        EngineError: the worker is not reached, or its model does not load, or not in time.
    """

    def __init__(self, settings: HostedOmniSettings) -> None:
        self.settings = settings
        self._one = OneWorker(settings)
        engine = loaded_engine(
            settings,
            ENGINE,
            "omni",
            open_s=settings.open_timeout_s,
            write_s=settings.unit_timeout_s,
        )
        self.sessions: int | None = engine["slots"]
        self.takes_frames: bool = engine["takes_frames"]

    def open_engine(self) -> OmniEngine:
        """Return an engine that leases the worker, as ``OmniHost.open_engine``.

        Raises:
            EngineError: the worker is not reached.
        """
        return WorkerOmniEngine(self._one, self.settings)

    def close(self) -> None:
        """Do nothing: the weights are the worker's."""


class WorkerOmniEngine:
    """Engine of one conversation in a worker; implements ``OmniEngine``. Leases the worker when created.

    Args:
        leasing: chooses the worker.
        settings: deadlines.

    Raises:
        CapacityError: the worker is in use.
        EngineError: the worker is not reached, or refuses the conversation.
    """

    def __init__(self, leasing: Leasing, settings: HostedSettings) -> None:
        self._leasing = leasing
        self._settings = settings
        self._phases = Phases()
        self._link: ConversationLink | None = None
        self._is_open_turn = self._is_broken = False
        facts = self._lease().facts["engine"]
        self.unit_ms: int = facts["unit_ms"]
        self.first_unit_ms: int = facts["first_unit_ms"]
        self.input_rate_hz: int = facts["input_rate_hz"]
        self.output_rate_hz: int = facts["output_rate_hz"]
        self.context_units: int | None = facts["context_units"]
        self.takes_frames: bool = facts["takes_frames"]

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation, as ``OmniEngine.prepare``; lease a worker again after a ``cleanup``.

        Raises:
            CapacityError: the worker was released and is now in use.
        """
        before = self._phases.phase
        self._phases.enter(EngineCall.PREPARE)
        try:
            if self._link is None:
                self._lease()
            facts, payload = codec.of_preparation(preparation)
            self._ask(MessageType.PREPARE, facts, payload, within_s=self._settings.prepare_timeout_s)
        except AgentError:
            self._phases.take_back(EngineCall.PREPARE, before)
            raise

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Send a unit, as ``OmniEngine.prefill``."""
        longest_ms = max(self.unit_ms, self.first_unit_ms)
        # The engine pads a short unit, because only it knows whether this is the first one.
        unit = self._phases.enter_prefill(
            audio,
            frames,
            longest_ms * self.input_rate_hz // 1000,
            engine=ENGINE,
            takes_frames=self.takes_frames,
        )
        if unit is not None:
            facts, payload = codec.of_unit(audio, unit[1])
            self._ask(MessageType.PREFILL, facts, payload)

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Return the result of the unit, as ``OmniEngine.generate``."""
        if not self._phases.enter(EngineCall.GENERATE):
            return self._silence()
        answer = self._ask(MessageType.GENERATE, {"force_listen": force_listen})
        if answer is None:
            return self._silence()
        try:
            result = codec.to_result(answer.facts, answer.payload)
        except PeerError as error:
            self._is_broken = True
            raise EngineError(f"{ENGINE}: {error}", engine=ENGINE) from error
        self._is_open_turn = result.vote is Vote.SPEAK and not result.end_of_turn
        return result

    def finalize(self) -> None:
        """End the unit, as ``OmniEngine.finalize``."""
        if self._phases.enter(EngineCall.FINALIZE):
            self._ask(MessageType.FINALIZE)

    def stop(self) -> None:
        """Stop the conversation, as ``OmniEngine.stop``."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """Release the worker; return when it has cleaned up and may serve the next conversation."""
        self._phases.enter(EngineCall.CLEANUP)
        if self._link is not None:
            # A worker that does not answer in time is abandoned: its lease ends with the socket.
            with suppress(EngineError):
                self._link.ask(MessageType.RELEASE, within_s=self._settings.unit_timeout_s)
        self._give_up()
        self._is_open_turn = self._is_broken = False

    def _lease(self) -> ConversationLink:
        url, first = self._leasing.lease()
        self._link = ConversationLink(
            url,
            first,
            open_s=self._settings.open_timeout_s,
            write_s=self._settings.unit_timeout_s,
            engine=ENGINE,
        )
        return self._link

    def _ask(
        self,
        type_: MessageType,
        facts: dict[str, Any] | None = None,
        payload: bytes = b"",
        *,
        within_s: float | None = None,
    ) -> EngineMessage | None:
        """Return the worker's answer; None when stopped."""
        if self._link is None or self._is_broken:
            raise EngineError(f"{ENGINE}: the worker has failed already", engine=ENGINE)
        try:
            return self._link.ask(
                type_,
                facts,
                payload,
                within_s=self._settings.unit_timeout_s if within_s is None else within_s,
                is_stopped=lambda: self._phases.is_stopped,
            )
        except EngineError:
            self._is_broken = True
            raise

    def _give_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _silence(self) -> UnitResult:
        was_open, self._is_open_turn = self._is_open_turn, False
        return UnitResult(Vote.LISTEN, end_of_turn=was_open)
