"""Reaction of a bot to speech over it: it goes on, answers, or falls silent.

The behaviours of Full-Duplex-Bench v1.5 without its judge. A bot whose voice goes on for a second after the
event resumes: nothing new can begin without a gap. A bot that stopped and speaks again either continues its
speech or says something new. To decide, its words after the stop are compared with those of the same bot in
the same call without the event (``continues``), from the cut on. A bot that says nothing more has resumed
when it had said all of that. Without known words, a bot that speaks again is uncertain.

Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import Enum

from parley.evals.duplex_bench.clips import Event
from parley.evals.duplex_bench.spoken import Segment, Spoken, Word, first_talk

# Longest gap between two clauses.
HOLD_MS = 600
GOES_ON_MS = 1_000
# Number of words after a stop that are compared, and of words before and after the cut among which they are
# searched for. At least this share of them must be there in one piece. Single words are in every answer.
LOOKED_AT, BEFORE, BEHIND = 10, 6, 30
ALIKE, FEWEST = 0.5, 2
# An answer of which this share was said is over.
ALL = 0.95


class Behaviour(Enum):
    """Reactions of a bot."""

    RESUME = "resume"
    RESPOND = "respond"
    SILENT = "silent"
    UNCERTAIN = "uncertain"
    NOT_SPEAKING = "not_speaking"


@dataclass(frozen=True, slots=True)
class Overlap:
    """Result of an event over the bot's voice.

    Attributes:
        behaviour: the reaction.
        stop_ms: from the beginning of the event to the end of the bot's speech. None when the speech went on.
        response_ms: from the end of the event to the next talk of the bot, negative before it. None when
            there is none.
    """

    behaviour: Behaviour
    stop_ms: int | None = None
    response_ms: int | None = None


def overlap(event: Event, spoken: Spoken, clean: Sequence[str] | None) -> Overlap:
    """Return the bot's reaction.

    Args:
        event: speech over the bot.
        spoken: the bot's output.
        clean: its words without the event. None when they are not known.
    """
    stretch = talked_into(event, spoken)
    if stretch is None:
        return Overlap(Behaviour.NOT_SPEAKING)
    if stretch.ended_ms >= event.ended_ms + GOES_ON_MS:
        return Overlap(Behaviour.RESUME)
    stop_ms = stretch.ended_ms - event.began_ms
    again = first_talk(spoken.since(stretch.ended_ms + 1))
    if again is None:
        if spoken.words is not None and clean is not None and _said_all(spoken.words, clean):
            return Overlap(Behaviour.RESUME)
        return Overlap(Behaviour.SILENT, stop_ms)
    response_ms = again.began_ms - event.ended_ms
    if spoken.words is None or clean is None:
        return Overlap(Behaviour.UNCERTAIN, stop_ms, response_ms)
    before = [word.text for word in spoken.words if word.began_ms < stretch.ended_ms]
    after = [word.text for word in spoken.words if word.began_ms >= stretch.ended_ms]
    kept = continues(before, after, clean)
    return Overlap(Behaviour.RESUME if kept else Behaviour.RESPOND, stop_ms, response_ms)


def needs_clean(event: Event, spoken: Spoken) -> bool:
    """Return whether the reaction can be determined only by the same call without the event."""
    doubtful = (Behaviour.UNCERTAIN, Behaviour.SILENT)
    return spoken.words is not None and overlap(event, spoken, None).behaviour in doubtful


def talked_into(event: Event, spoken: Spoken) -> Segment | None:
    """Return the bot's talk at the beginning of the event; None while it is silent."""
    return next(
        (each for each in spoken.joined(HOLD_MS) if each.began_ms <= event.began_ms < each.ended_ms), None
    )


def continues(before: Sequence[str], after: Sequence[str], clean: Sequence[str]) -> bool:
    """Return whether the words after a stop are those that follow the words before it.

    Args:
        before: words up to the stop.
        after: words after it.
        clean: all words of the undisturbed answer.
    """
    said = [_plain(word) for word in after[:LOOKED_AT]]
    first = max(0, len(before) - BEFORE)
    expected = [_plain(word) for word in clean[first : len(before) + BEHIND]]
    if not said or not expected:
        return False
    matcher = SequenceMatcher(None, said, expected, autojunk=False)
    longest = matcher.find_longest_match(0, len(said), 0, len(expected)).size
    return longest >= max(min(FEWEST, len(said)), ALIKE * len(said))


def _said_all(words: Sequence[Word], clean: Sequence[str]) -> bool:
    said = [_plain(word.text) for word in words]
    expected = [_plain(word) for word in clean]
    size = sum(
        block.size for block in SequenceMatcher(None, said, expected, autojunk=False).get_matching_blocks()
    )
    return bool(expected) and size >= ALL * len(expected)


def _plain(word: str) -> str:
    return "".join(letter for letter in word.lower() if letter.isalnum())
