"""The omni engine MiniCPM-o 4.5 on this machine: one worker process, one conversation at a time.

In: units of sound and pictures. Out: results. The worker has the model and its Python environment; here is
who may ask it, for how long, and what its answers mean.

Slow: every question has a deadline. Dead, hung or wrong: the worker is killed, every call fails until
``cleanup``, and a new worker loads at once; the next conversation waits until it has. The same after an
error of the model: what is left of the conversation in there is not known. ``stop`` returns at once, and a
``generate`` that runs returns within ``POLL_S``, silent; the model itself computes its unit to the end, and
nobody takes the result.

The released model does not yield: once it has begun a turn it says it to the end. ``force_listen`` ends it,
which is for whoever hears the caller to ask for.
"""

import sys
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from loguru import logger

from core.errors import AgentError, CapacityError, ConfigError, EngineError, PeerError
from models.omni import OmniEngine, Preparation, UnitResult, Vote
from models.omni.hosted.codec import of_preparation, of_unit
from models.omni.minicpm_o.saying import Said, Saying
from models.omni.minicpm_o.settings import (
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
from models.omni.phases import Call, Phases
from protocols.facts import from_facts
from runtime.engine_hosting.blocking import BlockingChild
from runtime.engine_hosting.child import ChildSettings
from runtime.engine_hosting.messages import EngineMessage, MessageType

ENGINE = "minicpm_o"
WORKER = "models.omni.minicpm_o.worker"


class MiniCpmOHost:
    """The worker, and who has it. Thread-safe.

    Args:
        settings: see the model.
        worker: module that the worker's Python runs.

    Attributes:
        link: to the worker.

    Raises:
        ConfigError: the voice, the executable, its packages or a setting are wrong.
        EngineError: the model does not load, or not in time.
    """

    sessions = 1
    client_settings = frozenset(SessionSettings.model_fields)

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
        """How often the worker was started again."""
        return self.link.restarts

    def open_engine(self) -> OmniEngine:
        """See ``OmniHost``."""
        with self._lock:
            self._check_free()
        return MiniCpmOEngine(self)

    def close(self) -> None:
        """See ``OmniHost``. No worker is started from here on."""
        with self._lock:
            self._is_closed = True
        self.link.close()

    # For its engines.

    def claim(self, engine: object) -> None:
        """An engine begins a conversation.

        Raises:
            CapacityError: another has one.
            EngineError: the host is closed.
        """
        with self._lock:
            self._check_free()
            self._holder = engine

    def release(self, engine: object) -> None:
        """It is over."""
        with self._lock:
            if self._holder is engine:
                self._holder = None

    def check(self, session: SessionSettings) -> None:
        """Refuse settings that were chosen and that the model does not take.

        Raises:
            ConfigError: there are such.
        """
        takes = set(self.link.loaded["takes"])
        if lost := sorted(session.model_fields_set - takes):
            raise ConfigError(
                f"{ENGINE}: the model's code does not take {', '.join(lost)}", known=tuple(sorted(takes))
            )

    def _check_free(self) -> None:
        if self._is_closed:
            raise EngineError(f"{ENGINE}: it is closed", engine=ENGINE, retryable=False)
        if self._holder is not None:
            raise CapacityError(f"{ENGINE}: its one conversation is on", limit=self.sessions)


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
    return {name: getattr(settings, name) for name in names} | {"duplex": duplex}


class MiniCpmOEngine:
    """One conversation; see ``OmniEngine``."""

    input_rate_hz = INPUT_RATE_HZ
    output_rate_hz = OUTPUT_RATE_HZ

    def __init__(self, host: MiniCpmOHost) -> None:
        self._host = host
        self._settings = host.settings
        self.unit_ms = self._settings.chunk_ms
        self.first_unit_ms = self.unit_ms + LOOK_AHEAD_MS
        self.takes_frames = self._settings.sees
        self._phases = Phases()
        # Of the worker: which life of it the conversation is with.
        self._life = 0
        self._forget(self._settings.session)

    def _forget(self, session: SessionSettings) -> None:
        self._saying = Saying(self.unit_ms, engine=ENGINE)
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
        """See ``OmniEngine``; the settings are those of ``SessionSettings``.

        A worker that was started again is waited for until its model is loaded.

        Raises:
            CapacityError: another conversation is on.
        """
        session = merged(self._settings.session, preparation.settings, engine=ENGINE)
        llm = preparation.llm_ref_audio if preparation.llm_ref_audio is not None else self._host.voice
        tts = preparation.tts_ref_audio if preparation.tts_ref_audio is not None else llm
        llm, tts = (None if voice is None else checked_voice(voice) for voice in (llm, tts))
        before = self._phases.phase
        self._phases.enter(Call.PREPARE)
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
            # The worker is the next one's from here on: a ``cleanup`` of this engine is none of its business.
            self._is_begun = False
            self._host.release(self)
            self._phases.take_back(Call.PREPARE, before)
            raise

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """See ``OmniEngine``. The first unit is longer; a shorter one is padded in front like any other."""
        samples = (self.first_unit_ms if not self._units else self.unit_ms) * INPUT_RATE_HZ // 1000
        unit = self._phases.enter_prefill(
            audio, frames, samples, engine=ENGINE, takes_frames=self.takes_frames
        )
        if unit is None:
            return
        heard, seen = unit
        self._units += 1
        if not len(heard):
            # Who is seen and makes no sound is heard as silence: the model counts its time by what it hears.
            heard = np.zeros(samples, np.float32)
        answer = self._ask(MessageType.PREFILL, *of_unit(heard, seen))
        if answer is not None:
            self._cost_prefill_ms = float(answer.facts["cost_prefill_ms"])

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """See ``OmniEngine``."""
        if not self._phases.enter(Call.GENERATE):
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
        """See ``OmniEngine``: the end of the unit goes into the context, and the oldest units out of it."""
        if self._phases.enter(Call.FINALIZE):
            self._ask(MessageType.FINALIZE)

    def stop(self) -> None:
        """See ``OmniEngine``."""
        self._phases.enter(Call.STOP)

    def cleanup(self) -> None:
        """See ``OmniEngine``."""
        self._phases.enter(Call.CLEANUP)
        if self._is_begun and not self._is_broken:
            settings = self._settings
            try:
                # A unit that nobody waited for comes first.
                self._host.link.ask(
                    MessageType.CLEANUP,
                    life=self._life,
                    within_s=settings.unit_timeout_s + settings.close_timeout_s,
                )
            except AgentError as error:
                logger.warning(f"{ENGINE}: the worker does not clean up: {error}")
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
        """The worker's answer; None: stopped."""
        if self._is_broken:
            raise EngineError(f"{ENGINE}: the worker failed before", engine=ENGINE)
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
        """What is left in the worker is not known: it is not asked again."""
        self._is_broken = True
        self._host.link.kill("a conversation failed", life=self._life)

    def _said(self, answer: EngineMessage) -> Said:
        try:
            audio = np.frombuffer(answer.payload, dtype="<f4").astype(np.float32)
            audio = audio.reshape(answer.facts["shape"])
            return from_facts(Said, answer.facts, audio=audio, cost_prefill_ms=self._cost_prefill_ms)
        except (KeyError, TypeError, ValueError, PeerError) as error:
            raise EngineError(f"{ENGINE}: a result cannot be read", engine=ENGINE) from error

    def _silence(self) -> UnitResult:
        return UnitResult(Vote.LISTEN, end_of_turn=self._saying.is_open)
