"""Streaming speech recognition that runs everywhere: CMU pocketsphinx, the offline floor.

In: 16 kHz audio of one utterance at a time. Out: partial texts while it is spoken, then the words with times
and confidences. It understands clear simple English and little else; say so wherever a user chooses it.

Its binding never lets go of the interpreter lock, so a 20 ms piece can stop every other thread for 0.3 s: run
it in a process of its own (``runtime.engine_process``). A decoder (about 60 MB, 0.12 s to build) decodes one
utterance at a time, so a stream borrows one from ``start`` to ``finish``: what a call owns is a few numbers,
the cepstral mean of its channel, put into whichever decoder it borrows. No decoder left is an
``EngineError``, not a wait.

The second pass (fwdflat) is off: it would add 0.1-2 s after the last word to save 3 % of the words.
"""

import threading
from pathlib import Path
from typing import Literal

import pocketsphinx
from pydantic import BaseModel, ConfigDict, Field

from core.errors import EngineError, ShapeError
from core.media import PCM_BYTES_PER_SAMPLE, WordTime, samples_to_ms
from models.stt import Transcript
from models.stt.language_model import (
    CALLER_PHRASES,
    Vocabulary,
    base_word,
    document_vocabulary,
    general_vocabulary,
    read_sentences,
    spoken_sentences,
)

ENGINE = "pocketsphinx"
RATE_HZ = 16_000
# Decoder frames last 10 ms.
FRAME_MS = 10
# Silence and noise of the decoder's filler dictionary, and sentence marks.
_FILLER_MARKS = ("<", "[", "+")


