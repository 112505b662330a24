"""Streaming speech recognition that needs no weights: CMU pocketsphinx, the fallback.

Input: 16 kHz audio of one utterance at a time. Output: partial texts while it is spoken, then the words with
times and confidences. It understands clear simple English and little else (34 % word errors on 20 human
prompts where Moonshine tiny has 3 %); documentation must say so wherever a user can select it.

The binding never releases the interpreter lock, so a 20 ms piece can stop every other thread for 0.3 s: run
it in a process of its own (``runtime.engine_process``). A decoder (about 45 MB, 0.12 s to build) decodes one
utterance at a time, so a stream borrows one from ``start`` to ``finish``. The state of a call is a few
numbers, the cepstral mean of its channel, which is set in the borrowed decoder. When no decoder is left,
``start`` raises ``EngineError`` and does not wait.

The first utterance of a call would be recognised badly: the decoder starts from the mean of its training
speech and follows a new channel over 5 s. After 1.5 s of audio, or at the end of a shorter utterance, the
mean is estimated from that audio alone, and the audio is decoded again. Errors on first utterances fall from
0.17, 0.33 and 0.15 (three voices) to 0.05, 0.14 and 0.10, for about 0.1 s of work once per call.

The second pass (fwdflat) is off: it would add 0.1-2 s after the last word to save 3 % of the words.
"""

import threading
from pathlib import Path
from typing import ClassVar, Literal

import pocketsphinx
from pydantic import Field

