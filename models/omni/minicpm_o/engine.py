"""Omni engine MiniCPM-o 4.5 on this machine: one worker process, one conversation at a time.

Input: units of audio and pictures. Output: results. The worker has the model and its Python environment. This
module grants access to it, sets deadlines and interprets its answers.

Slow: every question has a deadline. Dead, hung or in violation of the protocol: the worker is killed, every
call fails until ``cleanup``, and a new worker loads at once. The next conversation waits until it has. The
same happens after an error of the model, because the state of the conversation in it is then unknown. A
worker counts as loaded when it has processed a unit, because the first preparation of a process compiles and
reads much (42 s were seen), and must not take its time from a caller.
``stop`` returns at once, and a running ``generate`` returns silence within ``POLL_S``. The model itself
computes its unit to the end, and the result is dropped.

The released model does not yield: it finishes every turn that it has begun. ``force_listen`` ends the turn;
the component that detects the caller's speech must set it.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from loguru import logger

from parley.core.call_choices import CLONING
from parley.core.errors import AgentError, CapacityError, ConfigError, EngineError, PeerError
from parley.core.units import Vote
from parley.models.omni import OmniEngine, Preparation, UnitResult
from parley.models.omni.hosted.codec import of_preparation, of_unit
from parley.models.omni.minicpm_o.settings import (
    DEFAULT_PROMPT,
    INPUT_RATE_HZ,
    LOOK_AHEAD_MS,
    OUTPUT_RATE_HZ,
    MiniCpmOSettings,
    SessionSettings,
    checked_voice,
    context_units,
    merged,
    read_voice,
    with_history,
)
from parley.models.omni.minicpm_o.word_aligner import TurnAssembler, UnitOutput
from parley.models.omni.phases import EngineCall, Phases
from parley.protocols.facts import from_facts
from parley.runtime.engine_hosting.blocking import BlockingChild
from parley.runtime.engine_hosting.child import ChildSettings
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "minicpm_o"
WORKER = "parley.models.omni.minicpm_o.worker"


class MiniCpmOHost:
    """Owner of the worker, which one conversation holds at a time. Thread-safe.

    Args:
        settings: model, environment and deadlines.
        worker: module that the worker's Python runs.

    Attributes:
        link: connection to the worker.

    Raises:
        ConfigError: the voice, the executable, its packages or a setting are wrong.
        EngineError: the model does not load, or not in time.
    """

    sessions = 1
    client_settings = frozenset(SessionSettings.model_fields)
    choices = CLONING

    def __init__(self, settings: MiniCpmOSettings, *, worker: str = WORKER) -> None:
        self.settings = settings
        self.takes_frames = settings.sees
        self.voice = read_voice(settings.voice) if settings.voice is not None else None
        self._lock = threading.Lock()
        self._holder: object | None = None
        self._is_closed = False
        command = (settings.python or sys.executable, "-P", "-m", worker)
        limits = ChildSettings(
            start_timeout_s=settings.load_timeout_s, close_timeout_s=settings.close_timeout_s
        )
        self.link = BlockingChild(command, _load_facts(settings), limits=limits, name=ENGINE)
        self.link.start()
        try:
            self.check(settings.session)
        except ConfigError:
            self.link.close()
            raise

    @property
    def restarts(self) -> int:
        """Number of restarts of the worker."""
        return self.link.restarts

    def open_engine(self) -> OmniEngine:
        """Return an engine, as ``OmniHost.open_engine``."""
        with self._lock:
            self._check_free()
        return MiniCpmOEngine(self)

    def close(self) -> None:
        """End the worker. No worker is started afterwards."""
        with self._lock:
            self._is_closed = True
        self.link.close()

    # Called by its engines.

    def claim(self, engine: object) -> None:
        """Reserve the worker for the conversation of an engine.

        Raises:
            CapacityError: another conversation is under way.
            EngineError: the host is closed.
        """
        with self._lock:
            self._check_free()
            self._holder = engine

    def release(self, engine: object) -> None:
        """Release the worker after a conversation."""
        with self._lock:
            if self._holder is engine:
                self._holder = None

    def check(self, session: SessionSettings) -> None:
        """Reject settings that were set explicitly and that the model does not take.

        Raises:
            ConfigError: there is such a setting.
        """
        takes = set(self.link.loaded["takes"])
        if lost := sorted(session.model_fields_set - takes):
            raise ConfigError(
                f"{ENGINE}: the model's code does not accept {', '.join(lost)}", known=tuple(sorted(takes))
            )

    def _check_free(self) -> None:
        if self._is_closed:
            raise EngineError(f"{ENGINE}: the engine is closed", engine=ENGINE, retryable=False)
        if self._holder is not None:
            raise CapacityError(f"{ENGINE}: its only conversation is in use", limit=self.sessions)


def _load_facts(settings: MiniCpmOSettings) -> dict[str, Any]:
    session = settings.session
    duplex = {
        "generate_audio": session.generate_audio,
        "ls_mode": session.ls_mode,
        "force_listen_count": session.force_listen_count,
        "max_new_speak_tokens_per_chunk": session.max_new_speak_tokens_per_chunk,
        "tts_temperature": session.tts_temperature,
        "chunk_ms": settings.chunk_ms,
        "first_chunk_ms": settings.chunk_ms + LOOK_AHEAD_MS,
        "sample_rate": INPUT_RATE_HZ,
        **settings.window.model_dump(),
    }
    names = ("model", "revision", "device", "dtype", "attn_implementation", "sees")
    facts = {name: getattr(settings, name) for name in names} | {"duplex": duplex}
    if settings.warm_up:
        facts["warm_up"] = {"prompt": DEFAULT_PROMPT, "session": session.model_dump()}
    return facts


class MiniCpmOEngine:
    """Engine of one conversation with the worker; implements ``OmniEngine``."""

    input_rate_hz = INPUT_RATE_HZ
    output_rate_hz = OUTPUT_RATE_HZ

    def __init__(self, host: MiniCpmOHost) -> None:
        self._host = host
        self._settings = host.settings
        self.unit_ms = self._settings.chunk_ms
        self.first_unit_ms = self.unit_ms + LOOK_AHEAD_MS
        self.takes_frames = self._settings.sees
        self._phases = Phases()
        # Life of the worker that the conversation belongs to.
        self._life = 0
        self._forget(self._settings.session)

    def _forget(self, session: SessionSettings) -> None:
        self._saying = TurnAssembler(self.unit_ms, engine=ENGINE)
        self._units = 0
        self._is_begun = self._is_broken = False
        self._cost_prefill_ms = 0.0
        self.context_units: int | None = None
        if self._settings.window.sliding_window_mode == "off":
            self.context_units = context_units(
                self._settings.context_tokens,
                max_slice_nums=session.max_slice_nums,
                frames_per_unit=self._settings.frames_per_unit if self.takes_frames else 0,
            )

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation, as ``OmniEngine.prepare``; the settings are those of ``SessionSettings``.

        Waits for a restarted worker until its model is loaded.

        Raises:
            CapacityError: another conversation is under way.
        """
        session = merged(self._settings.session, preparation.settings, engine=ENGINE)
        llm = preparation.llm_ref_audio if preparation.llm_ref_audio is not None else self._host.voice
        tts = preparation.tts_ref_audio if preparation.tts_ref_audio is not None else llm
        llm, tts = (None if voice is None else checked_voice(voice) for voice in (llm, tts))
        before = self._phases.phase
        self._phases.enter(EngineCall.PREPARE)
        try:
            self._host.claim(self)
            self._forget(session)
            if self._host.link.wait_ready(lambda: self._phases.is_stopped):
                self._life = self._host.link.restarts
                self._host.check(session)
                prompt = with_history(
                    preparation.system_prompt, preparation.history, self._settings.history_chars
                )
                facts, payload = of_preparation(Preparation(prompt, llm, tts, (), session.model_dump()))
                self._is_begun = True
                self._ask(MessageType.PREPARE, facts, payload, within_s=self._settings.prepare_timeout_s)
        except AgentError:
            # The worker may belong to the next engine from here on, so this one's ``cleanup`` must not touch
            # it.
            self._is_begun = False
            self._host.release(self)
            self._phases.take_back(EngineCall.PREPARE, before)
            raise

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Read a unit, as ``OmniEngine.prefill``. The first one is longer; short ones are padded at the
        front.
        """
        samples = (self.first_unit_ms if not self._units else self.unit_ms) * INPUT_RATE_HZ // 1000
        unit = self._phases.enter_prefill(
            audio, frames, samples, engine=ENGINE, takes_frames=self.takes_frames
        )
        if unit is None:
            return
        heard, seen = unit
        self._units += 1
        if not len(heard):
            # Pictures without audio come with silence: the model counts time by its audio.
            heard = np.zeros(samples, np.float32)
        answer = self._ask(MessageType.PREFILL, *of_unit(heard, seen))
        if answer is not None:
            self._cost_prefill_ms = float(answer.facts["cost_prefill_ms"])

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Return the result of the unit, as ``OmniEngine.generate``."""
        if not self._phases.enter(EngineCall.GENERATE):
            return self._silence()
        answer = self._ask(MessageType.GENERATE, {"force_listen": force_listen})
        if answer is None:
            return self._silence()
        try:
            return self._saying.result(self._said(answer), forced=force_listen)
        except EngineError:
            self._break()
            raise

    def finalize(self) -> None:
        """End the unit, as ``OmniEngine.finalize``: its end enters the context, the oldest units leave it."""
        if self._phases.enter(EngineCall.FINALIZE):
            self._ask(MessageType.FINALIZE)

    def stop(self) -> None:
        """Stop the conversation, as ``OmniEngine.stop``."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """Release the conversation, as ``OmniEngine.cleanup``."""
        self._phases.enter(EngineCall.CLEANUP)
        if self._is_begun and not self._is_broken:
            settings = self._settings
            try:
                # The worker first finishes a unit whose result was abandoned.
                self._host.link.ask(
                    MessageType.CLEANUP,
                    life=self._life,
                    within_s=settings.unit_timeout_s + settings.close_timeout_s,
                )
            except AgentError as error:
                logger.warning(f"{ENGINE}: the worker failed to clean up: {error}")
                self._break()
        self._host.release(self)
        self._forget(self._settings.session)

    def _ask(
        self,
        type_: MessageType,
        facts: dict[str, Any] | None = None,
        payload: bytes = b"",
        *,
        within_s: float | None = None,
    ) -> EngineMessage | None:
        """Return the worker's answer; None when stopped."""
        if self._is_broken:
            raise EngineError(f"{ENGINE}: the worker has failed already", engine=ENGINE)
        within_s = self._settings.unit_timeout_s if within_s is None else within_s
        try:
            return self._host.link.ask(
                type_,
                facts,
                payload,
                life=self._life,
                within_s=within_s,
                is_stopped=lambda: self._phases.is_stopped,
            )
        except EngineError:
            self._break()
            raise

    def _break(self) -> None:
        """Kill the worker, because the state of the conversation in it is unknown."""
        self._is_broken = True
        self._host.link.kill("a conversation failed", life=self._life)

    def _said(self, answer: EngineMessage) -> UnitOutput:
        try:
            audio = np.frombuffer(answer.payload, dtype="<f4").astype(np.float32)
            audio = audio.reshape(answer.facts["shape"])
            return from_facts(UnitOutput, answer.facts, audio=audio, cost_prefill_ms=self._cost_prefill_ms)
        except (KeyError, TypeError, ValueError, PeerError) as error:
            raise EngineError(f"{ENGINE}: unreadable result", engine=ENGINE) from error

    def _silence(self) -> UnitResult:
        return UnitResult(Vote.LISTEN, end_of_turn=self._saying.is_open)
