"""hibari in this process, the English voice of a fresh installation: neural, its files are in its package.

Decides how the library is used: its front end reads the text, its network makes the spectrum of one window of
phonemes at a time, its signal processing makes samples of that in two chunks, so that the first 250 ms are
heard while the rest is made; all in the calling thread (``models.tts.windows`` says what happens when the
sink is slow or says no). Loaded once, shared by all calls.
Nothing is ever fetched: the package can fetch further voices, which are not used here.

Word times are exact. The network expands each phoneme to a whole number of frames and keeps those numbers to
itself; an addition of 34 bytes to the network in memory makes them an output. The front end keeps the spaces
of its text, so each phoneme belongs to one written word.

The same text gives the same samples: the noise of breath and hisses begins anew with each window.
"""

import hashlib
import importlib.util
import json
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import EngineError
from core.media import ms_to_samples
from models.tts.phonemes import PlacedWord, readable_text, sounds
from models.tts.spoken_text import SpokenWord
from models.tts.windows import Window, WindowedTts, WindowSettings, open_session

ENGINE = "hibari"
PACKAGE = "hibari-tts==0.2.1"
# SHA-256 of what the package reads for this voice. A file that differs may speak otherwise, or name its
# tensors otherwise: then another voice is better than a guess.
FILES = {
    "hibari.onnx": "5f70741d4e900f4e85d0037498736cc1b3e1b9a63a13546a5da1e63abf4fccd8",
    "lexicon_us_gold.json.gz": "63ae94f8ef0e906d5b24fe9b59ffcbd1529aca5686a774610e43973cbaa86ad2",
    "lexicon_us_silver.json.gz": "c4c2546ebf1eb07010331e7ef785a431aa17ba8e7bfb6b4af8d654ee96a71fd3",
    "normalize.json": "d478ff05404bc43ac3e0468e306674e51085f1b1afc94cdef7c7ea4fb0d56bd8",
    "oov.json": "b462e6e5dbdf0e7346c732385d0dd844f612f1770871441c56932bff4ca75d8c",
    "oov.onnx": "d3cfd8122c5f172a98c8de38268bf1213ee09f2c2ae4df6e055fc6532590fe76",
    "tagger.json.gz": "d2da7502284bbbe45d49e0b7ce3ce67bdab82254150f4317f1b8559b4d38d0eb",
    "tokenizer_exceptions.json": "ddf3a3da07bdcf5144270ea4530191d8580fb4fd6f5ae93296e87916e795659a",
    "vocab.json": "70abefbe8a1c8865e43e0a43bbdc25b91a33e4aa053479d443ccf23e20a59e5d",
    "voices.json": "f8b7657ecd0e0e362d3403e99538c0e5bfe20d6a903dfcd04c772b2c73abb204",
}
_NETWORK, _SYMBOLS = "hibari.onnx", "vocab.json"
# The tensor with the frames of each phoneme, behind which the network expands them: int64, (phonemes,).
_FRAMES = "/Cast_32_output_0"
_PADDING = 0
_NOISE_SEED = 0
# A phoneme is heard before its frames, and the beginning of a word in the space before it. Fitted to a forced
# alignment (PocketSphinx, 20 sentences), the same at 0.7 and 1.5 times the speed: without the two a word
# begins 80 ms late, with them it is right to 10 ms in the median, and so are flite's own times by that.
_EARLY_MS = 35
# 3 dB. The loudest of 150 clauses of the example documents peaks at -0.9 dBFS with it.
_GAIN = 1.4
# Frames on either side of a frame that hold some of its samples.
_REACH = 2
# 250 ms.
_EARLY_FRAMES = 20
# The front end reads "A" as the article, and takes phonemes in this form for a word.
_LETTER_A = "[A](/ˈA/)"
# Has no phonemes.
_SILENT = "_"


class HibariSettings(WindowSettings):
    """Settings of the hibari voice."""


