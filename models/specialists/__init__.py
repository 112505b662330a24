"""Specialists: they judge how something was said, who said it, and what the caller's camera shows.

Input: a stretch of one caller's voice, or a frame of their camera, with its place on the session clock.
Output: ``Finding``s about it. ``processors.fusion.voice_specialists`` cuts the stretches,
``processors.fusion.camera_specialist`` chooses the frames, and both pass the findings on to the sequencer. A
specialist of ``Source.VISION`` takes frames, any other one takes voice.

A specialist runs in a child process of its own for all calls (``models.specialists.hosting``): one that
hangs or dies costs its own findings. It holds the weights, a stream holds what is known of one caller.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from parley.core.registry import Registry, Row
from parley.core.timeline import DiarPayload, KnownVoice, ProsodyPayload, Source, VisionPayload


@dataclass(frozen=True, slots=True)
class VoiceStretch:
    """Stretch of one caller's voice.

    Attributes:
        audio: float32, (samples,), in [-1, 1], at the specialist's rate.
        start_us, end_us: its place on the session clock.
        known: voices of earlier calls of the session; given with the first stretch of a stream.
    """

    audio: np.ndarray
    start_us: int
    end_us: int
    known: tuple[KnownVoice, ...] = ()


@dataclass(frozen=True, slots=True)
class CameraFrame:
    """Frame of one caller's camera.

    Attributes:
        pixels: uint8, (height, width, 3), RGB.
        captured_us: when it was captured, on the session clock.
    """

    pixels: np.ndarray
    captured_us: int


@dataclass(frozen=True, slots=True)
class Finding:
    """Finding about a stretch or a frame; exactly one of the payloads is given.

    Attributes:
        confidence: 0..1. Fusion ignores findings below its ``min_confidence``.
        prosody: how it was said.
        speaker: who said it.
        voice: that speaker's voiceprint; only where voiceprints are asked for.
        visual: what the frame shows.
    """

    confidence: float
    prosody: ProsodyPayload | None = None
    speaker: DiarPayload | None = None
    voice: KnownVoice | None = None
    visual: VisionPayload | None = None

    @property
    def source(self) -> Source:
        """Stream that the finding belongs to."""
        if self.visual is not None:
            return Source.VISION
        return Source.PROSODY if self.prosody is not None else Source.DIAR

    @property
    def payload(self) -> ProsodyPayload | DiarPayload | VisionPayload:
        """The payload that is given."""
        payload = self.prosody or self.speaker or self.visual
        assert payload is not None
        return payload


class VoiceSpecialistStream(Protocol):
    """Knowledge of a specialist about one caller. Used by one thread."""

    def judge(self, stretch: VoiceStretch) -> tuple[Finding, ...]:
        """Return the findings about a stretch, in the order of the calls; none when it says too little.

        Raises:
            ShapeError: the audio is not one-dimensional.
            EngineError: the model failed.
        """
        ...

    def close(self) -> None:
        """Forget the caller."""
        ...


class VoiceSpecialist(Protocol):
    """Specialist with shared weights, created with its settings in the child process.

    Attributes:
        rate_hz: rate of the audio that it takes.
        source: stream of its findings.
    """

    rate_hz: int
    source: Source

    def open_stream(self) -> VoiceSpecialistStream: ...


class FrameSpecialistStream(Protocol):
    """Knowledge of a specialist about one caller's camera. Used by one thread."""

    def look(self, frame: CameraFrame) -> tuple[Finding, ...]:
        """Return the findings about a frame, in the order of the calls.

        Raises:
            EngineError: the frame is no picture, or the model failed.
        """
        ...

    def close(self) -> None:
        """Forget the caller."""
        ...


class FrameSpecialist(Protocol):
    """Specialist of ``Source.VISION`` with shared weights, created with its settings in the child process."""

    source: Source

    def open_stream(self) -> FrameSpecialistStream: ...


SPECIALISTS: Registry[VoiceSpecialist | FrameSpecialist] = Registry(
    "specialist",
    {
        "prosody": Row(
            "parley.models.specialists.prosody:ProsodySpecialist",
            "pitch, loudness and tempo against the caller's own speech, and from them the tension",
        ),
        "speakers": Row(
            "parley.models.specialists.speakers:SpeakerSpecialist",
            "which of the voices of a call speaks; weights by `make models ARGS=speakers`",
        ),
        "vision": Row(
            "parley.models.specialists.vision:VisionSpecialist",
            "faces, gestures and pointing in frames of the camera; weights by `make models ARGS=vision`",
        ),
    },
)
