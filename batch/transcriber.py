"""Transcribe one source: blocks of audio to segments with words, speakers and manner of speaking.

Pieces of speech (``cutting``) are recognised in groups of the recogniser's ``batch_pieces``. A group holds
pieces of one source only, so a source is transcribed alike whatever else is in the job. Memory does not grow
with the source, apart from its words. For one thread; blocks.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.batch.decoding import RefusedSource
from parley.batch.recogniser import weights_folder
from parley.batch.settings import RATE_HZ, BatchSettings
from parley.batch.transcript import SegmentProsody, TranscribedWord, TranscriptSegment
from parley.configs.engines import checked_settings
from parley.core.errors import ConfigError
from parley.core.media import samples_to_ms
from parley.core.timeline import ProsodyPayload, Source
from parley.models.specialists import SPECIALISTS, VoiceSpecialist, VoiceSpecialistStream, VoiceStretch
from parley.models.stt import BatchSpeechToText, PieceTranscript, RecordedPiece
from parley.models.stt.speech_cutter import PAUSE_WINDOWS, CutPiece, SpeechCutter, detector

# Audio that decides whether two channels have the same sound.
JUDGED_SAMPLES = 60 * RATE_HZ
# Correlation of two microphones in one room is higher, that of two sides of a call lower.
SAME_FROM = 0.5
# A speaker is judged by piece: 320 ms of quiet lie between most turns.
SPEAKER_PAUSE_WINDOWS = 10
_US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class TranscribedAudio:
    """Result of one source.

    Attributes:
        duration_ms: length of the audio.
        speech_ms: length of its pieces.
        is_split: each channel is a speaker.
        segments: in the order of their beginnings.
    """

    duration_ms: int
    speech_ms: int
    is_split: bool
    segments: tuple[TranscriptSegment, ...]


class SourceTranscriber:
    """SourceTranscriber with the engines of one process.

    Args:
        settings: of the job.
        recogniser: loaded.

    Raises:
        ConfigError: a specialist is unknown, hears no voices, or its weights are missing.
        EngineError: a specialist does not load.
    """

    def __init__(self, settings: BatchSettings, recogniser: BatchSpeechToText) -> None:
        self._settings = settings
        self._recogniser = recogniser
        self._detector = detector()
        self._specialists = [load_specialist(name) for name in settings.specialists]

    def transcribe(
        self,
        blocks: Iterator[np.ndarray],
        *,
        sides: Sequence[str] = (),
        most_ms: int,
        on_progress: Callable[[int], None] = lambda _audio_ms: None,
    ) -> TranscribedAudio:
        """Transcribe the audio of a source.

        Args:
            blocks: int16, (channels, samples) each, at ``RATE_HZ``; one or two channels.
            sides: names of the channels, where they are known to be speakers.
            most_ms: longest audio.
            on_progress: called with the audio so far, in milliseconds.

        Raises:
            RefusedSource: the audio is longer than ``most_ms``.
            EngineError: the recogniser or a specialist failed.
        """
        first, blocks = _first_minute(blocks)
        is_split = bool(sides) or self._is_split(first)
        names = list(sides) or (["channel 1", "channel 2"] if is_split else [])
        reading = _Reading(self._recogniser, self._specialists, names, on_read=lambda: on_progress(done_ms))
        by_voice = not names and any(each.source is Source.DIAR for each in self._specialists)
        pause = SPEAKER_PAUSE_WINDOWS if by_voice else PAUSE_WINDOWS
        cutters = [SpeechCutter(self._detector, pause_windows=pause) for _ in range(max(1, len(names)))]
        samples = done_ms = 0
        for block in itertools.chain(first, blocks):
            samples += block.shape[1]
            done_ms = samples_to_ms(samples, RATE_HZ)
            if done_ms > most_ms:
                raise RefusedSource(f"the audio is longer than {self._settings.limits.most_hours:g} h")
            channels = block if is_split else _mixed(block)
            for place, cutter in enumerate(cutters):
                reading.add(place, cutter.feed(channels[place].tobytes()))
            on_progress(done_ms)
        for place, cutter in enumerate(cutters):
            reading.add(place, cutter.finish())
        segments = reading.finish(done_ms)
        return TranscribedAudio(done_ms, reading.speech_ms, is_split, segments)

    def _is_split(self, first: Sequence[np.ndarray]) -> bool:
        if not first or first[0].shape[0] == 1 or self._settings.channels == "mix":
            return False
        return self._settings.channels == "split" or not same_sound(np.concatenate(first, axis=1))


class _Reading:
    """Pieces of a source on their way to segments."""

    def __init__(
        self,
        recogniser: BatchSpeechToText,
        specialists: Sequence[VoiceSpecialist],
        names: Sequence[str],
        *,
        on_read: Callable[[], None],
    ) -> None:
        self.speech_ms = 0
        self._on_read = on_read
        self._recogniser = recogniser
        self._names = names
        self._waiting: list[tuple[int, CutPiece]] = []
        self._segments: list[TranscriptSegment] = []
        self._by_voice = None
        self._prosody: VoiceSpecialist | None = None
        for specialist in specialists:
            if specialist.source is Source.PROSODY:
                self._prosody = specialist
            elif not names:
                self._by_voice = specialist.open_stream()
        # Each speaker is compared with their own speech.
        self._manners: dict[str | None, VoiceSpecialistStream] = {}
        self._last_speaker: str | None = None

    def add(self, channel: int, pieces: Sequence[CutPiece]) -> None:
        self._waiting += [(channel, piece) for piece in pieces]
        while len(self._waiting) >= self._recogniser.batch_pieces:
            self._read()

    def finish(self, duration_ms: int) -> tuple[TranscriptSegment, ...]:
        while self._waiting:
            self._read()
        ordered = sorted(self._segments, key=lambda each: (each.start_ms, each.speaker or ""))
        # The last window is padded.
        return tuple(each.model_copy(update={"end_ms": min(each.end_ms, duration_ms)}) for each in ordered)

    def _read(self) -> None:
        count = self._recogniser.batch_pieces
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        pieces = [RecordedPiece(piece.samples, piece.voiced) for _, piece in group]
        for (channel, cut), piece, found in zip(
            group, pieces, self._recogniser.transcribe(pieces), strict=True
        ):
            self.speech_ms += samples_to_ms(len(piece.samples), RATE_HZ)
            self._add_segment(channel, cut, piece.samples, found)
        # A slow recogniser makes progress too.
        self._on_read()

    def _add_segment(self, channel: int, cut: CutPiece, samples: np.ndarray, found: PieceTranscript) -> None:
        start_ms = samples_to_ms(cut.start, RATE_HZ)
        end_ms = samples_to_ms(cut.start + len(samples), RATE_HZ)
        stretch = VoiceStretch(samples, start_ms * _US_PER_MS, end_ms * _US_PER_MS)
        speaker = self._names[channel] if self._names else self._speaker(stretch)
        prosody = self._manner(speaker, stretch)
        if not found.words:
            return
        words = tuple(
            TranscribedWord(
                text=word.text,
                start_ms=start_ms + word.start_ms,
                end_ms=start_ms + word.end_ms,
                confidence=round(word.confidence, 3),
                estimated=word.estimated,
            )
            for word in found.words
        )
        confidence = round(sum(word.confidence for word in words) / len(words), 3)
        self._segments.append(
            TranscriptSegment(
                start_ms=start_ms,
                end_ms=end_ms,
                speaker=speaker,
                text=" ".join(found.written.split()),
                confidence=confidence,
                words=words,
                prosody=prosody,
            )
        )

    def _speaker(self, stretch: VoiceStretch) -> str | None:
        if self._by_voice is None:
            return None
        for finding in self._by_voice.judge(stretch):
            if finding.speaker is not None:
                self._last_speaker = finding.speaker.speaker_id
        # A piece that says too little belongs to its neighbour.
        return self._last_speaker

    def _manner(self, speaker: str | None, stretch: VoiceStretch) -> SegmentProsody | None:
        if self._prosody is None:
            return None
        if speaker not in self._manners:
            self._manners[speaker] = self._prosody.open_stream()
        for finding in self._manners[speaker].judge(stretch):
            if finding.prosody is not None:
                return _as_prosody(finding.prosody)
        return None


def load_specialist(name: str) -> VoiceSpecialist:
    """Load a voice specialist with its defaults.

    Raises:
        ConfigError: unknown, no voice specialist, or its weights are missing.
        EngineError: it does not load.
    """
    loaded: Any = SPECIALISTS.create(name, check_specialist(name))
    specialist: VoiceSpecialist = loaded
    return specialist


def check_specialist(name: str) -> Any:
    """Return the settings of a voice specialist: its defaults.

    Raises:
        ConfigError: unknown, no voice specialist, or its weights are missing.
    """
    if name not in SPECIALISTS:
        raise ConfigError(f"--specialists: unknown specialist {name!r}", known=SPECIALISTS.names())
    factory: Any = SPECIALISTS.factory(name)
    if factory.source is Source.VISION:
        raise ConfigError(f"--specialists: {name!r} takes pictures, and a batch job has none")
    return checked_settings(SPECIALISTS, name, weights_folder(factory), where="--specialists")


def same_sound(channels: np.ndarray) -> bool:
    """Return whether two channels have the same sound; a silent channel differs.

    channels: int16, (2, samples).
    """
    left, right = channels.astype(np.float32)
    power = float(np.sqrt(np.vdot(left, left) * np.vdot(right, right)))
    return power > 0 and float(np.vdot(left, right)) / power >= SAME_FROM


def _first_minute(blocks: Iterator[np.ndarray]) -> tuple[list[np.ndarray], Iterator[np.ndarray]]:
    first: list[np.ndarray] = []
    for block in blocks:
        first.append(block)
        if sum(each.shape[1] for each in first) >= JUDGED_SAMPLES:
            break
    return first, blocks


def _mixed(block: np.ndarray) -> np.ndarray:
    """Return one channel, int16, (1, samples)."""
    return block if block.shape[0] == 1 else block.astype(np.int32).mean(axis=0, keepdims=True).astype("<i2")


def _as_prosody(payload: ProsodyPayload) -> SegmentProsody:
    def rounded(value: float | None) -> float | None:
        return None if value is None else round(value, 3)

    return SegmentProsody(
        stress=rounded(payload.stress),
        pitch_hz=rounded(payload.pitch_hz),
        pitch_offset_semitones=rounded(payload.pitch_offset_semitones),
        level_offset_db=rounded(payload.level_offset_db),
        tempo_offset=rounded(payload.tempo_offset),
    )
