"""Speech recognition with Whisper (faster-whisper, CTranslate2): many languages, whole utterances.

Input: 16 kHz audio of one utterance at a time. Output: its words with times and probabilities. Opens the
folder that ``make models`` downloaded, and never uses the network.

Whisper is not a streaming model: it always reads 30 s, padded. Audio is therefore kept until the utterance
ends, and one decoding follows. Speech longer than ``max_segment_ms`` is decoded in parts, cut where it is
quietest, so that the last decoding is never longer. Partials decode everything again and delay another
caller's final transcript meanwhile. They are off unless ``partial_interval_ms`` is set, which suits a GPU,
and paced by their cost (``models.stt.pacing``).

One model serves the process, and one decoding runs at a time, in ``cpu_threads`` threads: further callers
wait, or get another process (``hearing.stt_processes``). The model hallucinates words in silence, so no audio
is decoded before a voice was detected (``models.stt.voice``). A single temperature and a bound on tokens keep
a failing decoding short.
"""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from faster_whisper import BatchedInferencePipeline, WhisperModel
from faster_whisper.transcribe import Segment
from pydantic import Field

from parley.core.errors import ConfigError, EngineError
from parley.core.files import MODELS_DIR, require_files
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, ms_to_samples, pcm16_to_float, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt import PieceTranscript, RecordedPiece
from parley.models.stt.pacing import PartialPace
from parley.models.stt.voice import RATE_HZ, VoiceFilter, quietest_cut
from parley.models.stt.voiced_stream import NOISE_BYTES, VoicedStream
from parley.models.stt.words import fit_words, later, plain_text, plain_words, timed_word

ENGINE = "whisper"
# A part of a long utterance is cut where its last 5 s are quietest.
CUT_RANGE_MS = 5_000
# Fast speakers say 5 words in a second, 7 tokens; a failing decoding makes hundreds.
TOKENS_PER_SECOND = 10
TOKENS_AT_LEAST = 16
# Whisper's decoder has 448 positions, some of which hold the task.
TOKENS_AT_MOST = 440
# A single attempt. Retries at other temperatures are for recordings, where time does not matter.
TEMPERATURE = 0.0


class WhisperSettings(StrictModel):
    """Model, device and cost bounds."""

    # Of 73 prompts in Italian and Russian that Moonshine tiny doubted, tiny.en is this sure of 2; from 0.6 it
    # is of 4, and of wrong words for 2 of 3 doubtful English turns (``research.turn_taking.second_opinion``,
    # tuning set).
    sure_from: ClassVar[float] = 0.7

    model: str = Field(
        default="base.en",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="folder under models_dir/whisper with a converted model",
    )
    language: str = Field(default="en", description="ISO 639-1")
    device: Literal["cpu", "cuda", "auto"] = "cpu"
    compute_type: str = Field(default="int8", description="CTranslate2 number format")
    cpu_threads: int = Field(default=2, ge=1, le=64, description="threads of one decoder")
    beam_size: int = Field(
        default=1, ge=1, le=10, description="beam width; more is slower and slightly more accurate"
    )
    no_speech_prob: float = Field(
        default=0.4,
        ge=0.0,
        le=1.0,
        description="probability of silence above which uncertain words are dropped",
    )
    max_segment_ms: int = Field(
        default=25_000, ge=10_000, le=30_000, description="length above which utterances are decoded in parts"
    )
    partial_interval_ms: int = Field(
        default=0, ge=0, le=10_000, description="shortest audio between two partials; 0: no partials"
    )
    max_partial_interval_ms: int = Field(
        default=5_000,
        ge=50,
        le=60_000,
        description="longest audio between two partials, however slow they are",
    )
    partial_load: float = Field(
        default=0.5, gt=0.0, le=1.0, description="share of the engine's time that partials may take"
    )
    models_dir: Path = Field(default=MODELS_DIR, description="folder where 'make models' puts files")

    @property
    def folder(self) -> Path:
        """Folder of the model's files."""
        return self.models_dir / "whisper" / self.model

    def check(self) -> None:
        """Check that the files exist, as ``core.files.Checked`` requires."""
        # Without tokenizer.json faster-whisper downloads one by itself.
        require_files(
            ENGINE, *(self.folder / name for name in ("model.bin", "config.json", "tokenizer.json"))
        )


