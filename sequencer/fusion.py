"""Fuse words with the annotations of the same moment into tokens.

The committed timeline holds separate reports that a person said "this is fine", that the voice was tense and
that a finger pointed at the fee. ``Fusion`` bundles what belongs to the same moment: each word takes the
speaker, the prosody and the visual tag whose stretch overlaps the word's own, both sides widened by
``epsilon_us``. Of several the one that names what was shown or pointed at counts, then the one that overlaps
most, then the most certain, then a final before a partial, then the newest. A tag that is known to be another
speaker's is not taken. Neighbouring words of one statement with the same tags are one token.

Words wait until the specialists that are active have passed their end, at most ``deadline_us`` from their
arrival. A specialist that is missing costs its own field and nothing else. Typed text is a token at once: no
voice and no gesture goes with it.

Output may be replaced, always as a whole: a newer revision of the words, and a tag that comes after its
words, give another ``Fused`` of the same ``statement``. The newest of a statement holds; its tokens may be
more, fewer or none. After ``remembered_statements`` newer ones, tags do not change a statement any more.

Inputs: reports that ``Sequencer.advance`` committed, the time, and ``Sequencer.passed_us`` of the streams
that give tags. Output: ``Fused``. A call without output changes nothing, so a journal may leave it out.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Generic, NamedTuple, TypeVar

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.timeline import (
    Annotation,
    DiarPayload,
    EnrichedToken,
    ProsodyPayload,
    SpeechPayload,
    TextPayload,
    VisionPayload,
)
from parley.sequencer.merge import Committed

P = TypeVar("P", ProsodyPayload, VisionPayload, DiarPayload)
# The annotations of a word, with the confidence of its mood; neighbours with equal ones are one token.
_Mood = tuple[str | None, str | None, ProsodyPayload | None, float | None, VisionPayload | None]


class FusionSettings(StrictModel):
    """Tolerances of the fusion, and how long words wait for tags."""

    epsilon_us: int = Field(
        100_000, ge=0, le=5_000_000, description="largest distance between a tag and the word it belongs to"
    )
    deadline_us: int = Field(
        500_000,
        ge=0,
        le=60_000_000,
        description="longest wait of words for their tags, from the arrival of the words",
    )
    min_confidence: float = Field(0.3, ge=0, le=1, description="confidence below which a tag is ignored")
    remembered_tags: int = Field(256, ge=1, description="tags of each kind kept for later words")
    remembered_statements: int = Field(64, ge=1, description="statements that a late tag can still change")


@dataclass(frozen=True, slots=True)
class Fused:
    """Words of one statement, said or typed, with all their annotations.

    Attributes:
        number: counts from 0 without a gap.
        statement: identifies the statement; the newest of one statement replaces all earlier ones.
        tokens: in the order of the words; none when the words were taken back.
        final: True when the words are not revised any more. Tags may still come.
        supersedes: True when there is an earlier one of this statement.
    """

    number: int
    statement: int
    tokens: tuple[EnrichedToken, ...]
    final: bool
    supersedes: bool


class _Word(NamedTuple):
    """A word, or all words where the recogniser gives no times."""

    start_us: int
    end_us: int
    text: str


class _Span(NamedTuple):
    """A stretch of time."""

    start_us: int
    end_us: int


class _Tag(NamedTuple, Generic[P]):
    """An annotation of a specialist."""

    start_us: int
    end_us: int
    payload: P
    speaker_id: str | None
    confidence: float
    final: bool
    seq: int


@dataclass(slots=True)
class _Statement:
    """Words that wait, or that were given out.

    Attributes:
        start_us, end_us: first start and last end of the words.
        spoken: True when it takes tags.
        due_us: when it stops waiting for them.
        supersedes: True when an earlier revision was given out.
        tokens: the tokens of the last output.
    """

    statement: int
    words: tuple[_Word, ...]
    start_us: int
    end_us: int
    speaker_id: str | None
    spoken: bool
    final: bool
    due_us: int
    supersedes: bool
    tokens: tuple[EnrichedToken, ...] = ()


class _Tags(Generic[P]):
    """Bounded collection of the tags of one kind by statement, the longest unrevised first."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._tags: OrderedDict[int, _Tag[P]] = OrderedDict()

    def put(self, committed: Committed[Annotation], payload: P) -> list[_Span]:
        """Store a tag; return its stretch, and that of the tag that it replaces."""
        annotation = committed.payload
        tag = _Tag(
            payload.start_us,
            max(payload.start_us, payload.end_us),
            payload,
            annotation.speaker_id,
            annotation.confidence,
            annotation.final,
            committed.seq,
        )
        replaced = self._tags.pop(committed.statement, None)
        self._tags[committed.statement] = tag
        if len(self._tags) > self._remembered:
            self._tags.popitem(last=False)
        return [_Span(each.start_us, each.end_us) for each in (tag, replaced) if each is not None]

    def touching(self, span: _Span, min_confidence: float) -> list[_Tag[P]]:
        """Return the tags that touch a stretch and are certain enough."""
        return [
            tag
            for tag in self._tags.values()
            if tag.start_us <= span.end_us
            and tag.end_us >= span.start_us
            and tag.confidence >= min_confidence
        ]


