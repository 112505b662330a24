"""Align the annotations of a turn with the words of its record.

A recogniser's words go two ways: as text into the record, and through fusion into tokens. The two may differ:
a final that came late, a service whose text is not the sum of its words. The model must not read other words
than the record holds, so the words of the record are taken and the tokens' tags are laid onto them. Words are
compared in order, without case and marks. A word that both have keeps its tags, any other has none. The
module is pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import SequenceMatcher
from itertools import groupby

from parley.core.timeline import EnrichedToken, ProsodyPayload, VisionPayload
from parley.processors.dialogue.llm_timeouts import words_of

_Mood = tuple[str | None, ProsodyPayload | None, VisionPayload | None, bool, str | None, float | None]


def align_tags(text: str, tokens: Sequence[EnrichedToken]) -> list[EnrichedToken]:
    """Return exactly the words of ``text``, with the tags of the same words in ``tokens``."""
    written = text.split()
    units = [words_of(word) for word in written]
    heard = [(unit, token) for token in tokens for unit in words_of(token.text)]
    matcher = SequenceMatcher(
        None, [unit for word in units for unit in word], [unit for unit, _ in heard], autojunk=False
    )
    matched = {
        block.a + step: heard[block.b + step][1]
        for block in matcher.get_matching_blocks()
        for step in range(block.size)
    }
    carriers: list[EnrichedToken | None] = []
    position = 0
    for word in units:
        if word:
            carriers.append(_agreed([matched.get(position + step) for step in range(len(word))]))
            position += len(word)
        else:
            # A dash or an emoji goes with the word before it.
            carriers.append(carriers[-1] if carriers else None)
    tagged = zip(written, carriers, _speakers(carriers), strict=True)
    return [
        _token(mood, list(group))
        for mood, group in groupby(tagged, key=lambda each: _mood(carrier=each[1], speaker_id=each[2]))
    ]


def _agreed(tokens: Iterable[EnrichedToken | None]) -> EnrichedToken | None:
    """Return the token of all parts of a word ("well-known" has two); None when they do not agree."""
    first, *others = tokens
    if first is None or any(each is None or not _same_mood(each, first) for each in others):
        return None
    return first


def _same_mood(one: EnrichedToken, other: EnrichedToken) -> bool:
    return replace(one, event_us=0, text="") == replace(other, event_us=0, text="")


def _speakers(carriers: Sequence[EnrichedToken | None]) -> list[str | None]:
    """Return the speaker of each word; a word without one takes that of its neighbours, when they agree."""
    speakers: list[str | None] = [None] * len(carriers)
    known = [
        at for at, carrier in enumerate(carriers) if carrier is not None and carrier.speaker_id is not None
    ]
    for at, carrier in enumerate(carriers):
        if carrier is not None and carrier.speaker_id:
            speakers[at] = carrier.speaker_id
            continue
        before = next((n for n in reversed(known) if n < at), None)
        after = next((n for n in known if n > at), None)
        around = {found.speaker_id for n in (before, after) if n is not None and (found := carriers[n])}
        speakers[at] = around.pop() if len(around) == 1 else None
    return speakers


def _mood(*, carrier: EnrichedToken | None, speaker_id: str | None) -> _Mood:
    if carrier is None:
        return speaker_id, None, None, False, None, None
    return (
        speaker_id,
        carrier.prosody,
        carrier.visual,
        carrier.truncated,
        carrier.also,
        carrier.mood_confidence,
    )


def _token(mood: _Mood, words: list[tuple[str, EnrichedToken | None, str | None]]) -> EnrichedToken:
    speaker_id, prosody, visual, truncated, also, confidence = mood
    event_us = next((carrier.event_us for _, carrier, _ in words if carrier is not None), 0)
    text = " ".join(word for word, _, _ in words)
    return EnrichedToken(event_us, text, speaker_id, prosody, visual, truncated, also, confidence)
