"""Reports of programs outside of Parley about a live call: JSON to annotations of the session.

A batch is the body of ``POST /api/sessions/{id}/annotations`` and one message of the socket of that path.
Each of its reports is about one stream: an annotation, or without ``payload`` a heartbeat ("nothing more to
report up to then"). The report says when it happened in one of two ways, because a program outside of this
process does not know its clock: ``age_ms`` before the batch was sent, or ``event_us`` on the clock of the
session, of which every answer states the present time.

Pure: the time comes in as an argument. Everything is bounded: numbers are finite, texts are short and have no
control characters, and a batch is small. A batch is accepted whole or not at all.
"""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from parley.core.timeline import (
    Annotation,
    DiarPayload,
    OutsideReport,
    Payload,
    ProsodyPayload,
    Source,
    VisionPayload,
)
from parley.protocols.client_protocol import ProtocolError

MOST_REPORTS = 64
# A turn that takes longer than this was answered long ago.
MOST_AGE_MS = 60_000
# Difference between two clocks that ran for hours (20 ppm each way), and the way of the last answer. An event
# in this part of the future counts as happening now. One in this time before the call counts as its
# beginning: a program that saw something before it was connected reports what is a moment old.
CLOCK_TOLERANCE_US = 1_000_000
MOST_NAME_CHARS, MOST_TEXT_CHARS = 64, 200
# Speaker embeddings in use have 192 (ECAPA, TitaNet) to 256 (d-vector, WeSpeaker) values.
MOST_EMBEDDING = 256
# Cost of a report against the rate: an embedding is as much to store as ten reports.
COST, EMBEDDING_COST = 1, 10

# No C0 and C1 controls and line separators. Halves of surrogate pairs are no text for pydantic.
_PLAIN = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Name = Annotated[str, Field(min_length=1, max_length=MOST_NAME_CHARS, pattern=_PLAIN)]
Text = Annotated[str, Field(min_length=1, max_length=MOST_TEXT_CHARS, pattern=_PLAIN)]
Level = Annotated[float, Field(ge=0, le=1)]