from parley.core.errors import EngineError, ShapeError
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt import Transcript
from parley.models.stt.language_model import (
    CALLER_PHRASES,
    DecoderVocabulary,
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
# Duration of audio on which a channel is measured. 1 s is less certain (errors 0.07, 0.18, 0.12), 2 s change
# little.
CALIBRATION_MS = 1_500
CALIBRATION_BYTES = CALIBRATION_MS * RATE_HZ // 1000 * PCM_BYTES_PER_SAMPLE
# The decoder counts its initial mean as this many frames of evidence (CMN_WIN of its cmn.h) ...
PRIOR_FRAMES = 500
# ... of which this many are kept when a new channel is measured: 0 overfits short audio, 200 is too slow.
TRUSTED_PRIOR_FRAMES = 50
# Silence and noise of the decoder's filler dictionary, and sentence marks.
_FILLER_MARKS = ("<", "[", "+")


class PocketsphinxSettings(StrictModel):
    """Vocabulary, and number of simultaneous speakers."""

    # See ``models.stt.RecogniserTraits``.
    wants_noise_suppression: ClassVar[bool] = True
    heard_for_fillers: ClassVar[tuple[str, ...]] = ("them",)

    language_model: Literal["general", "documents"] = Field(
        default="general", description="general English, or only the sentences of the documents"
    )
    common_words: int = Field(
        default=5_000,
        ge=0,
        le=80_000,
        description="most frequent English words in the vocabulary of the general model; more is slower",
    )
    documents: Path | None = Field(
        default=None, description="text file or folder whose words are added to the vocabulary"
    )
    sentences: tuple[str, ...] = Field(
        default=(), description="further text whose words are added to the vocabulary"
    )
    cache_dir: Path = Field(
        default=Path.home() / ".cache" / "parley" / "pocketsphinx",
        description="folder for built vocabularies",
    )
    warm_decoders: int = Field(default=2, ge=1, le=64, description="decoders built at startup")
    max_decoders: int = Field(
        default=64,
        ge=1,
        le=10_000,
        description="callers who can speak at the same moment; a further decoder (45 MB) is built when one "
        "is needed. If not set: one for each of ``server.max_calls``",
    )
    max_segment_ms: int = Field(
        default=30_000,
        ge=2_000,
        le=300_000,
        description="length above which utterances are decoded in parts; memory grows with the length of a "
        "part",
    )


class PocketsphinxStt:
    """Recogniser with shared decoders. Opening and using streams is thread-safe, one stream is not.

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
        """Return a stream for a new caller. Costs nothing: a decoder is borrowed when an utterance starts."""
        return PocketsphinxStream(self, self._settings.max_segment_ms * RATE_HZ // 1000)

    def _borrow(self) -> pocketsphinx.Decoder:
        with self._lock:
            if self._free:
                return self._free.pop()
            if self._built >= self._settings.max_decoders:
                raise EngineError(f"all {self._built} decoders are in use", engine=ENGINE)
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
    """Stream of one caller. Not thread-safe."""

    def __init__(self, engine: PocketsphinxStt, max_segment_samples: int) -> None:
        self._engine = engine
        self._max_segment_samples = max_segment_samples
        self._decoder: pocketsphinx.Decoder | None = None
        # Cepstral mean of the channel: learnt over this caller's utterances, None at first.
        self._channel: str | None = None
        self._calibrated = False
        # Audio of the utterance while the channel is unknown.
        self._unheard = bytearray()
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
        self._unheard.clear()
        self._words = []
        self._partial = ""
        self._offset_ms = 0
        self._segment_samples = 0
        self._decoder = self._engine._borrow()
        self._open_segment(self._decoder)

    def feed(self, pcm: bytes) -> Transcript | None:
        """Take 16-bit mono PCM at 16 kHz; return a partial when the text changed.

        Raises:
            EngineError: outside an utterance, or the decoder failed.
            ShapeError: an odd number of bytes.
        """
        decoder = self._utterance()
        if len(pcm) % PCM_BYTES_PER_SAMPLE:
            raise ShapeError(f"{len(pcm)} bytes are not a whole number of 16-bit samples")
        self._decode(decoder, pcm)
        self._segment_samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        if not self._calibrated:
            self._unheard += pcm
            if len(self._unheard) >= CALIBRATION_BYTES:
                self._calibrate(decoder)
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
        """End the utterance; return its words with times and confidences.

        Raises:
            EngineError: outside an utterance, or the decoder failed.
        """
        decoder = self._utterance()
        try:
            if not self._calibrated:
                self._calibrate(decoder)
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
            self._end(decoder)
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

    def _calibrate(self, decoder: pocketsphinx.Decoder) -> None:
        """Measure the channel on the audio so far, and decode the audio again with the result."""
        if not self._unheard:
            return
        frames = samples_to_ms(len(self._unheard) // PCM_BYTES_PER_SAMPLE, RATE_HZ) // FRAME_MS
        prior = self._channel or decoder.config["cmninit"]
        self._channel = channel_mean(prior, decoder.get_cmn(True), frames)
        # A cough or a "yes" is too short to measure a channel: the next utterance measures again.
        self._calibrated = len(self._unheard) >= CALIBRATION_BYTES
        self._end(decoder)
        self._open_segment(decoder)
        self._decode(decoder, bytes(self._unheard))
        self._unheard.clear()

    def _end(self, decoder: pocketsphinx.Decoder) -> None:
        try:
            decoder.end_utt()
        except RuntimeError as error:
            raise EngineError("cannot end the utterance", engine=ENGINE) from error

    def _open_segment(self, decoder: pocketsphinx.Decoder) -> None:
        # Resets the noise level that another caller left in this decoder. The binding calls the function
        # deprecated and unnecessary; without it the same audio has other words after another caller's noise.
        decoder.start_stream()
        if self._channel is not None:
            decoder.set_cmn(self._channel)
        else:
            decoder.set_cmn(decoder.config["cmninit"])
        decoder.start_utt()

    def _close_segment(self, decoder: pocketsphinx.Decoder) -> None:
        self._end(decoder)
        for segment in decoder.seg() or ():
            for text in spoken(segment.word):
                start_ms = self._offset_ms + segment.start_frame * FRAME_MS
                end_ms = self._offset_ms + (segment.end_frame + 1) * FRAME_MS
                # prob is a probability already, not a logarithm; sums of many paths round above 1.
                self._words.append(WordTime(text, start_ms, end_ms, min(1.0, max(0.0, segment.prob))))
        self._channel = decoder.get_cmn(True)
        self._offset_ms += samples_to_ms(self._segment_samples, RATE_HZ)
        self._segment_samples = 0

    def _release(self, decoder: pocketsphinx.Decoder) -> None:
        self._decoder = None
        self._engine._give_back(decoder)


def spoken(text: str) -> list[str]:
    """Return the words of a hypothesis, without fillers, sentence marks and numbers of pronunciations."""
    return [base_word(word) for word in text.split() if not word.startswith(_FILLER_MARKS)]


def channel_mean(prior: str, updated: str, frames: int) -> str:
    """Return the cepstral mean of ``frames`` frames, from the decoder's mean before and after them.

    Both means are comma-separated numbers, as the decoder writes them; missing ones of ``prior`` are 0. The
    decoder moved from the prior by ``frames`` of ``frames + PRIOR_FRAMES``; the result moves nearly all the
    way.
    """
    after = [float(number) for number in updated.split(",")]
    before = [float(number) for number in prior.split(",")]
    before += [0.0] * (len(after) - len(before))
    step = (frames + PRIOR_FRAMES) / (frames + TRUSTED_PRIOR_FRAMES)
    return ",".join(f"{old + (new - old) * step:.4f}" for old, new in zip(before, after, strict=True))


def _vocabulary(settings: PocketsphinxSettings) -> DecoderVocabulary:
    sentences = [sentence for text in settings.sentences for sentence in spoken_sentences(text)]
    if settings.documents is not None:
        sentences.extend(read_sentences(settings.documents))
    if settings.language_model == "documents":
        return document_vocabulary(sentences, settings.cache_dir)
    return general_vocabulary((*sentences, *CALLER_PHRASES), settings.common_words, settings.cache_dir)


def _build_decoder(vocabulary: DecoderVocabulary) -> pocketsphinx.Decoder:
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
        raise EngineError("cannot load pocketsphinx", engine=ENGINE, retryable=False) from error
    return decoder
