"""What happened, when, and how surely: the types that cross from perception to memory.

Specialists report ``Annotation``s, the sequencer orders them, fusion bundles them into ``EnrichedToken``s,
and playout states in ``HeardMark``s what the person heard of a reply. All moments are integer microseconds on
the session clock: ``event_us`` is when something happened at the edge, ``arrival_us`` when this process
learnt of it. They are never one field.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Source(StrEnum):
    """Who reports."""

    STT = "stt"
    PROSODY = "prosody"
    VISION = "vision"
    TEXT = "text"
    DIAR = "diar"


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word on the session clock."""

    text: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class SpeechPayload:
    """What was said.

    Attributes:
        text: the words in order, one space between them.
        words: with their times; empty when the recogniser gives none.
    """

    text: str
    words: tuple[SpokenWord, ...] = ()


@dataclass(frozen=True, slots=True)
class ProsodyPayload:
    """How it was said; each 0..1, or None where the specialist does not know.

    Attributes:
        start_us, end_us: the stretch of speech that was judged.
        pitch_hz: median fundamental frequency of the stretch.
    """

    start_us: int
    end_us: int
    anger: float | None = None
    joy: float | None = None
    stress: float | None = None
    certainty: float | None = None
    pitch_hz: float | None = None


@dataclass(frozen=True, slots=True)
class VisionPayload:
    """What was shown.

    Attributes:
        start_us, end_us: how long it was seen.
        ref: what is pointed at or held up, in words.
        gesture: one word.
        facial_affect: one word.
    """

    start_us: int
    end_us: int
    ref: str | None = None
    gesture: str | None = None
    facial_affect: str | None = None


@dataclass(frozen=True, slots=True)
class TextPayload:
    """What was typed."""

    text: str


@dataclass(frozen=True, slots=True)
class DiarPayload:
    """Who spoke.

    Attributes:
        start_us, end_us: the stretch of speech.
        speaker_id: stable within the session.
        embedding: of the voice, or empty.
    """

    start_us: int
    end_us: int
    speaker_id: str
    embedding: tuple[float, ...] = ()


Payload = SpeechPayload | ProsodyPayload | VisionPayload | TextPayload | DiarPayload


@dataclass(frozen=True, slots=True)
class Annotation:
    """One report of one specialist.

    Attributes:
        event_us: when it happened at the edge, the specialist's latency subtracted.
        arrival_us: when it came in.
        source: who reports.
        payload: what.
        speaker_id: whose it is, where that is known.
        confidence: 0..1.
        final: a partial may be revised, a final may not.
    """

    event_us: int
    arrival_us: int
    source: Source
    payload: Payload
    speaker_id: str | None = None
    confidence: float = 1.0
    final: bool = True


@dataclass(frozen=True, slots=True)
class EnrichedToken:
    """Words with everything that was perceived about them at the same time.

    Attributes:
        event_us: of the first word.
        text: one or more words.
        speaker_id: who said or typed them.
        prosody: how; None when nobody judged it.
        visual: what was shown meanwhile; None when nothing was seen.
        truncated: the speaker was cut off in it.
    """

    event_us: int
    text: str
    speaker_id: str | None = None
    prosody: ProsodyPayload | None = None
    visual: VisionPayload | None = None
    truncated: bool = False


class HeardSource(StrEnum):
    """Who says what was heard, the surest last."""

    ESTIMATED = "estimated"
    PLAYOUT_CLOCK = "playout_clock"
    CLIENT_REPORT = "client_report"


@dataclass(frozen=True, slots=True)
class HeardMark:
    """How much of a reply reached the person's ear.

    Attributes:
        reply_id: which reply.
        audio_ms: audio of it that was played.
        last_word: index of the last word heard, counted from 0; -1 before the first.
        source: who says so.
    """

    reply_id: str
    audio_ms: int
    last_word: int
    source: HeardSource = field(default=HeardSource.PLAYOUT_CLOCK)


@dataclass(frozen=True, slots=True)
class HeardSoFar:
    """Progress of a reply that still plays.

    Attributes:
        reply_id: which reply.
        text: what was heard of it.
        mark: the same as a position.
        at_us: when, on the session clock.
        in_context: whether it is part of the conversation; a filler is not.
    """

    reply_id: str
    text: str
    mark: HeardMark
    at_us: int
    in_context: bool = True


@dataclass(frozen=True, slots=True)
class HeardReply:
    """A reply that is over.

    Attributes:
        reply_id: which reply.
        text: what was heard, as the conversation remembers it.
        unheard: the rest of what is known of the reply: what the model wrote, as far as it came.
        truncated: words of it were not heard, or it was cut off before all of it was written.
        mark: how far it was heard.
        in_context: whether it is part of the conversation; a filler is not.
        started_us: when its first sound reached the ear, None when none did.
        ended_us: when its last sound did, or when it was cut off without any.
        delay_ms: what was believed of the client's delay when the reply was over.
        delay_reported: the client or the transport said so; otherwise it is the setting.
    """

    reply_id: str
    text: str
    unheard: str
    truncated: bool
    mark: HeardMark
    in_context: bool
    started_us: int | None
    ended_us: int
    delay_ms: int = 0
    delay_reported: bool = False

    @property
    def is_known(self) -> bool:
        """Return whether there is anything to record: a response that only calls tools leaves nothing."""
        return bool(self.text or self.unheard or self.mark.audio_ms)

    def as_message(self) -> dict[str, object]:
        """For the client and for files."""
        return {
            "kind": "heard",
            "reply_id": self.reply_id,
            "text": self.text,
            "unheard": self.unheard,
            "truncated": self.truncated,
            "audio_ms": self.mark.audio_ms,
            "last_word": self.mark.last_word,
            "source": self.mark.source.value,
            "in_context": self.in_context,
            "client_delay_ms": self.delay_ms,
            "client_delay_reported": self.delay_reported,
        }
