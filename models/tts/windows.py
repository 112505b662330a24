"""Base of voices whose network makes one window of phonemes at a time: hibari, Kokoro, Piper.

A clause is converted to words, phonemes, windows, audio and pieces. A window is a whole run of the network,
so the first audio comes after the first run, and a clause is cut at its punctuation to make that early.
Pieces are at most ``PIECE_MS``. A sink that returns False ends the clause there, and no further window is
made; a run that has begun is finished, because the network cannot be stopped. Runs in the calling thread,
without a lock of its own: sessions are shared by all calls.

Word times are exact where the model reports the duration of each phoneme. Otherwise they are distributed over
the audible part of their window in proportion to the phonemes and marked as estimated.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import onnxruntime
from pydantic import Field, model_validator

from parley.core.errors import EngineError
from parley.core.media import WordTime, float_to_pcm16, ms_to_samples, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.language.text_normalization import PronouncedWord
from parley.models.tts import SpeechPiece
from parley.models.tts.edges import EdgeTrimmer
from parley.models.tts.phonemes import (
    CLAUSE_MARKS,
    SENTENCE_MARKS,
    WordPhonemes,
    cut_windows,
    estimated_edges,
    place_words,
    readable_text,
    readable_words,
)

PIECE_MS = 40
# Longest silence kept between two windows, by the mark that ends the first, as in kokoro_onnx.
_SENTENCE_PAUSE_MS = 250
_CLAUSE_PAUSE_MS = 100
_WORD_PAUSE_MS = 20
_WARM_UP = "Hello."


class WindowSettings(StrictModel):
    """Settings of every windowed voice.

    Attributes:
        speed: 1.0 is the voice's own.
        threads: threads of one run of the network; with several calls speaking, each run has as many.
        lead_ms: silence kept before the first audible sample.
        tail_ms: silence kept, at most, after the last audible sample: the pause between two clauses.
        shortest_window: phonemes; a clause is not cut into shorter windows, which sound clipped and uneven.
        longest_window: phonemes; bounds the wait for the first audio of a clause without punctuation.
    """

    speed: float = Field(default=1.0, ge=0.5, le=2.0)
    threads: int = Field(default=1, ge=1, le=16)
    lead_ms: int = Field(default=10, ge=0, le=200)
    tail_ms: int = Field(default=150, ge=0, le=500)
    shortest_window: int = Field(default=25, ge=1, le=200)
    longest_window: int = Field(default=150, ge=20, le=500)

    @model_validator(mode="after")
    def _windows_have_room(self) -> Self:
        if self.shortest_window > self.longest_window:
            raise ValueError("shortest_window is longer than longest_window")
        return self


@dataclass(frozen=True, slots=True)
class Window:
    """Result of one run of the network.

    Attributes:
        audio: float32, (samples,), in [-1, 1], in chunks that are made when they are taken.
        samples: samples of all chunks together.
        edges: int64, (phonemes + 1,): the sample at which each phoneme begins, and the end. None when the
            model does not report it, and then there is one chunk.
    """

    audio: Iterable[np.ndarray]
    samples: int
    edges: np.ndarray | None


class WindowedTts(ABC):
    """Voice that reads phonemes window by window. Thread-safe if its two abstract methods are.

    Args:
        settings: settings of the voice.
        language: tag of the language to whose words symbols, numbers and abbreviations are converted first.
    """

    engine: ClassVar[str]
    rate_hz: int

    def __init__(self, settings: WindowSettings, *, language: str) -> None:
        self._window_settings = settings
        self._language = language

    @abstractmethod
    def _place(self, words: Sequence[PronouncedWord]) -> tuple[Sequence[str], tuple[WordPhonemes, ...]]:
        """Read the words of a clause.

        Returns:
            The phonemes of the network, with spaces and punctuation, and the place of each word in them; no
                places when nothing is audible.
        """

    @abstractmethod
    def _infer(self, phonemes: Sequence[str]) -> Window:
        """Run the network for a window; blocks for the whole run."""

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Speak ``text`` into ``sink``; see ``models.tts.TextToSpeech``.

        The times of words leave with the first piece of the chunk of audio in which they end.

        Raises:
            EngineError: the front end or the network failed.
        """
        words = readable_words(text, language=self._language)
        if not words:
            return True
        settings = self._window_settings
        phonemes, placed = self._read(words)
        if not placed:
            return True
        delivery = _Delivery(self.rate_hz, settings, phonemes, placed, sink)
        windows = cut_windows(
            phonemes, shortest=settings.shortest_window, longest=settings.longest_window, words=placed
        )
        for start, end in windows:
            window = self._run(phonemes[start:end])
            if not delivery.send(window, start, end, last=(start, end) == windows[-1]):
                return False
        return True

    def _warm_up(self) -> None:
        """Synthesise a word and drop it: this detects a wrong file, and spares the first call the
        initialisation.

        Raises:
            EngineError: see ``synthesize``.
        """
        phonemes, _ = self._read(readable_words(_WARM_UP, language=self._language))
        for _ in self._run(phonemes).audio:
            pass

    def _read(self, words: Sequence[PronouncedWord]) -> tuple[Sequence[str], tuple[WordPhonemes, ...]]:
        try:
            return self._place(words)
        except Exception as error:  # the library's errors have no common base class, and may hold the text
            raise EngineError(_what("phonemes", error), engine=self.engine) from error

    def _run(self, phonemes: Sequence[str]) -> Window:
        try:
            window = self._infer(phonemes)
            return replace(window, audio=self._chunks(window))
        except Exception as error:  # the errors of onnxruntime have no common base class
            raise EngineError(_what("synthesis", error), engine=self.engine) from error

    def _chunks(self, window: Window) -> Iterator[np.ndarray]:
        chunks = iter(window.audio)
        while True:
            try:
                chunk = next(chunks, None)
            except Exception as error:  # numpy's errors have no common base class
                raise EngineError(_what("synthesis", error), engine=self.engine) from error
            if chunk is None:
                return
            yield chunk


