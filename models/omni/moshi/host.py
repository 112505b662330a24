"""Weights of Moshi, loaded once and shared by all conversations.

Validates the model (80 ms frames, a codec that streams, no weight missing), selects device and number format,
and bounds the number of conversations. The codec stays in float32: its codes are decisions between near
vectors. Files are never downloaded here.

Several engines may run at the same time in threads of their own, because the modules keep no state of a
conversation. The library creates the codebooks lazily, so they are created here before any engine exists.
"""

import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from transformers import MoshiConfig, MoshiForConditionalGeneration, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

from parley.core.errors import CapacityError, ConfigError, EngineError
from parley.models.library_internals import keep_exact
from parley.models.omni import OmniEngine
from parley.models.omni.moshi.codec import DecoderStream, EncoderStream, check_codec
from parley.models.omni.moshi.settings import MoshiSettings

if TYPE_CHECKING:
    from parley.models.omni.moshi.engine import MoshiEngine

UNIT_MS = 80
# Units of silence that are encoded before its codes are taken, by which time the effect of the start is gone.
SILENCE_UNITS = 25


class Weights:
    """Data that all conversations share and none of them changes.

    Args:
        settings: model, device and bounds.

    Raises:
        ConfigError: the directory or the device does not exist.
        EngineError: the model cannot be loaded, is not a Moshi, or lacks weights.
    """

    def __init__(self, settings: MoshiSettings) -> None:
        path = settings.path()
        self.engine = settings.engine
        self.device = _device(settings.device, self.engine)
        if settings.threads is not None:
            torch.set_num_threads(settings.threads)
        self.model = _load_model(path, self.device, _dtype(settings.dtype, self.device), self.engine)
        self.codec = self.model.audio_encoder
        check_codec(self.codec)
        config = self.model.config
        self.rate_hz: int = config.audio_encoder_config.sampling_rate
        self.unit_samples: int = config.audio_encoder_config.frame_size
        if self.unit_samples * 1000 != UNIT_MS * self.rate_hz:
            raise EngineError(
                f"a frame of {self.unit_samples} samples at {self.rate_hz} Hz is not {UNIT_MS} ms",
                engine=self.engine,
                retryable=False,
            )
        own_window = min(config.sliding_window, config.max_position_embeddings)
        self.window: int = min(settings.window_units or own_window, own_window)
        for token in (settings.text_padding_id, settings.text_end_of_padding_id):
            if token >= config.vocab_size:
                raise ConfigError(f"{self.engine!r} has no text token {token}: there are {config.vocab_size}")
        self.padding_id = settings.text_padding_id
        self.tokenizer = tokenizer = _load_tokenizer(path, self.engine)
        pieces = tokenizer.convert_ids_to_tokens(list(range(min(len(tokenizer), config.vocab_size))))
        self.pieces: tuple[str, ...] = (*pieces, *[""] * (config.vocab_size - len(pieces)))
        self.silent: frozenset[int] = frozenset(
            (settings.text_padding_id, settings.text_end_of_padding_id, *tokenizer.all_special_ids)
        )
        self.silence = self._silence()

    @torch.inference_mode()
    def _silence(self) -> Tensor:
        """Return the codes of silence, int64, (codebooks,). Also initialises the library's lazy parts."""
        stream = EncoderStream(self.codec, self.model.config.num_codebooks)
        nothing = torch.zeros(self.unit_samples, device=self.device)
        for _ in range(SILENCE_UNITS):
            codes = stream.encode(nothing)
        DecoderStream(self.codec).decode(codes)
        return codes[:, -1].clone()


class MoshiHost:
    """Host with shared weights; implements ``OmniHost``.

    A conversation counts from ``open_engine``, or a later ``prepare``, until its ``cleanup``. An engine that
    begins anew gives up its place for a moment; if another takes it, ``prepare`` is refused.

    Args:
        settings: model, device and bounds.

    Raises:
        ConfigError: see ``Weights``.
        EngineError: see ``Weights``.
    """

    def __init__(self, settings: MoshiSettings | None = None) -> None:
        self._settings = settings or MoshiSettings()
        self.sessions = self._settings.sessions
        self.takes_frames = False
        self._weights: Weights | None = Weights(self._settings)
        # Weak references: an engine that is dropped without ``cleanup`` frees its place, too.
        self._open: weakref.WeakSet[MoshiEngine] = weakref.WeakSet()
        self._lock = threading.Lock()

    def open_engine(self) -> OmniEngine:
        """Return an engine for one conversation.

        Raises:
            CapacityError: the limit of open engines is reached.
            EngineError: the host is closed.
        """
        if self._weights is None:
            raise EngineError("the host is closed", engine=self._settings.engine, retryable=False)
        engine = self._engine_of(self._weights)
        self.admit(engine)
        return engine

    def _engine_of(self, weights: Weights) -> "MoshiEngine":
        """Return an engine for one conversation; a variant of Moshi returns its own."""
        from parley.models.omni.moshi.engine import MoshiEngine  # imports this module, too

        return MoshiEngine(self, weights, self._settings.talk)

    def admit(self, engine: "MoshiEngine") -> None:
        """Count an engine as having a conversation; repeated calls have no effect. Thread-safe.

        Raises:
            CapacityError: other engines have reached the limit of conversations.
        """
        with self._lock:
            others = len(self._open - {engine})
            if self.sessions is not None and others >= self.sessions:
                raise CapacityError(
                    f"{self._settings.engine}: all {others} conversations are in use", limit=self.sessions
                )
            self._open.add(engine)

    def dismiss(self, engine: "MoshiEngine") -> None:
        """Count an engine as having no conversation. Thread-safe."""
        with self._lock:
            self._open.discard(engine)

    def close(self) -> None:
        """Release the weights. No engine may be open: an open one keeps them until it is dropped."""
        self._weights = None
        if torch.cuda.is_initialized():
            torch.cuda.empty_cache()


def _device(name: str, engine: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"{engine!r} is set to run on {name}, but there are {torch.cuda.device_count()} such devices"
        )
    return device


def _dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtype = getattr(torch, name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def _load_model(
    path: Path, device: torch.device, dtype: torch.dtype, engine: str
) -> MoshiForConditionalGeneration:
    # The progress bar would be drawn into the log of a server.
    transformers_logging.disable_progress_bar()
    try:
        raw, _ = MoshiConfig.get_config_dict(path, local_files_only=True)
        if raw.get("model_type") != MoshiConfig.model_type:
            raise EngineError(
                f"{path} is not a Moshi model: {raw.get('model_type')}", engine=engine, retryable=False
            )
        model, loading = keep_exact(MoshiForConditionalGeneration, "audio_encoder").from_pretrained(
            path, dtype=dtype, local_files_only=True, output_loading_info=True
        )
        # The library initialises missing weights at random.
        if missing := sorted(loading["missing_keys"]):
            raise EngineError(
                f"{path} lacks {len(missing)} weights, among them {missing[0]}",
                engine=engine,
                retryable=False,
            )
        return model.to(device).eval().requires_grad_(False)
    except EngineError:
        raise
    except Exception as error:  # the library, safetensors, torch and file access raise different types
        raise EngineError(f"cannot load {path}", engine=engine, retryable=False) from error


def _load_tokenizer(path: Path, engine: str) -> PreTrainedTokenizerFast:
    try:
        return PreTrainedTokenizerFast.from_pretrained(path, local_files_only=True)
    except Exception as error:  # as above
        raise EngineError(f"cannot load the tokenizer of {path}", engine=engine, retryable=False) from error