class _Given(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class GivenProsody(_Given):
    """Manner of speaking; what is left out was not judged."""

    anger: Level | None = None
    joy: Level | None = None
    stress: Level | None = Field(None, description="tension of the voice")
    certainty: Level | None = Field(None, description="low: the speaker sounds unsure")
    pitch_hz: float | None = Field(None, ge=20, le=2_000, description="median fundamental frequency")

    def about(self, start_us: int, end_us: int) -> ProsodyPayload:
        """Return the payload of a stretch of speech."""
        return ProsodyPayload(
            start_us, end_us, self.anger, self.joy, self.stress, self.certainty, self.pitch_hz
        )


class GivenVision(_Given):
    """Visible behaviour; what is left out was not seen."""

    ref: Text | None = Field(None, description="what is pointed at or held up, in words")
    gesture: Name | None = Field(None, description="`pointing`, `holding`, `nodding`, ...")
    facial_affect: Name | None = Field(None, description="one word; the model reads `looks WORD`")

    def about(self, start_us: int, end_us: int) -> VisionPayload:
        """Return the payload of an interval."""
        return VisionPayload(start_us, end_us, self.ref, self.gesture, self.facial_affect)


class GivenDiar(_Given):
    """Speaker of a stretch of speech."""

    speaker_id: Name = Field(description="stable within the session; the model reads it as a name")
    embedding: list[Annotated[float, Field(ge=-1_000, le=1_000)]] = Field(
        default_factory=list, max_length=MOST_EMBEDDING, description="of the voice"
    )

    def about(self, start_us: int, end_us: int) -> DiarPayload:
        """Return the payload of a stretch of speech."""
        return DiarPayload(start_us, end_us, self.speaker_id, tuple(self.embedding))


class _Report(_Given):
    event_us: int | None = Field(
        None, ge=0, le=1 << 62, description="end of what it is about, on the clock of the session"
    )
    age_ms: int | None = Field(
        None, ge=0, le=MOST_AGE_MS, description="in place of `event_us`: time from that end to sending this"
    )
    duration_ms: int = Field(0, ge=0, le=MOST_AGE_MS, description="length of what it is about")
    confidence: Level = Field(1.0, description="below 0.3 it is stored and not shown to the model")
    speaker: Name | None = Field(None, description="person it is about, where that is known")
    identity: Name | None = Field(
        None, description="names a statement that may be revised or sent twice, within its stream"
    )
    revision: int = Field(0, ge=0, le=1_000_000, description="counts up while the statement is revised")
    final: bool = Field(True, description="false: it is going to be revised; needs an `identity`")

    @model_validator(mode="after")
    def _has_one_time(self) -> Self:
        if (self.event_us is None) == (self.age_ms is None):
            raise ValueError("give exactly one of age_ms and event_us")
        if self.identity is None and (self.revision or not self.final):
            raise ValueError("revision and final: false need an identity")
        return self


class ProsodyReport(_Report):
    """Report about the voice."""

    stream: Literal["prosody"]
    payload: GivenProsody | None = None


class VisionReport(_Report):
    """Report about the picture."""

    stream: Literal["vision"]
    payload: GivenVision | None = None


class DiarReport(_Report):
    """Report about who speaks."""

    stream: Literal["diar"]
    payload: GivenDiar | None = None


AnyReport = Annotated[ProsodyReport | VisionReport | DiarReport, Field(discriminator="stream")]


class AnnotationBatch(_Given):
    """Reports of an outside specialist, in the order in which they were made."""

    annotations: list[AnyReport] = Field(
        max_length=MOST_REPORTS, description="none: only the time of the session is requested"
    )

    @property
    def cost(self) -> int:
        """Cost of the batch against the rate."""
        return sum(
            EMBEDDING_COST if isinstance(one.payload, GivenDiar) and one.payload.embedding else COST
            for one in self.annotations
        )


def parse_batch(text: str) -> AnnotationBatch:
    """Return the batch of one message.

    Raises:
        ProtocolError: it is not one; the message says why.
    """
    try:
        return AnnotationBatch.model_validate_json(text)
    except ValidationError as error:
        # Without the input, which is private to the client.
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5]]
        raise ProtocolError("; ".join(faults), code="invalid_annotations") from error


def placed(batch: AnnotationBatch, *, now_us: int, began_us: int) -> list[OutsideReport]:
    """Return the reports with their times on the session clock.

    Args:
        batch: as it arrived.
        now_us: its arrival.
        began_us: beginning of the call, before which nothing can have happened in it.

    Raises:
        ProtocolError: the time of a report is in the future, before the call or too long ago.
    """
    return [
        _placed(one, f"annotations.{place}", now_us=now_us, began_us=began_us)
        for place, one in enumerate(batch.annotations)
    ]


def _placed(one: _Report, where: str, *, now_us: int, began_us: int) -> OutsideReport:
    event_us = now_us - (one.age_ms or 0) * 1000 if one.event_us is None else one.event_us
    if event_us > now_us + CLOCK_TOLERANCE_US:
        raise ProtocolError(
            f"{where}: event_us is {(event_us - now_us) // 1000} ms after the clock of the session, which is "
            f"at {now_us}: count from the now_us of an answer, or send age_ms",
            code="event_in_the_future",
            param=where,
        )
    if event_us < max(began_us - CLOCK_TOLERANCE_US, now_us - MOST_AGE_MS * 1000):
        raise ProtocolError(
            f"{where}: it happened before the call began (event_us {began_us}) or more than {MOST_AGE_MS} ms "
            "ago: report what happens in the call, when it happens",
            code="event_too_old",
            param=where,
        )
    event_us = max(began_us, min(event_us, now_us))
    assert isinstance(one, ProsodyReport | VisionReport | DiarReport)
    stream = Source(one.stream)
    if one.payload is None:
        return OutsideReport(stream, event_us)
    start_us = max(began_us, event_us - one.duration_ms * 1000)
    payload: Payload = one.payload.about(start_us, event_us)
    annotation = Annotation(
        event_us, now_us, stream, payload, one.speaker, confidence=one.confidence, final=one.final
    )
    return OutsideReport(stream, event_us, annotation, one.identity, one.revision)
