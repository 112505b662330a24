"""Prompt of PersonaPlex: frames of all streams that precede a conversation.

    part          text of the bot        audio of the bot     audio of the caller
    the voice     padding                the voice's codes    a tone
    a pause       padding                silence              a tone
    the role      its tokens, one each   silence              a tone
    a pause       padding                silence              a tone

A part that a conversation lacks has no frames. The role is enclosed in ``<system>`` on both sides, which is
text to the tokenizer. The order, the texts, the codes and the loudness are those of the makers' server
(github.com/NVIDIA/personaplex, ``step_system_prompts`` in moshi/moshi/models/lm.py and
``wrap_with_system_tags`` in moshi/moshi/server.py).
"""

import loudness
import numpy as np
import soxr
import torch
from torch import Tensor

from parley.core.errors import ConfigError
from parley.models.omni import VOICE_RATE_HZ
from parley.models.omni.moshi.codec import EncoderStream
from parley.models.omni.moshi.host import Weights
from parley.models.omni.moshi.steps import PromptFrame
from parley.models.omni.personaplex.settings import ENGINE, PersonaPlexSettings

_TAG = "<system>"
# The meter's shortest audio.
_SHORTEST_S = 0.4


class PromptMaker:
    """Maker of the prompts of all conversations. Thread-safe.

    Args:
        weights: shared.
        settings: codes and bounds.

    Raises:
        ConfigError: the codes do not fit the model, or its window has no room for the prompt.
    """

    def __init__(self, weights: Weights, settings: PersonaPlexSettings) -> None:
        config = weights.model.config
        for name in ("silence_codes", "tone_codes"):
            codes = getattr(settings, name)
            if (
                len(codes) != config.num_codebooks
                or not 0 <= min(codes) <= max(codes) < config.audio_vocab_size
            ):
                raise ConfigError(
                    f"{ENGINE!r}: {name} must be {config.num_codebooks} numbers below "
                    f"{config.audio_vocab_size}, as the model has codebooks and codes"
                )
        if settings.max_prompt_units >= weights.window:
            raise ConfigError(
                f"{ENGINE!r}: a prompt of {settings.max_prompt_units} units leaves no room in the window of "
                f"{weights.window}: lower max_prompt_units"
            )
        self._weights, self._settings = weights, settings
        self._silence = torch.tensor(settings.silence_codes, device=weights.device)
        self._tone = torch.tensor(settings.tone_codes, device=weights.device)

    def frames(self, role: str, voice: np.ndarray | None) -> list[PromptFrame]:
        """Return the frames of a prompt.

        Args:
            role: description of the bot; may be empty.
            voice: reference voice, float32, (samples,), at ``VOICE_RATE_HZ``; None for the model's own.

        Raises:
            ConfigError: the prompt is longer than the settings allow.
        """
        weights, pauses = self._weights, 2 * self._settings.pause_units
        tokens = weights.tokenizer.encode(_tagged(role), add_special_tokens=False) if role.strip() else []
        samples = np.zeros(0, dtype=np.float32) if voice is None else self._leveled(voice)
        voice_units = -(-len(samples) // weights.unit_samples)
        units = voice_units + len(tokens) + pauses
        if units > self._settings.max_prompt_units:
            raise ConfigError(
                f"{ENGINE!r}: the prompt has {units} units ({voice_units} of the voice, {len(tokens)} of the "
                f"role and {pauses} of silence), and max_prompt_units is {self._settings.max_prompt_units}"
            )
        pause = [self._frame(weights.padding_id, self._silence)] * self._settings.pause_units
        return [
            *(self._frame(weights.padding_id, codes) for codes in self._codes(samples, voice_units)),
            *pause,
            *(self._frame(token, self._silence) for token in tokens),
            *pause,
        ]

    def _frame(self, token: int, bot: Tensor) -> PromptFrame:
        return PromptFrame(token, bot, self._tone)

    def _codes(self, samples: np.ndarray, units: int) -> list[Tensor]:
        """Return the codes of the voice by frame; the last frame is filled up with silence."""
        if not units:
            return []
        whole = np.zeros(units * self._weights.unit_samples, dtype=np.float32)
        whole[: len(samples)] = samples
        stream = EncoderStream(self._weights.codec, self._weights.model.config.num_codebooks)
        codes = stream.encode(torch.from_numpy(whole).to(self._weights.device))
        return list(codes.unbind(dim=1))

    def _leveled(self, voice: np.ndarray) -> np.ndarray:
        """Return the voice at the codec's rate, as loud as those that the model was trained with.

        One that is too short or too quiet to be measured is left as it is.
        """
        rate_hz = self._weights.rate_hz
        samples = np.ascontiguousarray(soxr.resample(voice, VOICE_RATE_HZ, rate_hz), dtype=np.float32)
        if len(samples) < _SHORTEST_S * rate_hz:
            return samples
        level_lufs: float = loudness.integrated_loudness(samples, rate_hz)
        if not np.isfinite(level_lufs):
            return samples
        gain = 10 ** ((self._settings.voice_lufs - level_lufs) / 20)
        return (samples * np.float32(gain)).clip(-1.0, 1.0)


def _tagged(role: str) -> str:
    text = role.strip()
    is_tagged = text.startswith(_TAG) and text.endswith(_TAG) and text != _TAG
    return text if is_tagged else f"{_TAG} {text} {_TAG}"
