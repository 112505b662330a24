"""Supertonic in this process, through the package supertonic: a neural voice of 31 languages, 44.1 kHz.

Four networks make a clause: the duration predictor its length, the text encoder an embedding of its
characters, the vector estimator, in ``steps`` runs, a latent from noise, and the vocoder the audio. The
package reads the text, and runs the networks in the calling thread on sessions that are opened here, with
bounded threads and without its downloads. Loaded once, shared by all calls.

The network reads characters and no phonemes, so that the windows of ``models.tts.windows`` are of characters
here. The duration predictor reports one length for the whole window: the times of words are estimated in
proportion to their characters, and marked so. The noise differs each time, and so does the audio.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Literal, Self, TypeVar

import numpy as np
from onnxruntime import InferenceSession
from pydantic import Field, field_validator, model_validator
from supertonic import SUPPORTED_LANGUAGES, Style, UnicodeProcessor
from supertonic.config import (
    CFG_REL_PATH,
    DEFAULT_SPEED,
    DEFAULT_TOTAL_STEPS,
    DP_ONNX_REL_PATH,
    MAX_SPEED,
    MIN_SPEED,
    TEXT_ENC_ONNX_REL_PATH,
    UNICODE_INDEXER_REL_PATH,
    VECTOR_EST_ONNX_REL_PATH,
    VOCODER_ONNX_REL_PATH,
    VOICE_STYLES_DIR,
    is_multilingual_model,
)
from supertonic.core import Supertonic
from supertonic.loader import load_configs, load_voice_style_from_json_file

from parley.core.errors import ConfigError, EngineError, ModelFileError
from parley.core.files import MODELS_DIR, require_files
from parley.core.installation import fetch_command
from parley.models.tts.windows import PhonemizedTts, Window, WindowSettings, open_session

ENGINE = "supertonic"
# Networks in the order in which the package takes them, each with the inputs that the package gives it.
_NETWORKS: dict[Path, frozenset[str]] = {
    DP_ONNX_REL_PATH: frozenset({"text_ids", "style_dp", "text_mask"}),
    TEXT_ENC_ONNX_REL_PATH: frozenset({"text_ids", "style_ttl", "text_mask"}),
    VECTOR_EST_ONNX_REL_PATH: frozenset(
        {"noisy_latent", "text_emb", "style_ttl", "text_mask", "latent_mask", "current_step", "total_step"}
    ),
    VOCODER_ONNX_REL_PATH: frozenset({"latent"}),
}
# Languages of the models before the third, by the package's documentation.
_LANGUAGES = {"supertonic": ("en",), "supertonic-2": ("en", "ko", "es", "pt", "fr")}
# Characters of a text whose support is remembered; a language has far fewer.
_REMEMBERED_CHARACTERS = 4_096
Content = TypeVar("Content")


class SupertonicSettings(WindowSettings):
    """Settings of the Supertonic voice.

    Attributes:
        models_dir: folder in which ``make models`` puts files.
        model: a generation of the voice, and the name of its folder below ``supertonic``.
        voice: the file name of a voice style without its suffix: M1 to M5 and F1 to F5 come with the model,
            and the makers' Voice Builder exports further ones.
        language: BCP 47.
        steps: runs of the vector estimator for a window: more sound better and take longer.
        speed: 1.0 is the network's own; its makers use 1.05.
        threads: threads of one run of a network; with several calls speaking, each run has as many.
    """

    models_dir: Path = MODELS_DIR
    model: Literal["supertonic", "supertonic-2", "supertonic-3"] = "supertonic-3"
    voice: str = "F1"
    language: str = "en-US"
    steps: int = Field(default=DEFAULT_TOTAL_STEPS, ge=1, le=100)
    speed: float = Field(default=DEFAULT_SPEED, ge=MIN_SPEED, le=MAX_SPEED)
    threads: int = Field(default=2, ge=1, le=16)

    @field_validator("voice")
    @classmethod
    def _is_a_name(cls, voice: str) -> str:
        # The name becomes part of a path.
        if not re.fullmatch(r"[\w-]+", voice):
            raise ValueError("expected a file name without its suffix")
        return voice

    @model_validator(mode="after")
    def _is_spoken(self) -> Self:
        known = _LANGUAGES.get(self.model, tuple(SUPPORTED_LANGUAGES))
        if _primary(self.language) not in known:
            raise ValueError(f"{self.model} does not speak {self.language!r} (known: {', '.join(known)})")
        return self

    @property
    def folder(self) -> Path:
        """Folder of the model, as its makers publish it."""
        return self.models_dir / ENGINE / self.model

    @property
    def style_file(self) -> Path:
        """File of the voice."""
        file: Path = self.folder / VOICE_STYLES_DIR / f"{self.voice}.json"
        return file

    def check(self) -> None:
        """Check the files, as ``core.files.Checked`` requires; an unknown voice lists the present ones."""
        files = [self.folder / path for path in (*_NETWORKS, CFG_REL_PATH, UNICODE_INDEXER_REL_PATH)]
        require_files(ENGINE, *files)
        known = tuple(sorted(path.stem for path in self.style_file.parent.glob("*.json")))
        if known and self.voice not in known:
            raise ConfigError(
                f"{ENGINE!r} has no voice {self.voice!r} in {self.style_file.parent}", known=known
            )
        require_files(ENGINE, self.style_file)


class SupertonicTts(PhonemizedTts):
    """Voice by Supertonic. Thread-safe; synthesis of several calls runs in parallel.

    Args:
        settings: the voice and its manner.

    Raises:
        ConfigError: a file is missing or is not Supertonic's, or the voice has no file; lists those that do.
    """

    engine = ENGINE

    def __init__(self, settings: SupertonicSettings | None = None) -> None:
        chosen = settings or SupertonicSettings()
        chosen.check()
        super().__init__(chosen, language=chosen.language)
        folder = chosen.folder
        indexer = folder / UNICODE_INDEXER_REL_PATH
        reader = _loaded(indexer, lambda: UnicodeProcessor(str(indexer)))
        sessions = [_network(folder / path, inputs, chosen.threads) for path, inputs in _NETWORKS.items()]
        self._model = _loaded(
            folder / CFG_REL_PATH, lambda: Supertonic(load_configs(folder), reader, *sessions)
        )
        self._style: Style = _loaded(
            chosen.style_file, lambda: load_voice_style_from_json_file(chosen.style_file)
        )
        self.rate_hz: int = self._model.sample_rate
        self._steps, self._speed = chosen.steps, chosen.speed
        # The first generation is English only and has no tokens of languages.
        self._token = _primary(chosen.language) if is_multilingual_model(chosen.model) else None
        self._is_supported = lru_cache(_REMEMBERED_CHARACTERS)(
            lambda character: reader.validate_text(character)[0]
        )
        try:
            self._warm_up()
        except EngineError as error:
            # Every file could be read, but they do not fit together.
            raise _altered(folder) from error

    def _phonemize(self, text: str) -> Sequence[str]:
        # The package would look an unsupported character up at index -1, the last one of the embedding.
        return "".join(character for character in text if self._is_supported(character))

    def _infer(self, phonemes: Sequence[str]) -> Window:
        audio, _ = self._model(
            ["".join(phonemes)], self._style, total_step=self._steps, speed=self._speed, lang=self._token
        )
        samples = np.asarray(audio, dtype=np.float32).reshape(-1)
        return Window((samples,), len(samples), None)


def _network(path: Path, inputs: frozenset[str], threads: int) -> InferenceSession:
    """Open a network.

    Raises:
        ModelFileError: the file is not a network, or has other inputs.
    """
    session = _loaded(path, lambda: open_session(ENGINE, path, threads, ["CPUExecutionProvider"]))
    if {each.name for each in session.get_inputs()} != inputs:
        raise _altered(path)
    return session


def _loaded(path: Path, load: Callable[[], Content]) -> Content:
    """Return what ``load`` makes of a file.

    Raises:
        ModelFileError: the content is not what the package expects; names the file.
    """
    try:
        return load()
    except (EngineError, OSError, ValueError, KeyError, TypeError) as error:
        raise _altered(path) from error


def _altered(path: Path) -> ModelFileError:
    return ModelFileError(
        f"{ENGINE!r} needs {path} as its makers publish it, but it differs: run `{fetch_command(ENGINE)}`"
    )


def _primary(language: str) -> str:
    return re.split("[-_]", language.lower())[0]