class Fusion:
    """Fusion of the committed annotations of one session into tokens.

    Args:
        settings: tolerances and waits; None for the defaults.
    """

    def __init__(self, settings: FusionSettings | None = None) -> None:
        self._settings = settings or FusionSettings()
        self._prosody: _Tags[ProsodyPayload] = _Tags(self._settings.remembered_tags)
        self._vision: _Tags[VisionPayload] = _Tags(self._settings.remembered_tags)
        self._diar: _Tags[DiarPayload] = _Tags(self._settings.remembered_tags)
        # Both by statement; those that wait in the order of the timeline.
        self._waiting: OrderedDict[int, _Statement] = OrderedDict()
        self._made: OrderedDict[int, _Statement] = OrderedDict()
        self._number = 0

    @property
    def waiting(self) -> int:
        """Number of statements that are held back, because their tags are expected."""
        return len(self._waiting)

    def advance(
        self, committed: Iterable[Committed[Annotation]], *, now_us: int, passed_us: int | None
    ) -> list[Fused]:
        """Return the statements that are complete by now, and those whose tags have changed.

        Args:
            committed: reports that the sequencer has just committed, in its order.
            now_us: the time.
            passed_us: moment up to which the streams that give tags are committed; None when none is active.
        """
        touched: set[int] = set()
        for one in committed:
            match one.payload.payload:
                case SpeechPayload() | TextPayload():
                    self._say(one)
                case ProsodyPayload() as payload:
                    touched |= self._touched(self._prosody.put(one, payload))
                case VisionPayload() as payload:
                    touched |= self._touched(self._vision.put(one, payload))
                case DiarPayload() as payload:
                    touched |= self._touched(self._diar.put(one, payload))
        fused: list[Fused] = []
        # Words whose next revision waits take the new tags with it.
        for number in sorted(touched - self._waiting.keys()):
            self._revise(self._made[number], fused)
        for statement in self._complete(now_us, passed_us):
            del self._waiting[statement.statement]
            self._make(statement, fused)
        return fused

    def _say(self, committed: Committed[Annotation]) -> None:
        annotation, payload = committed.payload, committed.payload.payload
        words: tuple[_Word, ...] = ()
        if isinstance(payload, SpeechPayload) and payload.words:
            words = tuple(_Word(word.start_us, word.end_us, word.text) for word in payload.words)
        elif isinstance(payload, SpeechPayload | TextPayload) and payload.text:
            words = (_Word(committed.event_us, committed.event_us, payload.text),)
        due_us = committed.arrival_us + self._settings.deadline_us
        supersedes = committed.statement != committed.seq
        waits = self._waiting.get(committed.statement)
        if waits is not None:
            # Its place and its deadline stay: a partial that is revised for ever is given out nevertheless.
            due_us, supersedes = min(due_us, waits.due_us), waits.supersedes
        self._waiting[committed.statement] = _Statement(
            statement=committed.statement,
            words=words,
            start_us=min((word.start_us for word in words), default=committed.event_us),
            end_us=max((word.end_us for word in words), default=committed.event_us),
            speaker_id=annotation.speaker_id,
            spoken=isinstance(payload, SpeechPayload),
            final=annotation.final,
            due_us=due_us,
            supersedes=supersedes,
        )

    def _touched(self, spans: Iterable[_Span]) -> set[int]:
        """Return the statements already given out that tags of these stretches may change."""
        epsilon_us = self._settings.epsilon_us
        return {
            made.statement
            for made in self._made.values()
            for span in spans
            if made.spoken
            and span.start_us <= made.end_us + epsilon_us
            and span.end_us >= made.start_us - epsilon_us
        }

    def _complete(self, now_us: int, passed_us: int | None) -> list[_Statement]:
        """Return the first statements that wait for nothing; an overdue one takes those before it along."""
        waiting = list(self._waiting.values())
        overdue = [number for number, statement in enumerate(waiting, 1) if statement.due_us <= now_us]
        count = overdue[-1] if overdue else 0
        while count < len(waiting) and self._has_its_tags(waiting[count], passed_us):
            count += 1
        return waiting[:count]

    def _has_its_tags(self, statement: _Statement, passed_us: int | None) -> bool:
        if passed_us is None or not statement.spoken or not statement.words:
            return True
        return passed_us >= statement.end_us

    def _make(self, statement: _Statement, fused: list[Fused]) -> None:
        statement.tokens = self._tokens(statement)
        self._made.pop(statement.statement, None)
        self._made[statement.statement] = statement
        if len(self._made) > self._settings.remembered_statements:
            self._made.popitem(last=False)
        self._give_out(statement, fused)

    def _revise(self, statement: _Statement, fused: list[Fused]) -> None:
        tokens = self._tokens(statement)
        if tokens != statement.tokens:
            statement.tokens = tokens
            statement.supersedes = True
            self._give_out(statement, fused)

    def _give_out(self, statement: _Statement, fused: list[Fused]) -> None:
        fused.append(
            Fused(self._number, statement.statement, statement.tokens, statement.final, statement.supersedes)
        )
        self._number += 1

    def _tokens(self, statement: _Statement) -> tuple[EnrichedToken, ...]:
        if not statement.spoken:
            return tuple(
                EnrichedToken(word.start_us, word.text, statement.speaker_id) for word in statement.words
            )
        # Once for the whole statement: a long utterance has dozens of words and the memory hundreds of tags.
        chosen = self._settings
        span = _Span(statement.start_us - chosen.epsilon_us, statement.end_us + chosen.epsilon_us)
        diar = self._diar.touching(span, chosen.min_confidence)
        prosody = self._prosody.touching(span, chosen.min_confidence)
        vision = self._vision.touching(span, chosen.min_confidence)
        tagged: list[tuple[_Word, _Mood]] = []
        for word in statement.words:
            speaker_id, also = statement.speaker_id, None
            if speaker_id is None and (voice := self._best(diar, word, None)) is not None:
                speaker_id, also = voice.payload.speaker_id, voice.payload.also
            how, shown = self._best(prosody, word, speaker_id), self._best(vision, word, speaker_id)
            unsure = how.confidence if how is not None and how.confidence < 1 else None
            seen = (None if how is None else how.payload, unsure, None if shown is None else shown.payload)
            tagged.append((word, (speaker_id, also, *seen)))
        tokens: list[EnrichedToken] = []
        for mood, group in groupby(tagged, key=lambda pair: pair[1]):
            speaker_id, also, prosody_of, confidence, visual = mood
            words = [word for word, _ in group]
            tokens.append(
                EnrichedToken(
                    words[0].start_us,
                    " ".join(word.text for word in words),
                    speaker_id,
                    prosody_of,
                    visual,
                    also=also,
                    mood_confidence=confidence,
                )
            )
        return tuple(tokens)

    def _best(self, tags: Iterable[_Tag[P]], word: _Word, speaker_id: str | None) -> _Tag[P] | None:
        """Return the tag that fits a word best; None without one."""
        epsilon_us = self._settings.epsilon_us
        best: tuple[bool, int, float, bool, int] | None = None
        fitting: _Tag[P] | None = None
        for tag in tags:
            others = None not in (tag.speaker_id, speaker_id) and tag.speaker_id != speaker_id
            start_us = max(tag.start_us, word.start_us - epsilon_us)
            end_us = min(tag.end_us, word.end_us + epsilon_us)
            # "Pointing at the fee" of one program says more than "pointing to the left" of another.
            names = isinstance(tag.payload, VisionPayload) and tag.payload.ref is not None
            rank = (names, end_us - start_us, tag.confidence, tag.final, tag.seq)
            if start_us <= end_us and not others and (best is None or rank > best):
                best, fitting = rank, tag
        return fitting
