"""hibari in this process, the English voice of a fresh installation: neural, with its files in its package.

The library's front end converts the text to phonemes, and its network makes the spectrum of one window of
phonemes at a time. Its signal processing makes samples from that in two chunks, so that the first 250 ms play
while the rest is made. All of it runs in the calling thread; ``models.tts.windows`` describes slow sinks and
stops. Loaded once, shared by all calls. Nothing is ever downloaded: the package can download further voices,
which are not used here.

Word times are exact. The network expands each phoneme to a whole number of frames and does not report these
numbers; an addition of 34 bytes to the network in memory makes them an output. The front end keeps the spaces
of its text, so each phoneme belongs to one written word.

The same text has the same samples: the noise of breath and hisses begins anew with each window.
"""

import functools
import hashlib
import importlib.util
import json
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import EngineError
from parley.core.media import ms_to_samples
from parley.language.text_normalization import PronouncedWord
from parley.models.tts.phonemes import WordPhonemes, readable_text, sounds
from parley.models.tts.windows import Window, WindowedTts, WindowSettings, open_session

ENGINE = "hibari"
PACKAGE = "hibari-tts==0.2.1"
# SHA-256 of the files that the package reads for this voice. A file that differs may sound different, or name
# its tensors differently: then another voice is safer.
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
# The tensor with the frames of each phoneme, by which the network then expands them: int64, (phonemes,).
_FRAMES = "/Cast_32_output_0"
_PADDING = 0
_NOISE_SEED = 0
# A phoneme is audible before its frames, and the beginning of a word in the space before it. Fitted to a
# forced alignment (PocketSphinx, 20 sentences), the same at 0.7 and 1.5 times the speed. Without the two
# corrections a word begins 80 ms late. With them the median error is 10 ms, as it is for flite's own times.
_EARLY_MS = 35
# 3 dB. The loudest of 150 clauses of the example documents peaks at -0.9 dBFS with it.
_GAIN = 1.4
# Frames on either side of a frame that hold some of its samples.
_REACH = 2
# 250 ms.
_EARLY_FRAMES = 20
# The front end reads "A" as the article, and accepts the phonemes of a word in this form.
_LETTER_A = "[A](/ˈA/)"
# A token without phonemes.
_SILENT = "_"


class HibariSettings(WindowSettings):
    """Settings of the hibari voice."""