class WhisperStt:
    """Recogniser with shared weights. Opening and using streams is thread-safe, one stream is not.

    Args:
        settings: model, device and bounds; None for the defaults.
        clock: seconds, for the cost of a partial.

    Attributes:
        settings: settings in force.
        voice: distinguishes voice from noise.
        speakers: number of utterances under way.

    Raises:
        ConfigError: a file is missing, or the model does not support the language.
        EngineError: the model does not load.
    """

    rate_hz = RATE_HZ
    # Pieces of a recording that are decoded together: the decoder reads its weights once for all of them.
    batch_pieces = 8

    def __init__(
        self, settings: WhisperSettings | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.settings = settings or WhisperSettings()
        self.settings.check()
        self.voice = VoiceFilter()
        self._clock = clock
        self._lock = threading.Lock()
        self.speakers = 0
        self._pacing = PartialPace(
            self.settings.partial_interval_ms,
            self.settings.max_partial_interval_ms,
            self.settings.partial_load,
        )
        self._model = _load(self.settings)

    def open_stream(self) -> "WhisperStream":
        """Return a stream for a new caller. Costs nothing."""
        return WhisperStream(self)

    def transcribe(self, pieces: Sequence[RecordedPiece]) -> list[PieceTranscript]:
        """Return the transcript of each piece of a recording, as ``models.stt.BatchSpeechToText``.

        Raises:
            EngineError: decoding failed.
        """
        if not pieces:
            return []
        # The library takes the pieces as clips of one recording, and marks its segments by their beginnings.
        ends = np.cumsum([len(piece.samples) for piece in pieces]).tolist()
        starts = [0, *ends[:-1]]
        clips = [
            {"start": start / RATE_HZ, "end": end / RATE_HZ} for start, end in zip(starts, ends, strict=True)
        ]
        found: dict[int, list[Segment]] = {}
        with self._lock:
            for segment in self._decode_clips(np.concatenate([piece.samples for piece in pieces]), clips):
                found.setdefault(segment.seek, []).append(segment)
        transcripts: list[PieceTranscript] = []
        for piece, start, clip in zip(pieces, starts, clips, strict=True):
            segments = found.get(int(clip["start"] * self._model.frames_per_second), [])
            words = later(_timed_words(segments), -samples_to_ms(start, RATE_HZ))
            duration_ms = samples_to_ms(len(piece.samples), RATE_HZ)
            written = " ".join(segment.text.strip() for segment in segments)
            transcripts.append(PieceTranscript(written, fit_words(tuple(words), duration_ms)))
        return transcripts

    def _decode_clips(self, audio: np.ndarray, clips: Sequence[dict[str, float]]) -> list[Segment]:
        chosen = self.settings
        longest_s = max(clip["end"] - clip["start"] for clip in clips)
        try:
            segments, _ = BatchedInferencePipeline(model=self._model).transcribe(
                audio,
                language=chosen.language,
                beam_size=chosen.beam_size,
                temperature=TEMPERATURE,
                max_new_tokens=_most_tokens(longest_s),
                word_timestamps=True,
                vad_filter=False,
                clip_timestamps=clips,
                batch_size=self.batch_pieces,
            )
            return list(segments)
        except (RuntimeError, ValueError) as error:
            raise EngineError("decoding failed", engine=ENGINE) from error

    def _speaks(self, change: int) -> None:
        with self._lock:
            self.speakers += change

    def _due_bytes(self) -> int | None:
        """Return the bytes of audio that a stream's next partial waits for, or None without partials."""
        if not self.settings.partial_interval_ms:
            return None
        return _bytes(self._pacing.interval_ms(self.speakers))

    def _words(self, pcm: bytes) -> tuple[WordTime, ...]:
        """Return the words of one segment, with times from its start."""
        with self._lock:
            words = _timed_words(self._decode(pcm, word_times=True))
        return fit_words(words, samples_to_ms(len(pcm) // PCM_BYTES_PER_SAMPLE, RATE_HZ))

    def _text(self, pcm: bytes) -> str:
        with self._lock:
            began_s = self._clock()
            text = plain_text(" ".join(segment.text for segment in self._decode(pcm, word_times=False)))
            self._pacing.took((self._clock() - began_s) * 1000)
            return text

    def _decode(self, pcm: bytes, *, word_times: bool) -> list[Segment]:
        audio = pcm16_to_float(pcm)
        chosen = self.settings
        try:
            segments, _ = self._model.transcribe(
                audio,
                language=chosen.language,
                beam_size=chosen.beam_size,
                temperature=TEMPERATURE,
                no_speech_threshold=chosen.no_speech_prob,
                condition_on_previous_text=False,
                max_new_tokens=_most_tokens(len(audio) / RATE_HZ),
                word_timestamps=word_times,
            )
            # transcribe returns a generator: the work is done here.
            return list(segments)
        except (RuntimeError, ValueError) as error:
            raise EngineError("decoding failed", engine=ENGINE) from error


class WhisperStream(VoicedStream):
    """Stream of one caller. Not thread-safe."""

    def __init__(self, engine: WhisperStt) -> None:
        super().__init__(ENGINE, engine.voice)
        self._engine = engine
        # Audio of the open segment.
        self._audio = bytearray()
        self._segment_bytes = _bytes(engine.settings.max_segment_ms)
        # Words of the earlier segments, and the duration of these.
        self._words: list[WordTime] = []
        self._before_samples = 0
        self._unread_bytes = 0

    def _begin(self) -> None:
        self._engine._speaks(1)

    def _keep(self, pcm: bytes) -> None:
        self._audio += pcm

    def _forget_noise(self) -> None:
        self._skip(max(0, len(self._audio) - NOISE_BYTES))

    def _read(self, new_bytes: int) -> str | None:
        self._unread_bytes += new_bytes
        while len(self._audio) >= self._segment_bytes:
            cut, _ = quietest_cut(bytes(self._audio[: self._segment_bytes]), CUT_RANGE_MS)
            self._close_segment(cut)
            self._listen_anew(bytes(self._audio[: self._segment_bytes]))
        due_bytes = self._engine._due_bytes()
        if due_bytes is None or self._unread_bytes < due_bytes:
            return None
        self._unread_bytes = 0
        spoken = self._engine._text(bytes(self._audio)) if self._open_voice().heard else ""
        return " ".join(filter(None, (*(word.text for word in self._words), spoken)))

    def _last_words(self) -> tuple[WordTime, ...]:
        self._close_segment(len(self._audio))
        return tuple(self._words)

    def _end(self) -> None:
        self._engine._speaks(-1)
        self._audio.clear()
        self._words = []
        self._before_samples = 0
        self._unread_bytes = 0

    def _skip(self, size_bytes: int) -> None:
        """Drop audio from the front of the open segment."""
        del self._audio[:size_bytes]
        self._before_samples += size_bytes // PCM_BYTES_PER_SAMPLE

    def _close_segment(self, size_bytes: int) -> None:
        """Decode the audio up to a cut, if there is a voice in it, and keep the rest for the next segment."""
        if self._open_voice().heard:
            offset_ms = samples_to_ms(self._before_samples, RATE_HZ)
            self._words.extend(later(self._engine._words(bytes(self._audio[:size_bytes])), offset_ms))
        self._skip(size_bytes)


def _most_tokens(duration_s: float) -> int:
    return min(TOKENS_AT_LEAST + int(duration_s * TOKENS_PER_SECOND), TOKENS_AT_MOST)


def _timed_words(segments: Sequence[Segment]) -> tuple[WordTime, ...]:
    return plain_words(
        [
            timed_word(word.word, word.start, word.end, word.probability)
            for segment in segments
            for word in segment.words or ()
        ]
    )


def _bytes(duration_ms: int) -> int:
    return ms_to_samples(duration_ms, RATE_HZ) * PCM_BYTES_PER_SAMPLE


def _load(settings: WhisperSettings) -> WhisperModel:
    try:
        model = WhisperModel(
            str(settings.folder),
            device=settings.device,
            compute_type=settings.compute_type,
            cpu_threads=settings.cpu_threads,
            num_workers=1,
            local_files_only=True,
        )
    except (RuntimeError, ValueError) as error:
        raise EngineError(
            f"cannot load whisper from {settings.folder}: {error}", engine=ENGINE, retryable=False
        ) from error
    if settings.language not in model.supported_languages:
        raise ConfigError(f"{ENGINE!r}: {settings.model} does not support the language {settings.language!r}")
    return model
