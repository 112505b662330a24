"""Settings of MiniCPM-o: sampling, loading and deadlines.

The names are those of the model's own calls and of its server's ``DuplexConfig``, so that the documentation
of each applies to the other's configuration. Defaults are the server's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import soundfile
import soxr
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from parley.core.errors import ConfigError
from parley.core.strict_model import StrictModel

INPUT_RATE_HZ = 16_000
OUTPUT_RATE_HZ = 24_000
# The model's first unit is longer: its mel frames look 35 ms ahead.
LOOK_AHEAD_MS = 35
# Tokens of a unit in which it speaks, and of a tile of a picture with its two marks; both were counted.
SPOKEN_UNIT_TOKENS = 32
TILE_TOKENS = 66
# Room for the prompt and the voice in it.
PROMPT_TOKENS = 512
# Prompt that the model was trained with.
DEFAULT_PROMPT = "Streaming Omni Conversation."
# A reference voice is a few seconds; a minute would fill a tenth of the context.
VOICE_S = (0.5, 60.0)

S = TypeVar("S", bound=BaseModel)


class SamplingSettings(StrictModel):
    """Sampling settings that every host of the model takes with each unit."""

    decode_mode: Literal["sampling", "greedy"] = Field("sampling", description="method of choosing tokens")
    temperature: float = Field(0.7, gt=0, le=2, description="sampling temperature of the language model")
    top_k: int = Field(
        20, ge=1, le=1_000, description="likeliest tokens of the language model to sample from"
    )
    top_p: float = Field(0.8, gt=0, le=1, description="probability mass of the language model to sample from")
    listen_prob_scale: float = Field(1.0, gt=0, le=10, description="factor on the score of the listen token")
    listen_top_k: int | None = Field(
        None, ge=1, le=1_000, description="listen when the listen token is among this many likeliest tokens"
    )
    text_repetition_penalty: float = Field(
        1.05, ge=1, le=2, description="penalty on text that was generated already"
    )
    text_repetition_window_size: int = Field(
        512, ge=1, le=8_192, description="tokens over which repetition is counted"
    )
    length_penalty: float = Field(1.1, ge=0.1, le=5, description="above 1: longer turns")
    max_slice_nums: int = Field(1, ge=1, le=9, description="tiles of a picture in addition to its overview")


class SessionSettings(SamplingSettings):
    """Settings of a conversation, with those that only our own worker takes."""

    max_new_speak_tokens_per_chunk: int = Field(
        20, ge=2, le=200, description="tokens of the language model per unit"
    )
    force_listen_count: int = Field(
        3, ge=0, le=100, description="units at the start of a conversation in which the model only listens"
    )
    ls_mode: Literal["explicit", "implicit"] = Field(
        "explicit", description="explicit: the token that ends a unit stays in the context"
    )
    generate_audio: bool = Field(True, description="false: text only")
    tts_temperature: float = Field(0.8, gt=0, le=2, description="sampling temperature of the voice")
    batch_vision_feed: bool = Field(
        False, description="process all tiles in one step: faster, with slightly different numbers"
    )


class ContextWindowSettings(StrictModel):
    """Bounds of the context. The names are the model's."""

    sliding_window_mode: Literal["basic", "context", "off"] = Field(
        "basic",
        description="basic: the oldest units are dropped; context: their words are kept; off: the context "
        "fills up",
    )
    basic_window_high_tokens: int = Field(
        4_000, ge=256, le=32_768, description="context size above which units are dropped"
    )
    basic_window_low_tokens: int = Field(
        3_500, ge=128, le=32_768, description="context size after units are dropped"
    )
    context_previous_max_tokens: int = Field(
        500, ge=0, le=8_192, description="tokens of words that are kept from dropped units"
    )
    context_max_units: int = Field(24, ge=2, le=1_000, description="newest units that are kept unchanged")

    @model_validator(mode="after")
    def _low_is_below_high(self) -> "ContextWindowSettings":
        if self.basic_window_low_tokens >= self.basic_window_high_tokens:
            raise ValueError("basic_window_low_tokens must be below basic_window_high_tokens")
        return self


