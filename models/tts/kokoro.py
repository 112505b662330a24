"""Kokoro in this process, through kokoro_onnx: a neural voice, loaded once and shared by all calls.

The library's tokenizer reads the text (espeak-ng, with a lock of its own), and its model synthesises one
window of phonemes at a time in the calling thread. ``models.tts.windows`` describes slow sinks and stops. The
sessions' threads are bounded. Files are never downloaded here.

Word times are exact when the export reports durations (kokoro_onnx makes such exports; the library recognises
them by an output named ``duration``). The file that ``make models`` downloads, kokoro-v1.0.onnx, reports
none: the times are then estimated in proportion to the phonemes of a window, and marked so.
"""

import ctypes
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np
from kokoro_onnx import Kokoro
from kokoro_onnx.config import SAMPLE_RATE
from kokoro_onnx.session import resolve_providers
from pydantic import Field, field_validator

from parley.core.errors import ConfigError, EngineError
from parley.core.files import MODELS_DIR, require_files
from parley.models.tts.windows import PhonemizedTts, Window, WindowSettings, open_session

ENGINE = "kokoro"
# Languages of Kokoro 1.0's voices, with espeak-ng's names; a region that is missing is read as its language.
_LANGUAGES = {
    "en": "en-us",
    "en-gb": "en-gb",
    "es": "es",
    "fr": "fr-fr",
    "hi": "hi",
    "it": "it",
    "ja": "ja",
    "pt": "pt-br",
    "zh": "cmn",
    "cmn": "cmn",
}
# espeak-ng marks words that it reads in another language, "(en)"; the library leaves the letters in.
_LANGUAGE_FLAG = re.compile(r"\([^()]*\)")


class KokoroSettings(WindowSettings):
    """Settings of the Kokoro voice.

    Attributes:
        models_dir: folder in which ``make models`` puts files.
        voice: a name in the voices file.
        language: BCP 47; should be the voice's own.
        threads: threads of one run of the network; with several calls speaking, each run has as many.
    """

    models_dir: Path = MODELS_DIR
    voice: str = Field(default="af_heart", min_length=1)
    language: str = "en-US"
    threads: int = Field(default=2, ge=1, le=16)

    @field_validator("language")
    @classmethod
    def _is_spoken(cls, language: str) -> str:
        if _espeak_language(language) is None:
            raise ValueError(f"no voice speaks {language!r} (known: {', '.join(_LANGUAGES)})")
        return language

    @property
    def files(self) -> tuple[Path, Path]:
        """Files of the model and of the voices."""
        folder = self.models_dir / "kokoro"
        return folder / "kokoro-v1.0.onnx", folder / "voices-v1.0.bin"

    def check(self) -> None:
        """Check that the files exist, as ``core.files.Checked`` requires."""
        require_files(ENGINE, *self.files)


class KokoroTts(PhonemizedTts):
    """Voice by Kokoro. Thread-safe; synthesis of several calls runs in parallel.

    Args:
        settings: the voice and its manner.

    Raises:
        ConfigError: a file is missing, or the voice is not in the voices file; lists those that are.
        EngineError: a file cannot be loaded, or is not Kokoro's.
    """

    engine = ENGINE
    rate_hz = SAMPLE_RATE

    def __init__(self, settings: KokoroSettings | None = None) -> None:
        chosen = settings or KokoroSettings()
        chosen.check()
        super().__init__(chosen, language=chosen.language)
        model, voices = chosen.files
        _load_system_espeak()
        session = open_session(ENGINE, model, chosen.threads, resolve_providers())
        try:
            self._kokoro = Kokoro.from_session(session, str(voices))
            known = tuple(self._kokoro.get_voices())
        except Exception as error:  # numpy, zipfile and the library raise different types
            raise EngineError(f"cannot load {voices}", engine=ENGINE, retryable=False) from error
        if chosen.voice not in known:
            raise ConfigError(f"{ENGINE!r} has no voice {chosen.voice!r}", known=known)
        # A copy, because the library reads its file of voices on every access.
        self._style = np.array(self._kokoro.get_voice_style(chosen.voice))
        self._language = _espeak_language(chosen.language) or "en-us"
        self._speed = chosen.speed
        self._warm_up()

    def _phonemize(self, text: str) -> Sequence[str]:
        phonemes = self._kokoro.tokenizer.phonemize(text, self._language)
        return " ".join(_LANGUAGE_FLAG.sub("", phonemes).split())

    def _infer(self, phonemes: Sequence[str]) -> Window:
        # Trimming and pauses are off: both would move the audio away from the durations.
        audio, _, timings = self._kokoro.create_timed(
            "".join(phonemes),
            self._style,
            self._speed,
            self._language,
            is_phonemes=True,
            trim=False,
            sentence_pause=0,
            clause_pause=0,
        )
        edges = None
        if len(timings) == len(phonemes):
            seconds = [*(timing.start for timing in timings), timings[-1].end]
            edges = np.round(np.array(seconds) * SAMPLE_RATE).astype(np.int64)
        return Window((np.asarray(audio, dtype=np.float32),), len(audio), edges)


def _load_system_espeak() -> None:
    """Load the operating system's espeak-ng, if there is one, before the library's own copy.

    The dynamic loader takes both for the same, by their SONAME: ``models.tts.espeak`` would get the copy,
    which finds no voices.
    """
    with suppress(OSError):
        ctypes.CDLL("libespeak-ng.so.1")


def _espeak_language(language: str) -> str | None:
    """Return espeak-ng's name for a BCP 47 tag, or None when no voice speaks it."""
    tag = language.lower().replace("_", "-")
    return _LANGUAGES.get(tag) or _LANGUAGES.get(tag.partition("-")[0])
