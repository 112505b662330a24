"""Words of a recorded call as its recogniser read them: their form in ``recording.json``, and back.

A partial text is written as the length of what it shares with the one before it, and its rest: a minute of
speech has two hundred of them, each a little longer than the last.
"""

import os.path
from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field, ValidationError

from parley.core.call_events import UtteranceRead
from parley.core.media import WordTime

# A recording may come from anywhere: an utterance has no more than this.
MOST_PARTIALS, MOST_WORDS, MOST_CHARACTERS, MOST_MS = 1_000, 5_000, 50_000, 3_600_000
MOST_POSITION_MS = 86_400_000
# Of all partial texts of an utterance, each of which repeats the one before it, and utterances of a call.
MOST_REPEATED, MOST_UTTERANCES = 500_000, 20_000
_TIME_MS = Annotated[int, Field(ge=0, le=MOST_MS)]
# Recordings of earlier releases have none.
_POSITION_MS = Annotated[int | None, Field(ge=0, le=MOST_POSITION_MS)]
_SHARE = Annotated[float, Field(ge=0, le=1)]
_TEXT = Annotated[str, Field(max_length=MOST_CHARACTERS)]


class _Utterance(BaseModel):
    at_ms: int
    recogniser: _TEXT
    since_ms: _TIME_MS
    audio_ms: _TIME_MS
    took_ms: _TIME_MS
    partials: Annotated[list[tuple[_TIME_MS, _TIME_MS, _TEXT]], Field(max_length=MOST_PARTIALS)]
    text: _TEXT
    words: Annotated[list[tuple[_TEXT, _TIME_MS, _TIME_MS, _SHARE, bool]], Field(max_length=MOST_WORDS)]
    confidence: _SHARE
    floor_log_odds: float | None
    heard_ms: _POSITION_MS = None


def as_message(event: UtteranceRead) -> dict[str, Any]:
    """Return the facts of an utterance for JSON, without its time."""
    partials, before = [], ""
    for after_ms, text in event.partials:
        kept = len(os.path.commonprefix((before, text)))
        partials.append((after_ms, kept, text[kept:]))
        before = text
    return {
        "recogniser": event.recogniser,
        "since_ms": event.since_ms,
        "audio_ms": event.audio_ms,
        "took_ms": event.took_ms,
        "partials": partials,
        "text": event.text,
        "words": [
            (word.text, word.start_ms, word.end_ms, round(word.confidence, 4), word.estimated)
            for word in event.words
        ],
        "confidence": event.confidence,
        "floor_log_odds": event.floor_log_odds,
        "heard_ms": event.heard_ms,
    }


def utterances_of(
    events: Iterable[Mapping[str, Any]], arrival_ms: float, *, left_out_ms: int = 0
) -> tuple[UtteranceRead, ...]:
    """Return the utterances among the events of a timeline, with times from the caller's arrival.

    ``left_out_ms`` is the length of the caller's first audio that is not held again. An utterance that is not
    in the form of this module is left out: its words are read anew.
    """
    found = []
    for each in events:
        if each["event"] == UtteranceRead.__name__:
            try:
                found.append(_read(_Utterance.model_validate(each), arrival_ms, left_out_ms))
            except ValidationError:
                continue
        if len(found) == MOST_UTTERANCES:
            break
    return tuple(found)


def _read(given: _Utterance, arrival_ms: float, left_out_ms: int) -> UtteranceRead:
    partials, text, repeated = [], "", 0
    for after_ms, kept, rest in given.partials:
        text = (text[:kept] + rest)[:MOST_CHARACTERS]
        repeated += len(text)
        if repeated > MOST_REPEATED:
            break
        partials.append((after_ms, text))
    return UtteranceRead(
        round(given.at_ms - arrival_ms),
        recogniser=given.recogniser,
        since_ms=given.since_ms,
        audio_ms=given.audio_ms,
        took_ms=given.took_ms,
        partials=tuple(partials),
        text=given.text,
        words=tuple(WordTime(*word) for word in given.words),
        confidence=given.confidence,
        floor_log_odds=given.floor_log_odds,
        heard_ms=None if given.heard_ms is None else max(0, given.heard_ms - left_out_ms),
    )
