"""Streaming speech recognition with Moonshine (moonshine-voice): small, local, English sentences.

Input: 16 kHz audio of one utterance at a time. Output: partial texts while it is spoken, then the words.
Opens the files that ``make models`` downloaded, and never uses the network.

One ``Transcriber`` (the weights) serves the whole process. It keeps the state of one line. When two callers
speak at the same time, each pass reads the caller's open line again from its start. Passes are not
thread-safe, so a lock orders them. The result is correct but slower; another process
(``hearing.stt_processes``) has a state of its own. A caller's utterance is one ``Stream`` of the library,
made by ``start`` (0.7 ms) and freed by ``finish`` or ``discard``.

The library's voice detector is off, because all streams share one, state included: one silent caller makes
others lose words (0.1.5). Instead no audio is decoded before a voice was detected (``models.stt.voice``), and
long utterances are cut here.

A partial reads the audio since the last one, which has to be read anyway. Its cost is decoding the open line
from its first word. ``models.stt.pacing`` makes partials rarer when they are expensive.

Word times are estimated (the line is divided by letters) and marked so, unless ``word_timestamps`` loads the
decoder that reports its attention. Confidences are not reported by the library (0.1.5 returns 1.0 for every
word) and stay 1.0.

Slow: audio waits in the caller's stream. A failing call of the library is an ``EngineError``.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from moonshine_voice import MoonshineError, Transcriber, string_to_model_arch
from moonshine_voice.download import find_model_info, get_components_for_model_info
from pydantic import Field

from parley.core.errors import ConfigError, EngineError
from parley.core.files import MODELS_DIR, require_files
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, ms_to_samples, pcm16_to_float, samples_to_ms
from parley.core.strict_model import StrictModel
from parley.models.stt.pacing import PartialPace
from parley.models.stt.voice import RATE_HZ, VoiceFilter, quietest_cut
from parley.models.stt.voiced_stream import NOISE_BYTES, VoicedStream
from parley.models.stt.words import (
    fit_words,
    later,
    plain_text,
    plain_words,
    seconds_to_ms,
    spread_words,
    timed_word,
)

if TYPE_CHECKING:
    from moonshine_voice import TranscriptLine
    from moonshine_voice.transcriber import Stream

ENGINE = "moonshine"
# Silence after an utterance. The library drops audio that does not fill a chunk of 1280 samples after a hop
# of 512. Without new audio it ends a line without the frames that its look-ahead held back.
TAIL_SAMPLES = 2_048
# Without it the library answers from its cache until half a second of audio has come.
FORCE_UPDATE = Transcriber.MOONSHINE_FLAG_FORCE_UPDATE
# Extra decoder for word times: true for streaming models. `make models` does not fetch it.
ATTENTION_DECODERS = {True: "decoder_kv_with_attention.ort", False: "decoder_with_attention.ort"}
# A pause is this much below the power of the quietest moment of the loudest pass: -20 dB.
PAUSE_POWER = 0.01
SINGLE_THREAD_VARIABLE = "MOONSHINE_ORT_SINGLE_THREAD"


class MoonshineSettings(StrictModel):
    """Model, and frequency of partial texts."""

    model: Literal[
        "tiny", "base", "tiny-streaming", "base-streaming", "small-streaming", "medium-streaming"
    ] = "small-streaming"
    language: str = Field(default="en", description="ISO 639-1")
    models_dir: Path = Field(default=MODELS_DIR, description="folder where 'make models' puts files")
    word_timestamps: bool = Field(
        default=False,
        description="measured word times: needs one more file and turns speculative decoding off",
    )
    single_thread: bool = Field(
        default=False, description="one CPU thread instead of the library's choice, one per core"
    )
    max_line_ms: int = Field(
        default=12_000,
        ge=3_000,
        le=30_000,
        description="length above which utterances are decoded in lines, split at a pause in the last third",
    )
    partial_interval_ms: int = Field(
        default=300, ge=50, le=10_000, description="shortest audio between two partials"
    )
    max_partial_interval_ms: int = Field(
        default=5_000,
        ge=50,
        le=60_000,
        description="longest audio between two partials, however slow they are",
    )
    partial_load: float = Field(
        default=0.5, gt=0.0, le=1.0, description="share of one engine's time that partials may take"
    )

    @property
    def streams(self) -> bool:
        """True when the model reads audio once, instead of the whole line for each partial."""
        return self.model.endswith("-streaming")

    def files(self) -> list[Path]:
        """Return the files of this model, in the layout of Moonshine's own cache.

        Raises:
            ConfigError: there is no such model for the language.
        """
        try:
            info = find_model_info(self.language, string_to_model_arch(self.model))
        except ValueError as error:
            raise ConfigError(f"{ENGINE!r} has no {self.model!r} for {self.language!r}") from error
        folder = self.models_dir / "moonshine" / str(info["download_url"]).removeprefix("https://")
        return [folder / name for name in get_components_for_model_info(info)]

    def check(self) -> None:
        """Check that the files exist, as ``core.files.Checked`` requires."""
        files = self.files()
        require_files(ENGINE, *files)
        extra = files[0].parent / ATTENTION_DECODERS[self.streams]
        if self.word_timestamps and not extra.is_file():
            source = extra.relative_to(self.models_dir / "moonshine")
            raise ConfigError(
                f"{ENGINE!r} needs {extra} for word_timestamps: fetch https://{source}, or turn "
                "word_timestamps off"
            )


class MoonshineStt:
    """Recogniser with shared weights. Opening and using streams is thread-safe, one stream is not.

    Args:
        settings: model and pacing; None for the defaults.
        clock: seconds, for the cost of a pass.

    Attributes:
        settings: settings in force.
        voice: distinguishes voice from noise.
        speakers: number of utterances under way.

    Raises:
        ConfigError: there is no such model, or a file of it is missing.
        EngineError: the library does not load it.
    """

    rate_hz = RATE_HZ

    def __init__(
        self, settings: MoonshineSettings | None = None, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.settings = settings or MoonshineSettings()
        self.settings.check()
        self._clock = clock
        self.voice = VoiceFilter()
        self._lock = threading.Lock()
        self.speakers = 0
        self._pacing = PartialPace(
            self.settings.partial_interval_ms,
            self.settings.max_partial_interval_ms,
            self.settings.partial_load,
        )
        self._transcriber = _load(self.settings)

    def open_stream(self) -> "MoonshineStream":
        """Return a stream for a new caller. Costs nothing until an utterance starts."""
        return MoonshineStream(self)

    def _start(self) -> "Stream":
        with self._lock, _translated("an utterance cannot be started"):
            # An infinite interval keeps the library from making passes by itself: this engine paces them.
            stream = self._transcriber.create_stream(float("inf"), transcribe_flags=FORCE_UPDATE)
            stream.start()
            self.speakers += 1
            return stream

    def _pass(self, stream: "Stream", pcm: bytes) -> "Sequence[TranscriptLine]":
        """Read ``pcm``, and decode the open line."""
        with self._lock, _translated("a pass failed"):
            began_s = self._clock()
            stream.add_audio(_samples(pcm), RATE_HZ)
            lines: Sequence[TranscriptLine] = stream.update_transcription(FORCE_UPDATE).lines
            self._pacing.took((self._clock() - began_s) * 1000)
            return lines

    def _finish(self, stream: "Stream", pcm: bytes) -> "Sequence[TranscriptLine]":
        with self._lock, _translated("the last pass failed"):
            stream.add_audio([*_samples(pcm), *[0.0] * TAIL_SAMPLES], RATE_HZ)
            # ``stop`` swallows its errors and returns None instead.
            transcript = stream.stop()
        if transcript is None:
            raise EngineError("the last decoding pass failed", engine=ENGINE)
        lines: Sequence[TranscriptLine] = transcript.lines
        return lines

    def _free(self, stream: "Stream") -> None:
        with self._lock:
            self.speakers -= 1
            stream.close()

    def _due_samples(self) -> int:
        """Return the number of samples that a stream's next partial waits for."""
        return ms_to_samples(self._pacing.interval_ms(self.speakers), RATE_HZ)


