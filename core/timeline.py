"""Types that cross from perception to memory: events with their time and confidence.

Specialists report ``Annotation``s, the sequencer orders them, and fusion combines them into
``EnrichedToken``s. Playout reports in ``HeardMark``s how much of a reply the person heard. All moments are
integer microseconds on the session clock. ``event_us`` is when something happened at the edge, ``arrival_us``
when this process received it; the two are always separate fields.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Source(StrEnum):
    """Specialist that reports an annotation."""

    STT = "stt"
    PROSODY = "prosody"
    VISION = "vision"
    TEXT = "text"
    DIAR = "diar"


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """Word with its times on the session clock."""

    text: str
    start_us: int
    end_us: int


@dataclass(frozen=True, slots=True)
class SpeechPayload:
    """Words of an utterance.

    Attributes:
        text: the words in order, separated by single spaces.
        words: with their times; empty when the recogniser gives none.
    """

    text: str
    words: tuple[SpokenWord, ...] = ()


@dataclass(frozen=True, slots=True)
class ProsodyPayload:
    """Manner of speaking; moods are 0..1. A value that the specialist does not report is None.

    Attributes:
        start_us, end_us: stretch of speech that was judged.
        pitch_hz: median fundamental frequency of the stretch.
        pitch_offset_semitones: height of the pitch against the speaker's own speech so far.
        level_offset_db: loudness against the speaker's own speech so far.
        tempo_offset: logarithm of how fast the sound changes, against the speaker's own speech so far.
    """

    start_us: int
    end_us: int
    anger: float | None = None
    joy: float | None = None
    stress: float | None = None
    certainty: float | None = None
    pitch_hz: float | None = None
    pitch_offset_semitones: float | None = None
    level_offset_db: float | None = None
    tempo_offset: float | None = None


@dataclass(frozen=True, slots=True)
class VisionPayload:
    """Visible behaviour.

    Attributes:
        start_us, end_us: interval in which it was seen.
        ref: object that is pointed at or held up, in words.
        gesture: a few words: "pointing", "thumbs up".
        facial_affect: one word.
        faces: number of faces in the picture.
        looking: "here" or "away": where the largest face is turned, seen from the camera.
        at: place of what points, in parts of the picture from its left and from its top.
    """

    start_us: int
    end_us: int
    ref: str | None = None
    gesture: str | None = None
    facial_affect: str | None = None
    faces: int | None = None
    looking: str | None = None
    at: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class TextPayload:
    """Typed text."""

    text: str


@dataclass(frozen=True, slots=True)
class DiarPayload:
    """Speaker of a stretch of speech.

    Attributes:
        start_us, end_us: the stretch of speech.
        speaker_id: stable within the session.
        embedding: of the voice, or empty.
        also: another speaker, who speaks at the same time.
    """

    start_us: int
    end_us: int
    speaker_id: str
    embedding: tuple[float, ...] = ()
    also: str | None = None


@dataclass(frozen=True, slots=True)
class KnownVoice:
    """Voiceprint of a speaker: personal data.

    Attributes:
        speaker_id: stable within the session.
        embedding: mean over their speech, of length 1.
        seconds: speech that it rests on.
    """

    speaker_id: str
    embedding: tuple[float, ...]
    seconds: float


Payload = SpeechPayload | ProsodyPayload | VisionPayload | TextPayload | DiarPayload


@dataclass(frozen=True, slots=True)
class Annotation:
    """Report of one specialist.

    Attributes:
        event_us: when it happened at the edge, with the specialist's latency subtracted.
        arrival_us: when this process received it.
        source: the specialist that reports.
        payload: content of the report.
        speaker_id: person it is about, where that is known.
        confidence: 0..1.
        final: true when the report cannot be revised; a partial may be.
    """

    event_us: int
    arrival_us: int
    source: Source
    payload: Payload
    speaker_id: str | None = None
    confidence: float = 1.0
    final: bool = True


@dataclass(frozen=True, slots=True)
class OutsideReport:
    """Report of a program outside of this process.

    Attributes:
        stream: the specialist.
        passed_us: moment of the report; without an annotation, nothing more is to be reported up to it.
        annotation: None for such a heartbeat.
        identity: identifies the statement within the stream, when it may be revised.
        revision: counts up while it is.
    """

    stream: Source
    passed_us: int
    annotation: Annotation | None = None
    identity: str | None = None
    revision: int = 0


@dataclass(frozen=True, slots=True)
class EnrichedToken:
    """Words with everything that was perceived about them at the same time.

    Attributes:
        event_us: of the first word.
        text: one or more words.
        speaker_id: person who said or typed them.
        prosody: manner of speaking; None when it was not judged.
        visual: visible behaviour meanwhile; None when nothing was seen.
        truncated: true when the speaker was cut off in it.
        also: another person, who spoke at the same time.
        mood_confidence: of the moods in ``prosody``, where it is below 1; otherwise None.
    """

    event_us: int
    text: str
    speaker_id: str | None = None
    prosody: ProsodyPayload | None = None
    visual: VisionPayload | None = None
    truncated: bool = False
    also: str | None = None
    mood_confidence: float | None = None


class HeardSource(StrEnum):
    """Origin of the information about what was heard, the most reliable last."""

    ESTIMATED = "estimated"
    PLAYOUT_CLOCK = "playout_clock"
    CLIENT_REPORT = "client_report"


@dataclass(frozen=True, slots=True)
class HeardMark:
    """Extent of a reply that the person heard.

    Attributes:
        reply_id: of the reply.
        audio_ms: duration of the audio that was played.
        last_word: index of the last word heard, counted from 0; -1 before the first.
        source: origin of this information.
    """

    reply_id: str
    audio_ms: int
    last_word: int
    source: HeardSource = field(default=HeardSource.PLAYOUT_CLOCK)


@dataclass(frozen=True, slots=True)
class HeardSoFar:
    """Progress of a reply that is still playing.

    Attributes:
        reply_id: of the reply.
        text: part that was heard.
        mark: the same as a position.
        at_us: moment on the session clock.
        in_context: true when it is part of the conversation; false for a filler.
        rest: the rest of the reply as far as the model had written it.
    """

    reply_id: str
    text: str
    mark: HeardMark
    at_us: int
    in_context: bool = True
    rest: str = ""


@dataclass(frozen=True, slots=True)
class HeardReply:
    """Outcome of a reply that is over.

    Attributes:
        reply_id: of the reply.
        text: part that was heard, as the conversation records it.
        unheard: the rest of the reply as far as the model had written it.
        truncated: words of it were not heard, or it was cut off before all of it was written.
        mark: position up to which it was heard.
        in_context: true when it is part of the conversation; false for a filler.
        started_us: when its first sound was played to the person; None when none was.
        ended_us: when its last sound was, or when it was cut off without any.
        delay_ms: assumed delay of the client when the reply ended.
        delay_reported: true when the client or the transport reported it; otherwise it is the setting.
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
        """True when there is anything to record; a response that only calls tools leaves nothing."""
        return bool(self.text or self.unheard or self.mark.audio_ms)

    def as_message(self) -> dict[str, object]:
        """Return the record as JSON values, for the client and for files."""
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