class MiniCpmOSettings(BaseModel):
    """Worker with a model of its own, its environment and deadlines."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())

    model: str = Field(min_length=1, description="directory or hub id of the weights and the model's code")
    revision: str | None = Field(
        None, description="revision of the hub id; pin it, because the code of the revision is executed"
    )
    python: str = Field(
        "", description="Python executable of the worker's environment; empty: the one that runs this process"
    )
    device: str = Field("cuda", min_length=1, description="device, in the notation of torch")
    dtype: Literal["bfloat16", "float16", "float32"] = "bfloat16"
    attn_implementation: Literal["sdpa", "flash_attention_2", "eager"] = "sdpa"
    chunk_ms: int = Field(
        1_000, ge=200, le=2_000, description="length of a unit; the model was trained with 1000"
    )
    sees: bool = Field(True, description="false: the vision encoder is not loaded")
    frames_per_unit: int = Field(
        1,
        ge=1,
        le=8,
        description="expected pictures per unit, from which the end of the context is estimated",
    )
    window: ContextWindowSettings = ContextWindowSettings()
    context_tokens: int = Field(
        8_192, ge=1_024, le=65_536, description="size of the model's context without a window"
    )
    voice: Path | None = Field(
        None, description="WAV with the voice to imitate when the caller's side supplies none"
    )
    history_chars: int = Field(
        2_000, ge=0, le=20_000, description="characters of the earlier conversation that a new context gets"
    )
    session: SessionSettings = SessionSettings()
    load_timeout_s: float = Field(600, gt=0, le=7_200, description="longest time to load the weights")
    warm_up: bool = Field(
        True,
        description="a unit of silence is processed when the weights are loaded, also by a worker that is "
        "started again: what is compiled or read at the first use does not delay the first conversation",
    )
    prepare_timeout_s: float = Field(20, gt=0, le=600, description="longest time to prepare a conversation")
    unit_timeout_s: float = Field(5, gt=0, le=60, description="longest time to process a unit")
    close_timeout_s: float = Field(
        5, gt=0, le=60, description="time to close, after which the worker is killed"
    )


def merged(defaults: S, settings: Mapping[str, Any], *, engine: str) -> S:
    """Return a conversation's settings merged over the deployment's.

    Raises:
        ConfigError: a setting is unknown or out of range.
    """
    try:
        return type(defaults).model_validate(defaults.model_dump(exclude_unset=True) | dict(settings))
    except ValidationError as error:
        raise ConfigError(f"{engine}: {error.error_count()} settings are wrong: {error}") from error


def context_units(tokens: int, *, max_slice_nums: int, frames_per_unit: int) -> int:
    """Return the number of units after which a context of ``tokens`` is full, if each unit speaks.

    Args:
        tokens: size of the context.
        max_slice_nums: as in ``SamplingSettings``; above 1 a picture has an overview in addition.
        frames_per_unit: pictures of a unit; 0 for audio only.
    """
    tiles = 1 if max_slice_nums == 1 else 1 + max_slice_nums
    unit_tokens = SPOKEN_UNIT_TOKENS + frames_per_unit * tiles * TILE_TOKENS
    return max(1, (tokens - PROMPT_TOKENS) // unit_tokens)


def read_voice(path: Path) -> np.ndarray:
    """Return the reference voice in a file: float32, (samples,), at 16 kHz.

    Raises:
        ConfigError: the file cannot be read, or is not a valid voice.
    """
    try:
        audio, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    except (OSError, soundfile.LibsndfileError) as error:
        raise ConfigError(f"cannot read a voice from {path.name}: {error}") from error
    return checked_voice(soxr.resample(audio.mean(axis=1), rate_hz, INPUT_RATE_HZ).astype(np.float32))


def checked_voice(audio: np.ndarray) -> np.ndarray:
    """Return a reference voice after validation: float32, (samples,), at 16 kHz.

    Raises:
        ConfigError: another shape or dtype, too short, too long, or not finite.
    """
    if audio.ndim != 1 or audio.dtype != np.float32 or not np.isfinite(audio).all():
        raise ConfigError(f"expected a voice of finite float32, (samples,), got {audio.dtype}, {audio.shape}")
    length_s = len(audio) / INPUT_RATE_HZ
    if not VOICE_S[0] <= length_s <= VOICE_S[1]:
        raise ConfigError(f"the voice lasts {length_s:.1f} s; expected {VOICE_S[0]:g} to {VOICE_S[1]:g} s")
    return audio


def with_history(prompt: str, history: tuple[tuple[str, str], ...], chars: int) -> str:
    """Return a prompt with the newest ``chars`` of the history."""
    prompt = prompt or DEFAULT_PROMPT
    lines = "\n".join(f"{role}: {text}" for role, text in history)[-chars:] if chars else ""
    return f"{prompt}\n\nprevious:\n{lines}" if lines else prompt