class PhonemizedTts(WindowedTts):
    """Windowed voice whose front end does not report which word a phoneme belongs to."""

    @abstractmethod
    def _phonemize(self, text: str) -> Sequence[str]:
        """Return the phonemes of a text that the network supports, with spaces and punctuation."""

    def _place(self, words: Sequence[PronouncedWord]) -> tuple[Sequence[str], tuple[WordPhonemes, ...]]:
        phonemes = self._phonemize(readable_text(words))
        return phonemes, place_words(phonemes, words, self._phonemize)


def open_session(
    engine: str, model: Path | bytes, threads: int, providers: Sequence[str]
) -> onnxruntime.InferenceSession:
    """Load a network, from a file or its content, with a bounded number of threads, shared by all calls.

    Raises:
        EngineError: the content is not a valid network.
    """
    options = onnxruntime.SessionOptions()
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.inter_op_num_threads = 1
    options.intra_op_num_threads = threads
    # Threads that spin while they wait for the next layer would take the cores from the pacing of the audio.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        return onnxruntime.InferenceSession(
            model if isinstance(model, bytes) else str(model), sess_options=options, providers=list(providers)
        )
    except Exception as error:  # the errors of onnxruntime have no common base class
        name = "its network" if isinstance(model, bytes) else model
        raise EngineError(f"cannot load {name}", engine=engine, retryable=False) from error


class _Delivery:
    """Delivery of the windows of one clause to the sink.

    Args:
        rate_hz: samples per second.
        settings: bounds of the silence that stays.
        phonemes: phonemes of the clause.
        words: their places in it.
        sink: receives the pieces.
    """

    def __init__(
        self,
        rate_hz: int,
        settings: WindowSettings,
        phonemes: Sequence[str],
        words: tuple[WordPhonemes, ...],
        sink: Callable[[SpeechPiece], bool],
    ) -> None:
        self._rate_hz = rate_hz
        self._settings = settings
        self._phonemes = phonemes
        self._words = words
        self._sink = sink
        self._sent_samples = 0

    def send(self, window: Window, start: int, end: int, *, last: bool) -> bool:
        """Deliver the audible part of a window; return False when the sink stopped it.

        Args:
            window: its chunks are taken one by one, each when the pieces of the previous one have left.
            start: index of its first phoneme.
            end: index after its last phoneme.
            last: the clause ends with it.
        """
        tail_ms = self._settings.tail_ms if last else _pause_ms(self._phonemes[end - 1])
        trimmer = EdgeTrimmer(self._rate_hz, lead_ms=self._settings.lead_ms, tail_ms=tail_ms)
        edges, estimated = window.edges, window.edges is None
        words = [word for word in self._words if start <= word.start < end]
        base_samples, taken_samples, heard_samples = self._sent_samples, 0, 0
        for chunk in window.audio:
            taken_samples += len(chunk)
            ends = taken_samples >= window.samples
            pcm = trimmer.feed(np.frombuffer(float_to_pcm16(chunk), dtype="<i2"))
            heard_samples += len(pcm)
            if not heard_samples:
                continue
            dropped_samples = trimmer.dropped_samples
            if edges is None:
                spoken = dropped_samples, dropped_samples + heard_samples
                edges = estimated_edges(self._phonemes[start:end], *spoken)
            places = edges - dropped_samples
            known = [word for word in words if ends or _place(places, word.end - start) <= heard_samples]
            # The last word ends where the window does, without the silence after it.
            places = base_samples + np.clip(places, 0, heard_samples)
            times = tuple(
                WordTime(
                    word.written,
                    samples_to_ms(_place(places, word.start - start), self._rate_hz),
                    samples_to_ms(_place(places, word.end - start), self._rate_hz),
                    estimated=estimated or word.estimated,
                )
                for word in known
            )
            del words[: len(known)]
            if not self._pieces(np.concatenate([pcm, trimmer.finish()]) if ends else pcm, times):
                return False
        return True

    def _pieces(self, pcm: np.ndarray, times: tuple[WordTime, ...]) -> bool:
        piece_samples = ms_to_samples(PIECE_MS, self._rate_hz)
        for at in range(0, max(len(pcm), 1 if times else 0), piece_samples):
            piece = pcm[at : at + piece_samples]
            self._sent_samples += len(piece)
            if not self._sink(SpeechPiece(piece.tobytes(), times if at == 0 else ())):
                return False
        return True


def _place(edges: np.ndarray, index: int) -> int:
    # A word that is longer than a window may be cut.
    return int(edges[min(index, len(edges) - 1)])


def _pause_ms(last_phoneme: str) -> int:
    if last_phoneme in SENTENCE_MARKS:
        return _SENTENCE_PAUSE_MS
    return _CLAUSE_PAUSE_MS if last_phoneme in CLAUSE_MARKS else _WORD_PAUSE_MS


def _what(step: str, error: Exception) -> str:
    # Only the type: the message of the library may hold the text of the clause.
    return f"{step} failed: {type(error).__name__}"