class HibariTts(WindowedTts):
    """US English by hibari. Thread-safe; synthesis of several calls runs in parallel.

    Args:
        settings: the manner of the voice.

    Raises:
        EngineError: the package or one of its files is missing or is not the one that is known here.
    """

    engine = ENGINE
    rate_hz = 24_000

    def __init__(self, settings: HibariSettings | None = None) -> None:
        chosen = settings or HibariSettings()
        super().__init__(chosen, english=True)
        files = read_files(_assets())
        try:
            from hibari import dsp
            from hibari.g2p import G2P

            self._dsp: Any = dsp
            self._g2p: Any = G2P()
            # Opens the network for unknown words now: two threads could both find it missing later.
            self._g2p.oov("hibari")
            self._ids: dict[str, int] = json.loads(files[_SYMBOLS])
        except Exception as error:  # the package's errors have no root of their own
            raise EngineError(
                f"cannot load {PACKAGE}: {type(error).__name__}", engine=ENGINE, retryable=False
            ) from error
        self._session = open_session(
            ENGINE, with_output(files[_NETWORK], _FRAMES), chosen.threads, ["CPUExecutionProvider"]
        )
        self._speed = np.array([chosen.speed], dtype=np.float32)
        self._warm_up()

    def _place(self, words: Sequence[SpokenWord]) -> tuple[Sequence[str], tuple[PlacedWord, ...]]:
        tokens = self._g2p.phonemize_tokens(self._g2p.tokenize(_front_end_text(readable_text(words))))
        phonemes: list[str] = []
        # Index after the last phoneme of each spoken token: a space in the text ends one.
        ends: list[int] = []
        for token in tokens:
            phonemes += [phoneme for phoneme in token.phonemes or "" if phoneme in self._ids]
            if token.whitespace:
                ends.append(len(phonemes))
                if phonemes and phonemes[-1] != " ":
                    phonemes.append(" ")
        ends.append(len(phonemes))
        if len(ends) != sum(len(word.spoken) for word in words):
            raise ValueError("the front end lost a word")
        return phonemes, _placed(phonemes, words, ends)

    def _infer(self, phonemes: Sequence[str]) -> Window:
        ids = [_PADDING, *(self._ids[phoneme] for phoneme in phonemes), _PADDING]
        *parts, frames = self._session.run(
            None, {"ids": np.array([ids], dtype=np.int64), "speed": self._speed}
        )
        ends = np.cumsum(frames)
        spectrum = Spectrum(self._dsp, *(part[0] for part in parts))
        # The frames before the first phoneme are silent, and the first piece is made of the few after them.
        early = int(ends[0]) * spectrum.frames // int(ends[-1]) + _EARLY_FRAMES
        return Window(spectrum.chunks(early), spectrum.samples, _edges(phonemes, ends, spectrum.samples))


class Spectrum:
    """The spectrum of a window, and the samples of it in two chunks.

    Does what ``hibari.dsp.synth`` does, which makes all samples at once, with the functions of that module:
    pulses at the pitch and noise, each shaped by the network, and an inverse transform. The beginning of a
    window is made alone, so that it is heard while the rest is made.

    Args:
        dsp: the module.
        harmonic, phase, noisy, free, free_phase: float32, (bins, frames), as the network makes them.
        pitch_hz: float32, (frames,).
    """

    def __init__(
        self,
        dsp: Any,
        harmonic: np.ndarray,
        phase: np.ndarray,
        noisy: np.ndarray,
        free: np.ndarray,
        free_phase: np.ndarray,
        pitch_hz: np.ndarray,
    ) -> None:
        self._dsp = dsp
        self._parts = harmonic, phase, noisy, free, free_phase
        self._pitch_hz = pitch_hz
        self._noise = np.random.default_rng(_NOISE_SEED)
        self.frames = len(pitch_hz)
        self.samples = self.frames * int(dsp.HOP)

    def chunks(self, early: int) -> Iterator[np.ndarray]:
        """The samples of the first ``early`` frames, and the others; all at once when these are few."""
        hop = int(self._dsp.HOP)
        if early + 4 * _REACH >= self.frames:
            yield self._sound(0, self.frames, self._draw(self.frames))
            return
        noise = self._draw(early + _REACH)
        yield self._sound(0, early + _REACH, noise)[: early * hop]
        noise = np.concatenate([noise[-2 * _REACH :], self._draw(self.frames - early - _REACH)])
        yield self._sound(early - _REACH, self.frames, noise)[_REACH * hop :]

    def _draw(self, frames: int) -> np.ndarray:
        """The next noise: complex64, (frames, bins)."""
        bins = len(self._parts[0])
        return self._noise.standard_normal((frames, 2 * bins), dtype=np.float32).view(np.complex64)

    def _sound(self, first: int, end: int, noise: np.ndarray) -> np.ndarray:
        """Samples of the frames from ``first`` to before ``end``."""
        dsp = self._dsp
        harmonic, phase, noisy, free, free_phase = (part[:, first:end] for part in self._parts)
        # Frames hold pulses of their neighbours, too: some more on either side, which are cut off again.
        before = min(first, _REACH)
        pulses = dsp.pulses(self._pitch_hz[: end + 2 * _REACH])[(first - before) * dsp.HOP :]
        spectrum = dsp.stft(pulses, end - first + before)[:, before:]
        phase = np.tanh(phase)
        phase *= np.pi
        turned = _rotated(dsp.ex(harmonic), phase)
        turned *= spectrum
        turned += noise.T * dsp.ex(noisy)
        turned += _rotated(dsp.ex(free), free_phase)
        audio: np.ndarray = dsp.ola(turned)
        audio *= _GAIN
        return audio


