"""Piper in this process, through piper-tts (GPL-3.0, so never a default): a small neural voice per language.

The library reads the text (espeak-ng, with a lock of its own) and runs the voice on one window of phonemes at
a time in the calling thread. ``models.tts.windows`` describes slow sinks and stops. Loaded once, shared by
all calls; the session's threads are bounded. Files are never downloaded here.

Word times are exact when the voice reports the durations of its phonemes, which requires a voice that was
patched with piper's ``patch_voice_with_alignment``. The published voices do not report them, and get times in
proportion to the phonemes of a window, marked as estimated.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime
from piper import PhonemeType, PiperConfig, PiperVoice, SynthesisConfig
from pydantic import field_validator

from parley.core.errors import ConfigError, EngineError
from parley.core.files import MODELS_DIR, require_files
from parley.models.tts.windows import PhonemizedTts, Window, WindowSettings, open_session

ENGINE = "piper"
# -1 dBFS. Voices differ in level by more than 10 dB, and piper itself normalises every sentence to full
# scale.
_PEAK = 0.89
# Audio that peaks below this is not speech and gets no more gain than audio at this peak.
_QUIETEST_PEAK = 0.05
_PADDING, _BEGIN = "_", "^"


class PiperSettings(WindowSettings):
    """Settings of the Piper voice.

    Attributes:
        models_dir: folder in which ``make models`` puts files.
        voice: the voice's file name without its suffix.
        speaker: a speaker of a voice that has several; None is its first.
        use_cuda: run on the accelerator.
    """

    models_dir: Path = MODELS_DIR
    voice: str = "en_US-lessac-medium"
    speaker: str | None = None
    use_cuda: bool = False

    @field_validator("voice")
    @classmethod
    def _is_a_name(cls, voice: str) -> str:
        # The name becomes part of a path.
        if not re.fullmatch(r"[\w-]+", voice):
            raise ValueError("expected a file name without its suffix")
        return voice

    @property
    def files(self) -> tuple[Path, Path]:
        """Files of the voice and of its description."""
        folder = self.models_dir / "piper"
        return folder / f"{self.voice}.onnx", folder / f"{self.voice}.onnx.json"

    def check(self) -> None:
        """Check the files, as ``core.files.Checked`` requires; an unknown voice lists the present ones."""
        model, _ = self.files
        known = tuple(sorted(path.stem for path in model.parent.glob("*.onnx")))
        if known and self.voice not in known:
            raise ConfigError(f"{ENGINE!r} has no voice {self.voice!r} in {model.parent}", known=known)
        require_files(ENGINE, *self.files)
        if self.use_cuda and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            raise ConfigError(f"{ENGINE!r}: use_cuda needs the package onnxruntime-gpu")


class PiperTts(PhonemizedTts):
    """Voice by Piper. Thread-safe; synthesis of several calls runs in parallel.

    Args:
        settings: the voice and its manner.

    Raises:
        ConfigError: a file is missing, the speaker is unknown, or the voice needs a front end of another
            package.
        EngineError: a file cannot be loaded, or is not Piper's.
    """

    engine = ENGINE

    def __init__(self, settings: PiperSettings | None = None) -> None:
        chosen = settings or PiperSettings()
        chosen.check()
        model, description = chosen.files
        try:
            config = PiperConfig.from_dict(json.loads(description.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise EngineError(f"cannot read {description}", engine=ENGINE, retryable=False) from error
        # The other front ends need further packages, or download models when they are first used.
        if config.phoneme_type not in (PhonemeType.ESPEAK, PhonemeType.TEXT):
            raise ConfigError(
                f"{ENGINE!r} does not support {config.phoneme_type.value} here: voice {chosen.voice!r}"
            )
        speakers = config.speaker_id_map
        if chosen.speaker is not None and chosen.speaker not in speakers:
            raise ConfigError(
                f"{ENGINE!r}: voice {chosen.voice!r} has no speaker {chosen.speaker!r}", known=tuple(speakers)
            )
        super().__init__(chosen, language=config.espeak_voice)
        self.rate_hz = config.sample_rate
        provider = "CUDAExecutionProvider" if chosen.use_cuda else "CPUExecutionProvider"
        self._voice = PiperVoice(open_session(ENGINE, model, chosen.threads, [provider]), config)
        self._manner = SynthesisConfig(
            speaker_id=None if chosen.speaker is None else speakers[chosen.speaker],
            length_scale=config.length_scale / chosen.speed,
        )
        self._warm_up()

    def _phonemize(self, text: str) -> Sequence[str]:
        known = self._voice.config.phoneme_id_map
        phonemes: list[str] = []
        for sentence in self._voice.phonemize(text):
            if phonemes:
                phonemes.append(" ")
            phonemes += [phoneme for phoneme in sentence if phoneme == " " or phoneme in known]
        return phonemes

    def _infer(self, phonemes: Sequence[str]) -> Window:
        ids = self._voice.phonemes_to_ids(list(phonemes))
        made = self._voice.phoneme_ids_to_audio(ids, self._manner, include_alignments=True)
        audio, id_samples = made if isinstance(made, tuple) else (made, None)
        samples = np.asarray(audio, dtype=np.float32).reshape(-1)
        samples = samples * (_PEAK / max(_QUIETEST_PEAK, float(np.abs(samples).max(initial=0.0))))
        edges = None
        if id_samples is not None and id_samples.size == len(ids):
            edges = self._edges(phonemes, id_samples.reshape(-1), len(samples))
        return Window((samples,), len(samples), edges)

    def _edges(self, phonemes: Sequence[str], id_samples: np.ndarray, length: int) -> np.ndarray:
        """Convert samples per id to the sample at which each phoneme begins; padding belongs to the phoneme
        before it.
        """
        id_map = self._voice.config.phoneme_id_map
        padding = len(id_map[_PADDING])
        ids_of = [len(id_map.get(phoneme, ())) for phoneme in phonemes]
        counts = [len(id_map[_BEGIN]) + padding, *(ids + padding if ids else 0 for ids in ids_of)]
        ends = np.concatenate([[0], np.cumsum(id_samples)])
        result: np.ndarray = np.minimum(ends[np.cumsum(counts)], length).astype(np.int64)
        return result
