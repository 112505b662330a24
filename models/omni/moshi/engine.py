"""Engine of one conversation with Moshi, a frame of 80 ms at a time.

``prefill`` encodes the caller's audio. ``generate`` takes a step and computes the bot's next frame, whether
it is sent or not: a listening bot produces silence, and its own codes continue. ``speech`` decides which
frames carry speech. A unit in which the bot must listen feeds it silence as its own output, so its context
records that it was silent. The codec continues meanwhile, so the next speech does not click.

Moshi supports neither instructions nor another voice nor a history. A preparation with any of them begins the
same conversation as one without, which is logged. A conversation that is renewed because its context is full
therefore begins without history; until it is renewed, the oldest units are dropped one by one.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import torch
from loguru import logger
from pydantic import ValidationError
from torch import Tensor

from parley.core.errors import ConfigError, EngineError
from parley.core.units import Vote
from parley.models.omni import Preparation, UnitResult
from parley.models.omni.moshi.codec import DecoderStream, EncoderStream
from parley.models.omni.moshi.host import UNIT_MS, MoshiHost, Weights
from parley.models.omni.moshi.settings import MoshiConversationSettings
from parley.models.omni.moshi.speech import SpeechGate, level_dbfs
from parley.models.omni.moshi.steps import MoshiSteps, PromptFrame
from parley.models.omni.moshi.words import WordDecoder
from parley.models.omni.phases import EngineCall, EnginePhase, Phases


class _Talk:
    """State of a conversation, which ``cleanup`` releases."""

    def __init__(self, weights: Weights, settings: MoshiConversationSettings, phases: Phases) -> None:
        codebooks = weights.model.config.num_codebooks
        self.encoder = EncoderStream(weights.codec, codebooks)
        self.decoder = DecoderStream(weights.codec)
        self.steps = MoshiSteps(
            weights.model,
            settings,
            window=weights.window,
            silence=(weights.padding_id, weights.silence),
            is_stopped=lambda: phases.is_stopped,
        )
        self.words = WordDecoder(weights.pieces, weights.silent)
        self.gate = SpeechGate(speech_dbfs=settings.speech_dbfs, hangover_units=settings.hangover_units)
        self.heard: Tensor | None = None
        self.cost_prefill_ms = 0.0


class MoshiEngine:
    """Engine of one conversation with Moshi; implements ``OmniEngine``.

    Args:
        host: notified when a conversation begins and ends.
        weights: shared.
        defaults: settings that a preparation does not set.
    """

    unit_ms = first_unit_ms = UNIT_MS
    takes_frames = False

    def __init__(self, host: MoshiHost, weights: Weights, defaults: MoshiConversationSettings) -> None:
        self._host, self._weights, self._defaults = host, weights, defaults
        self.name = weights.engine
        self.input_rate_hz = self.output_rate_hz = weights.rate_hz
        self.context_units: int | None = weights.window
        self._phases = Phases()
        self._talk: _Talk | None = None

    def prepare(self, preparation: Preparation) -> None:
        """Begin a conversation, as ``OmniEngine.prepare``; settings: ``MoshiConversationSettings``.

        Raises:
            CapacityError: the limit of conversations is reached.
        """
        try:
            settings = MoshiConversationSettings.model_validate(
                self._defaults.model_dump() | preparation.settings
            )
        except ValidationError as error:
            raise ConfigError(f"{self.name}: {error.error_count()} settings are wrong: {error}") from error
        self._phases.enter(EngineCall.PREPARE)
        try:
            self._host.admit(self)
            prompt = self._prompt_of(preparation)
            with self._computing("the first step"):
                self._talk = _Talk(self._weights, settings, self._phases)
                self._talk.steps.begin(prompt)
        except BaseException:
            self._talk = None
            self._phases.take_back(EngineCall.PREPARE, EnginePhase.NEW)
            raise

    def prefill(self, audio: np.ndarray, frames: Sequence[np.ndarray] = ()) -> None:
        """Encode a unit of audio, as ``OmniEngine.prefill``; frames are refused."""
        unit = self._phases.enter_prefill(audio, frames, self._weights.unit_samples, engine=self.name)
        talk = self._talk
        if unit is None or talk is None:
            return
        began_s = time.perf_counter()
        with self._computing("hearing"):
            # A copy: the array belongs to the caller and may be read-only.
            samples = torch.tensor(unit[0], device=self._weights.device)
            talk.heard = talk.encoder.encode(samples)[:, 0]
        talk.cost_prefill_ms = (time.perf_counter() - began_s) * 1000

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        """Return the result of the unit, as ``OmniEngine.generate``."""
        active = self._phases.enter(EngineCall.GENERATE)
        talk = self._talk
        if not active or talk is None or talk.heard is None:
            return self._stopped()
        began_s = time.perf_counter()
        with self._computing("a step"):
            step = talk.steps.step(talk.heard, is_silent=force_listen)
            stepped_s = time.perf_counter()
            if step is None or self._phases.is_stopped:
                return self._stopped()
            audio = talk.decoder.decode(step.codes[:, None]).float().cpu().numpy()
        if not np.isfinite(audio).all():
            raise EngineError("the codec gives audio that is not finite", engine=self.name)
        quiet = UnitResult(
            Vote.LISTEN,
            n_tokens=1,
            n_tts_tokens=0 if force_listen else len(step.codes),
            kv_tokens=talk.steps.window.kept,
            cost_prefill_ms=talk.cost_prefill_ms,
            cost_llm_ms=(stepped_s - began_s) * 1000,
            cost_tts_ms=(time.perf_counter() - stepped_s) * 1000,
        )
        if force_listen:
            spoke = talk.gate.silence()
            return replace(quiet, vote=Vote.YIELD if spoke else Vote.LISTEN, end_of_turn=spoke)
        is_word = talk.words.is_word(step.token)
        is_said, is_end = talk.gate.on_unit(is_word=is_word, dbfs=level_dbfs(audio))
        if not is_said:
            return quiet
        return replace(
            quiet,
            vote=Vote.SPEAK,
            text=talk.words.text(step.token),
            audio=audio.clip(-1.0, 1.0),
            end_of_turn=is_end,
        )

    def finalize(self) -> None:
        """End the unit, as ``OmniEngine.finalize``; no work is left to do."""
        self._phases.enter(EngineCall.FINALIZE)

    def stop(self) -> None:
        """Stop the conversation, as ``OmniEngine.stop``."""
        self._phases.enter(EngineCall.STOP)

    def cleanup(self) -> None:
        """Release the conversation, as ``OmniEngine.cleanup``."""
        self._phases.enter(EngineCall.CLEANUP)
        self._talk = None
        self._host.dismiss(self)

    def _stopped(self) -> UnitResult:
        return UnitResult(Vote.LISTEN, end_of_turn=self._talk is not None and self._talk.gate.silence())

    def _prompt_of(self, preparation: Preparation) -> Sequence[PromptFrame]:
        """Return the frames before the conversation: none, because Moshi takes nothing of a preparation.

        Raises:
            ConfigError: a variant of Moshi refuses the preparation.
            EngineError: a variant of Moshi cannot compute the frames.
        """
        given = {
            "a system prompt": bool(preparation.system_prompt),
            "a reference voice": preparation.llm_ref_audio is not None
            or preparation.tts_ref_audio is not None,
            "a history": bool(preparation.history),
        }
        if ignored := [what for what, is_given in given.items() if is_given]:
            logger.info(
                f"{self.name} takes no instructions, voice or history: {', '.join(ignored)} is left out"
            )
        return ()

    @contextmanager
    def _computing(self, what: str) -> Iterator[None]:
        """Convert the library's errors, out of memory among them, to ``EngineError``.

        Raises:
            EngineError: the computation failed.
        """
        try:
            with torch.inference_mode():
                yield
        except RuntimeError as error:
            raise EngineError(f"{what} failed: {type(error).__name__}", engine=self.name) from error