class MoonshineStream(VoicedStream):
    """Stream of one caller. Not thread-safe."""

    def __init__(self, engine: MoonshineStt) -> None:
        super().__init__(ENGINE, engine.voice)
        self._engine = engine
        self._max_line_samples = ms_to_samples(engine.settings.max_line_ms, RATE_HZ)
        # Stream of the library, set while an utterance is open.
        self._stream: Stream
        # Audio that no pass has read.
        self._unread = bytearray()
        self._due_bytes = 0
        self._heard_samples = 0
        # Words of the lines before the open one, and the sample at which the open one began.
        self._words: list[WordTime] = []
        self._line_start_samples = 0
        self._loudest = 0.0

    def _begin(self) -> None:
        self._unread.clear()
        self._heard_samples = 0
        self._words = []
        self._line_start_samples = 0
        self._loudest = 0.0
        self._stream = self._engine._start()
        self._pace()

    def _keep(self, pcm: bytes) -> None:
        self._unread += pcm
        self._heard_samples += len(pcm) // PCM_BYTES_PER_SAMPLE

    def _read(self, new_bytes: int) -> str | None:
        if len(self._unread) < self._due_bytes:
            return None
        text = self._read_line()
        self._pace()
        return text

    def _last_words(self) -> tuple[WordTime, ...]:
        if self._open_voice().heard:
            self._close_line(bytes(self._unread))
        return fit_words(self._words, samples_to_ms(self._heard_samples, RATE_HZ))

    def _end(self) -> None:
        stream = self._stream
        del self._stream
        self._engine._free(stream)

    def _pace(self) -> None:
        self._due_bytes = self._engine._due_samples() * PCM_BYTES_PER_SAMPLE

    def _forget_noise(self) -> None:
        surplus = len(self._unread) - NOISE_BYTES
        if surplus > 0:
            del self._unread[:surplus]
            self._line_start_samples += surplus // PCM_BYTES_PER_SAMPLE

    def _read_line(self) -> str:
        """Read the unread audio; return the text of the utterance so far."""
        audio = bytes(self._unread)
        cut = self._cut(audio)
        self._unread = bytearray(audio[cut:])
        words = [word.text for word in self._words]
        if cut == len(audio):
            lines = self._engine._pass(self._stream, audio)
            return " ".join(filter(None, (*words, *(plain_text(line.text) for line in lines))))
        self._close_line(audio[:cut])
        self.discard()
        self._stream = self._engine._start()
        self._listen_anew(bytes(self._unread))
        self._line_start_samples = self._heard_samples - len(self._unread) // PCM_BYTES_PER_SAMPLE
        return " ".join(word.text for word in self._words)

    def _cut(self, audio: bytes) -> int:
        """Return the bytes that belong to the open line: all, until it is long and a pause comes, or too
        long.
        """
        line_samples = self._heard_samples - self._line_start_samples
        quietest, power = quietest_cut(audio, samples_to_ms(len(audio) // PCM_BYTES_PER_SAMPLE, RATE_HZ))
        self._loudest = max(self._loudest, power)
        is_pause = power < PAUSE_POWER * self._loudest
        if line_samples >= self._max_line_samples or (
            is_pause and line_samples * 3 >= self._max_line_samples * 2
        ):
            return quietest
        return len(audio)

    def _close_line(self, pcm: bytes) -> None:
        start_ms = samples_to_ms(self._line_start_samples, RATE_HZ)
        for line in self._engine._finish(self._stream, pcm):
            self._words.extend(later(line_words(line), start_ms))


def line_words(line: "TranscriptLine") -> Iterator[WordTime]:
    """Yield the words of a line with the library's times, or with estimates when any is missing or
    invalid.
    """
    text = plain_text(line.text)
    start_ms, end_ms = seconds_to_ms(line.start_time), seconds_to_ms(line.start_time + line.duration)
    timed = plain_words(
        [timed_word(word.word, word.start, word.end, word.confidence) for word in line.words or ()]
    )
    complete = " ".join(word.text for word in timed) == text
    if complete and all(start_ms <= word.start_ms < word.end_ms for word in timed):
        yield from timed
    else:
        yield from spread_words(text, start_ms, end_ms)


def _samples(pcm: bytes) -> list[float]:
    # The library's own binding takes a sequence and copies it number by number, an array slower than a list:
    # 0.16 us for a sample, 0.3 % of a core for a caller who speaks.
    samples: list[float] = pcm16_to_float(pcm).tolist()
    return samples


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except MoonshineError as error:
        raise EngineError(f"{what}: {error}", engine=ENGINE) from error


def _load(settings: MoonshineSettings) -> Transcriber:
    folder = settings.files()[0].parent
    # A threshold of 0 switches the library's voice detector off.
    options = {"return_audio_data": "false", "vad_threshold": "0"}
    if settings.word_timestamps:
        # Both together return ends before starts and lose the last word (0.1.5).
        options |= {"word_timestamps": "true", "use_speculative_decoding": "false"}
    try:
        with _threads(settings.single_thread):
            return Transcriber(str(folder), string_to_model_arch(settings.model), options=options)
    except MoonshineError as error:
        # The library writes the reason to standard error and raises only "Unknown error".
        raise EngineError(
            f"cannot load moonshine from {folder}: {error}", engine=ENGINE, retryable=False
        ) from error


@contextmanager
def _threads(single: bool) -> Iterator[None]:
    """Set the variable that the library reads while it loads, its only control over threads."""
    before = os.environ.get(SINGLE_THREAD_VARIABLE)
    if single:
        os.environ[SINGLE_THREAD_VARIABLE] = "1"
    try:
        yield
    finally:
        if single and before is None:
            del os.environ[SINGLE_THREAD_VARIABLE]
        elif single and before is not None:
            os.environ[SINGLE_THREAD_VARIABLE] = before
