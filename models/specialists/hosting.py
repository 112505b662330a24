"""A specialist in a child process: the messages of both sides, and the child's side.

The parent's sides are ``processors.fusion.voice_specialists`` and ``camera_specialist`` through
``runtime.engine_process``. One question carries a stretch of voice or a frame, its answer the findings.
"""

from collections.abc import Sequence
from typing import cast

import numpy as np

from parley.core.errors import EngineError, PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from parley.core.strict_model import StrictModel
from parley.core.timeline import KnownVoice, Source
from parley.models.specialists import (
    SPECIALISTS,
    CameraFrame,
    Finding,
    FrameSpecialist,
    FrameSpecialistStream,
    VoiceSpecialist,
    VoiceSpecialistStream,
    VoiceStretch,
)
from parley.protocols.facts import from_rows, to_rows
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage, EngineSpec, MessageType

ENGINE = "specialist"
# Longest stretch of a question: more than any caller of this module sends.
MOST_STRETCH_S = 10
# One stretch is about one person or one manner; a few at most.
MOST_FINDINGS = 16
# Longest side of a frame of a question: more than any caller of this module sends.
MOST_SIDE_PX = 2_048
CHANNELS = 3


class SpecialistSettings(StrictModel):
    """Specialist that the child process loads."""

    specialist: EngineSpec


def load_specialist(settings: SpecialistSettings) -> "HostedSpecialist | HostedCameraSpecialist":
    """Load the specialist of the child process.

    Raises:
        AgentError: it does not load.
    """
    spec = settings.specialist
    specialist = SPECIALISTS.create(spec.factory, spec.read_settings())
    if specialist.source is Source.VISION:
        return HostedCameraSpecialist(cast(FrameSpecialist, specialist))
    return HostedSpecialist(cast(VoiceSpecialist, specialist))


class HostedSpecialist:
    """Specialist in the child; implements ``runtime.engine_host.RequestEngine``."""

    def __init__(self, specialist: VoiceSpecialist) -> None:
        self._specialist = specialist

    @property
    def rate_hz(self) -> int:
        return self._specialist.rate_hz

    def open_stream(self) -> "HostedSpecialistStream":
        """Return a stream for a new caller."""
        return HostedSpecialistStream(self._specialist.open_stream(), self.rate_hz)


class HostedSpecialistStream:
    """Stream of one caller in the child."""

    def __init__(self, stream: VoiceSpecialistStream, rate_hz: int) -> None:
        self._stream = stream
        self._most_bytes = MOST_STRETCH_S * rate_hz * PCM_BYTES_PER_SAMPLE

    def ask(self, question: EngineMessage) -> Answer:
        """Answer a question of ``ask_judgement``; ``read_findings`` decodes the answer.

        Raises:
            AgentError: the specialist failed, or the question is not valid.
        """
        pcm, facts = question.payload, question.facts
        start_us, end_us = facts.get("start_us"), facts.get("end_us")
        if not isinstance(start_us, int) or not isinstance(end_us, int):
            raise EngineError("the stretch has no times", engine=ENGINE, retryable=False)
        if not pcm or len(pcm) % PCM_BYTES_PER_SAMPLE or len(pcm) > self._most_bytes:
            raise EngineError(f"{len(pcm)} bytes are no stretch of voice", engine=ENGINE, retryable=False)
        known = from_rows(KnownVoice, facts.get("known", []))
        found = self._stream.judge(VoiceStretch(pcm16_to_float(pcm), start_us, end_us, known))
        return {"findings": to_rows(found)}, b""

    def close(self) -> None:
        """Forget the caller."""
        self._stream.close()


class HostedCameraSpecialist:
    """Specialist of the camera in the child; implements ``runtime.engine_host.RequestEngine``."""

    # It takes no audio.
    rate_hz = 0

    def __init__(self, specialist: FrameSpecialist) -> None:
        self._specialist = specialist

    def open_stream(self) -> "HostedCameraStream":
        """Return a stream for a new caller."""
        return HostedCameraStream(self._specialist.open_stream())


class HostedCameraStream:
    """Stream of one caller's camera in the child."""

    def __init__(self, stream: FrameSpecialistStream) -> None:
        self._stream = stream

    def ask(self, question: EngineMessage) -> Answer:
        """Answer a question of ``ask_look``; ``read_findings`` decodes the answer.

        Raises:
            AgentError: the specialist failed, or the question is not valid.
        """
        facts = [question.facts.get(name) for name in ("captured_us", "width", "height")]
        if any(type(each) is not int for each in facts):
            raise EngineError("the frame has no time and size", engine=ENGINE, retryable=False)
        captured_us, width, height = cast(list[int], facts)
        if (
            not (0 < width <= MOST_SIDE_PX and 0 < height <= MOST_SIDE_PX)
            or len(question.payload) != width * height * CHANNELS
        ):
            raise EngineError(
                f"{len(question.payload)} bytes are no picture of {width} by {height}",
                engine=ENGINE,
                retryable=False,
            )
        pixels = np.frombuffer(question.payload, np.uint8).reshape(height, width, CHANNELS)
        return {"findings": to_rows(self._stream.look(CameraFrame(pixels, captured_us)))}, b""

    def close(self) -> None:
        """Forget the caller."""
        self._stream.close()


def ask_look(pixels: bytes, size: tuple[int, int], captured_us: int) -> EngineMessage:
    """Return the question about a frame: raw RGB of (width, height)."""
    facts = {"captured_us": captured_us, "width": size[0], "height": size[1]}
    return EngineMessage(MessageType.MEASURE, facts=facts, payload=pixels)


def ask_judgement(pcm: bytes, start_us: int, end_us: int, known: Sequence[KnownVoice] = ()) -> EngineMessage:
    """Return the question about a stretch: 16-bit mono PCM at the specialist's rate.

    Args:
        pcm: the voice.
        start_us, end_us: its place on the session clock.
        known: voices of earlier calls, with the first question of a stream.
    """
    facts: dict[str, object] = {"start_us": start_us, "end_us": end_us}
    if known:
        facts["known"] = to_rows(known)
    return EngineMessage(MessageType.MEASURE, facts=facts, payload=pcm)


def read_findings(answer: EngineMessage) -> tuple[Finding, ...]:
    """Return the findings of an answer.

    Raises:
        EngineError: they are not valid.
    """
    try:
        found = from_rows(Finding, answer.facts.get("findings"))
    except PeerError as error:
        raise EngineError(f"the findings are not valid: {error}", engine=ENGINE) from error
    if len(found) > MOST_FINDINGS:
        raise EngineError(f"{len(found)} findings about one stretch", engine=ENGINE)
    for each in found:
        given = [part for part in (each.prosody, each.speaker, each.visual) if part is not None]
        if len(given) != 1 or not 0 <= each.confidence <= 1:
            raise EngineError(
                "a finding has no single payload, or a confidence outside of 0 to 1", engine=ENGINE
            )
    return found
