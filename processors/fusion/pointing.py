"""Find the moment at which a turn points: of its last words such as "this one", or of a gesture. Pure."""

from collections.abc import Sequence

from parley.core.timeline import EnrichedToken, SpokenWord
from parley.language.perceived import PerceivedRules


def pointed_us(
    words: Sequence[SpokenWord], tokens: Sequence[EnrichedToken], rules: PerceivedRules
) -> int | None:
    """Return when a turn points, on the session clock; None when it does not.

    Without words that point, the last token during which something was pointed at or held up counts.

    Args:
        words: of the turn, with their times.
        tokens: the same words with what was perceived.
        rules: of the caller's language.
    """
    text = " ".join(word.text for word in words)
    if (span := rules.last_pointing(text)) is not None:
        return _moment_us(words, sum(span) / 2)
    for token in reversed(tokens):
        if token.visual is not None and (token.visual.ref or token.visual.gesture):
            return max(token.event_us, token.visual.start_us)
    return None


def _moment_us(words: Sequence[SpokenWord], place: float) -> int:
    """Return when a place in the text of some words was said, by its share of the characters of its word."""
    for word in words:
        if place <= len(word.text):
            share = max(0.0, place) / max(1, len(word.text))
            return word.start_us + round((word.end_us - word.start_us) * share)
        place -= len(word.text) + 1
    return words[-1].end_us