class PocketsphinxSettings(BaseModel):
    """What may be heard, and how many may speak at the same moment."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    language_model: Literal["general", "documents"] = Field(
        default="general", description="general English, or the documents' own sentences and nothing else"
    )
    common_words: int = Field(
        default=5_000,
        ge=0,
        le=80_000,
        description="commonest English words that the general model may hear; more is slower",
    )
    documents: Path | None = Field(
        default=None, description="text file or folder whose words can be heard as well"
    )
    sentences: tuple[str, ...] = Field(
        default=(), description="further text whose words can be heard as well"
    )
    cache_dir: Path = Field(
        default=Path.home() / ".cache" / "parley" / "pocketsphinx", description="where vocabularies are kept"
    )
    warm_decoders: int = Field(default=1, ge=1, le=64, description="decoders built at the start")
    max_decoders: int = Field(default=8, ge=1, le=64, description="callers who may speak at the same moment")
    max_segment_ms: int = Field(
        default=30_000,
        ge=2_000,
        le=300_000,
        description="longer utterances are decoded in parts: memory grows with the part",
    )


class PocketsphinxStt:
    """Shared decoders. Opening and using streams is thread-safe, one stream is not.

    Raises:
        ConfigError: the documents or the cache folder cannot be used.
        EngineError: pocketsphinx does not load.
    """

    rate_hz = RATE_HZ

    def __init__(self, settings: PocketsphinxSettings | None = None) -> None:
        self._settings = settings or PocketsphinxSettings()
        self._vocabulary = _vocabulary(self._settings)
        self._lock = threading.Lock()
        self._free: list[pocketsphinx.Decoder] = []
        self._built = 0
        warm = min(self._settings.warm_decoders, self._settings.max_decoders)
        self._free = [self._borrow() for _ in range(warm)]

    def open_stream(self) -> "PocketsphinxStream":
        """A new caller. Costs nothing: the decoder is borrowed when an utterance starts."""
        return PocketsphinxStream(self, self._settings.max_segment_ms * RATE_HZ // 1000)

    def _borrow(self) -> pocketsphinx.Decoder:
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._built >= self._settings.max_decoders:
                raise EngineError(f"all {self._built} decoders are listening", engine=ENGINE)
            self._built += 1
        try:
            return _build_decoder(self._vocabulary)
        except EngineError:
            with self._lock:
                self._built -= 1
            raise

    def _give_back(self, decoder: pocketsphinx.Decoder) -> None:
        with self._lock:
            self._free.append(decoder)


class PocketsphinxStream:
    """One caller. Not thread-safe."""

    def __init__(self, engine: PocketsphinxStt, max_segment_samples: int) -> None:
        self._engine = engine
        self._max_segment_samples = max_segment_samples
        self._decoder: pocketsphinx.Decoder | None = None
        # The channel's cepstral mean: learned over this caller's utterances, unknown at first.
        self._channel: str | None = None
        self._words: list[WordTime] = []
        self._partial = ""
        self._offset_ms = 0
        self._segment_samples = 0

    def start(self) -> None:
        """Begin an utterance. Discards an open one.

        Raises:
            EngineError: every decoder is in use.
        """
        self.discard()
        self._words = []
        self._partial = ""
        self._offset_ms = 0
        self._segment_samples = 0
        self._decoder = self._engine._borrow()
        self._open_segment(self._decoder)

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM at 16 kHz; a partial when the text changed.

        Raises:
            EngineError: outside an utterance, or the decoder failed.
            ShapeError: an odd number of bytes.
        """
        decoder = self._utterance()
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not whole 16-bit samples")
        self._decode(decoder, pcm)
        self._segment_samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        if self._segment_samples >= self._max_segment_samples:
            self._close_segment(decoder)
            self._open_segment(decoder)
        hypothesis = decoder.hyp()
        words = [word.text for word in self._words]
        if hypothesis:
            words.extend(spoken(hypothesis.hypstr))
        text = " ".join(words)
        if text == self._partial:
            return None
        self._partial = text
        return Transcript(text)

    def finish(self) -> Transcript:
        """End the utterance: its words with times and confidences.

        Raises:
            EngineError: outside an utterance, or the decoder failed.
        """
        decoder = self._utterance()
        try:
            self._close_segment(decoder)
        finally:
            self._release(decoder)
        words = tuple(self._words)
        confidence = sum(word.confidence for word in words) / len(words) if words else 0.0
        return Transcript(" ".join(word.text for word in words), words, confidence, final=True)

    def discard(self) -> None:
        """End the utterance without a transcript. Allowed outside one."""
        decoder = self._decoder
        if decoder is None:
            return
        try:
            decoder.end_utt()
        except RuntimeError as error:
            raise EngineError("cannot end the utterance", engine=ENGINE) from error
        finally:
            self._release(decoder)

    def close(self) -> None:
        """Release the stream."""
        self.discard()

    def _utterance(self) -> pocketsphinx.Decoder:
        if self._decoder is None:
            raise EngineError("no utterance is open", engine=ENGINE, retryable=False)
        return self._decoder

    def _decode(self, decoder: pocketsphinx.Decoder, pcm: bytes) -> None:
        try:
            decoder.process_raw(pcm, False, False)
        except RuntimeError as error:
            raise EngineError("decoding failed", engine=ENGINE) from error

    def _open_segment(self, decoder: pocketsphinx.Decoder) -> None:
        # Forgets the noise level that another caller left in this decoder. The binding calls it deprecated and
        # unnecessary; without it the same audio gets other words after another caller's noise.
        decoder.start_stream()
        if self._channel is not None:
            decoder.set_cmn(self._channel)
        else:
            decoder.set_cmn(decoder.config["cmninit"])
        decoder.start_utt()

    def _close_segment(self, decoder: pocketsphinx.Decoder) -> None:
        try:
            decoder.end_utt()
        except RuntimeError as error:
            raise EngineError("cannot end the utterance", engine=ENGINE) from error
        for segment in decoder.seg() or ():
            for text in spoken(segment.word):
                start_ms = self._offset_ms + segment.start_frame * FRAME_MS
                end_ms = self._offset_ms + (segment.end_frame + 1) * FRAME_MS
                # prob is a probability already, no logarithm; sums of many paths round above 1.
                self._words.append(WordTime(text, start_ms, end_ms, min(1.0, max(0.0, segment.prob))))
        self._channel = decoder.get_cmn(True)
        self._offset_ms += samples_to_ms(self._segment_samples, RATE_HZ)
        self._segment_samples = 0

    def _release(self, decoder: pocketsphinx.Decoder) -> None:
        self._decoder = None
        self._engine._give_back(decoder)


def spoken(text: str) -> list[str]:
    """Words of a hypothesis: no silence, noise or sentence marks, no numbers of second pronunciations."""
    return [base_word(word) for word in text.split() if not word.startswith(_FILLER_MARKS)]


def _vocabulary(settings: PocketsphinxSettings) -> Vocabulary:
    sentences = [sentence for text in settings.sentences for sentence in spoken_sentences(text)]
    if settings.documents is not None:
        sentences.extend(read_sentences(settings.documents))
    if settings.language_model == "documents":
        return document_vocabulary(sentences, settings.cache_dir)
    return general_vocabulary((*sentences, *CALLER_PHRASES), settings.common_words, settings.cache_dir)


def _build_decoder(vocabulary: Vocabulary) -> pocketsphinx.Decoder:
    try:
        decoder = pocketsphinx.Decoder(
            samprate=RATE_HZ,
            fwdflat=False,
            loglevel="FATAL",
            lm=str(vocabulary.language_model),
            dict=str(vocabulary.dictionary),
        )
        for position, (word, phones) in enumerate(vocabulary.extra, start=1):
            # The search tree is rebuilt once, after the last word.
            decoder.add_word(word, phones, position == len(vocabulary.extra))
    except (RuntimeError, ValueError) as error:
        raise EngineError("pocketsphinx does not load", engine=ENGINE, retryable=False) from error
    return decoder