def _rotated(size: np.ndarray, phase: np.ndarray) -> np.ndarray:
    """complex64 numbers of a size and a phase, without a complex exponential, which is slow."""
    turned = np.empty(size.shape, np.complex64)
    np.multiply(size, np.cos(phase), out=turned.real)
    np.multiply(size, np.sin(phase), out=turned.imag)
    return turned


def read_files(folder: Path) -> dict[str, bytes]:
    """Read the files of the voice.

    Args:
        folder: of the package's files.

    Returns:
        The content of each of ``FILES``.

    Raises:
        EngineError: one is missing, or is not the one that is known here; names it.
    """
    found: dict[str, bytes] = {}
    for name, sha256 in FILES.items():
        try:
            found[name] = (folder / name).read_bytes()
        except OSError as error:
            raise EngineError(
                f"{folder / name} cannot be read: {error.strerror}", engine=ENGINE, retryable=False
            ) from error
        if hashlib.sha256(found[name]).hexdigest() != sha256:
            raise EngineError(
                f"{folder / name} is not the file of {PACKAGE}: its SHA-256 differs",
                engine=ENGINE,
                retryable=False,
            )
    return found


def with_output(network: bytes, tensor: str) -> bytes:
    """An ONNX network that also reports one of its inner tensors of int64, as its last output.

    A reader of Protocol Buffers merges a message that comes twice: the network that is appended here holds
    nothing but a graph with one output (fields of onnx.proto: ModelProto.graph 7, GraphProto.output 12,
    ValueInfoProto.name 1 and type 2, TypeProto.tensor_type 1, Tensor.elem_type 1, INT64 7).
    """
    described = _field(1, tensor.encode()) + _field(2, _field(1, b"\x08\x07"))
    return network + _field(7, _field(12, described))


def _field(number: int, content: bytes) -> bytes:
    """A field of a message with less than 128 bytes of content."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


def _assets() -> Path:
    """The folder of the package's files, found without running the package.

    Raises:
        EngineError: it is not installed.
    """
    spec = importlib.util.find_spec("hibari")
    if spec is None or not spec.submodule_search_locations:
        raise EngineError(f"{PACKAGE} is not installed", engine=ENGINE, retryable=False)
    return Path(spec.submodule_search_locations[0]) / "assets"


def _front_end_text(text: str) -> str:
    """The text as the front end has to be given it, with the same tokens between its spaces.

    A capital "A" in the middle of a sentence is a letter and no article. Characters that stand for others
    ("½", "²", "①") are those others, and what is left of digits that are no numerals is left out: the front
    end takes them for numbers and fails.
    """
    tokens = text.split(" ")
    for index, token in enumerate(tokens):
        if index and token.rstrip(",;:.?!") == "A" and tokens[index - 1][-1] not in ".?!":
            tokens[index] = _LETTER_A + token[1:]
        elif not token.isascii():
            plain = unicodedata.normalize("NFKC", token).replace(" ", "")
            tokens[index] = "".join(c for c in plain if c.isdecimal() or not c.isdigit()) or _SILENT
    return " ".join(tokens)


def _edges(phonemes: Sequence[str], ends: np.ndarray, length: int) -> np.ndarray:
    """Return the sample from which each phoneme is heard; see ``Window.edges``.

    ends: int64, (phonemes + 2,), frames up to the end of each, padding included. length: samples.
    """
    edges = ends[:-1] * (length // int(ends[-1])) - ms_to_samples(_EARLY_MS, HibariTts.rate_hz)
    space: int | None = None
    for index, phoneme in enumerate(phonemes):
        if phoneme == " ":
            space = index
        elif space is not None:
            edges[index] = edges[space]
            space = None if sounds(phoneme) else space
    return np.maximum(edges, 0)


def _placed(
    phonemes: Sequence[str], words: Sequence[SpokenWord], ends: Sequence[int]
) -> tuple[PlacedWord, ...]:
    """The place of each word; one that has no sound lies where the next sound begins."""
    sounding = [index for index, phoneme in enumerate(phonemes) if sounds(phoneme)]
    if not sounding:
        return ()
    placed = []
    first = token = 0
    for word in words:
        token += len(word.spoken)
        after = bisect_left(sounding, ends[token - 1], lo=first)
        start = sounding[min(first, len(sounding) - 1)]
        end = sounding[after - 1] + 1 if after > first else start
        placed.append(PlacedWord(word.written, start, end, estimated=False))
        first = after
    return tuple(placed)