class HibariTts(WindowedTts):
    """US English voice by hibari. Thread-safe; synthesis of several calls runs in parallel.

    Args:
        settings: the manner of the voice.

    Raises:
        EngineError: the package or one of its files is missing or differs from the tested one.
    """

    engine = ENGINE
    rate_hz = 24_000

    def __init__(self, settings: HibariSettings | None = None) -> None:
        chosen = settings or HibariSettings()
        super().__init__(chosen, language="en")
        files = read_files(_assets())
        try:
            from hibari import dsp

            self._dsp: Any = dsp
            self._g2p = front_end()
            # Loads the network for unknown words now: two threads could both find it missing later.
            self._g2p.oov("hibari")
            self._ids: dict[str, int] = json.loads(files[_SYMBOLS])
        except Exception as error:  # the package's errors have no common base class
            raise EngineError(
                f"cannot load {PACKAGE}: {type(error).__name__}", engine=ENGINE, retryable=False
            ) from error
        self._session = open_session(
            ENGINE, with_output(files[_NETWORK], _FRAMES), chosen.threads, ["CPUExecutionProvider"]
        )
        self._speed = np.array([chosen.speed], dtype=np.float32)
        self._warm_up()

    def _place(self, words: Sequence[PronouncedWord]) -> tuple[Sequence[str], tuple[WordPhonemes, ...]]:
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
    """Spectrum of a window, converted to samples in two chunks.

    Does the work of ``hibari.dsp.synth``, which makes all samples at once, with the functions of that module.
    Pulses at the pitch and noise are each shaped by the network, followed by an inverse transform. The
    beginning of a window is made separately, so that it plays while the rest is made.

    Args:
        dsp: the module.
        harmonic, phase, noisy, free, free_phase: float32, (bins, frames), outputs of the network.
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
        """Yield the samples of the first ``early`` frames, and the others; all at once when these are few."""
        hop = int(self._dsp.HOP)
        if early + 4 * _REACH >= self.frames:
            yield self._sound(0, self.frames, self._draw(self.frames))
            return
        noise = self._draw(early + _REACH)
        yield self._sound(0, early + _REACH, noise)[: early * hop]
        noise = np.concatenate([noise[-2 * _REACH :], self._draw(self.frames - early - _REACH)])
        yield self._sound(early - _REACH, self.frames, noise)[_REACH * hop :]

    def _draw(self, frames: int) -> np.ndarray:
        """Return the next noise: complex64, (frames, bins)."""
        bins = len(self._parts[0])
        return self._noise.standard_normal((frames, 2 * bins), dtype=np.float32).view(np.complex64)

    def _sound(self, first: int, end: int, noise: np.ndarray) -> np.ndarray:
        """Return the samples of the frames from ``first`` to before ``end``."""
        dsp = self._dsp
        harmonic, phase, noisy, free, free_phase = (part[:, first:end] for part in self._parts)
        # Frames hold pulses of their neighbours, too: a few more are computed on either side and cut off
        # again.
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
    """Return complex64 numbers of a size and a phase, without a complex exponential, which is slow."""
    turned = np.empty(size.shape, np.complex64)
    np.multiply(size, np.cos(phase), out=turned.real)
    np.multiply(size, np.sin(phase), out=turned.imag)
    return turned


def read_files(folder: Path) -> dict[str, bytes]:
    """Read the files of the voice.

    Args:
        folder: folder of the package's files.

    Returns:
        The content of each of ``FILES``.

    Raises:
        EngineError: a file is missing or differs from the tested one; names it.
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
    """Return an ONNX network that also reports one of its inner tensors of int64, as its last output.

    A reader of Protocol Buffers merges a message that occurs twice. The network that is appended here holds
    only a graph with one output (fields of onnx.proto: ModelProto.graph 7, GraphProto.output 12,
    ValueInfoProto.name 1 and type 2, TypeProto.tensor_type 1, Tensor.elem_type 1, INT64 7).
    """
    described = _field(1, tensor.encode()) + _field(2, _field(1, b"\x08\x07"))
    return network + _field(7, _field(12, described))


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message with less than 128 bytes of content."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


@functools.cache
def front_end() -> Any:
    """Return the library's front end, which all voices of a process share.

    Its dictionaries take 80 MB and 0.3 s: two thirds of the memory of a voice, and the half of its loading.
    """
    from hibari.g2p import G2P

    return G2P()


def _assets() -> Path:
    """Return the folder of the package's files, without running the package.

    Raises:
        EngineError: the package is not installed.
    """
    spec = importlib.util.find_spec("hibari")
    if spec is None or not spec.submodule_search_locations:
        raise EngineError(f"{PACKAGE} is not installed", engine=ENGINE, retryable=False)
    return Path(spec.submodule_search_locations[0]) / "assets"


def _front_end_text(text: str) -> str:
    """Return the text in the form that the front end requires, with the same tokens between its spaces.

    A capital "A" in the middle of a sentence is a letter and not an article. Compatibility characters ("½",
    "²", "①") are replaced by their equivalents. Digits that remain and are not numerals are dropped, because
    the front end takes them for numbers and fails.
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
    """Return the sample from which each phoneme is audible; see ``Window.edges``.

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
    result: np.ndarray = np.maximum(edges, 0)
    return result


def _placed(
    phonemes: Sequence[str], words: Sequence[PronouncedWord], ends: Sequence[int]
) -> tuple[WordPhonemes, ...]:
    """Return the place of each word; a word without sound is placed where the next sound begins."""
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
        placed.append(WordPhonemes(word.written, start, end, estimated=False))
        first = after
    return tuple(placed)
