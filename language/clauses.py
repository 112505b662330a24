"""Words by which a streamed answer is divided into clauses. Tables only."""

import re
from dataclasses import dataclass

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class ClauseWords:
    """Words around the ends of sentences and clauses, lower case, without their last full stop.

    Attributes:
        abbreviations: their full stop ends no sentence.
        maybe_last: abbreviations that end a sentence when a capital follows: "We open at 9 a.m. Please call."
        before_number: words that are an abbreviation only before a number: "No. 5".
        conjunctions: pattern of the space before a word that begins a clause.
    """

    abbreviations: frozenset[str] = frozenset()
    maybe_last: frozenset[str] = frozenset()
    before_number: frozenset[str] = frozenset()
    conjunctions: re.Pattern[str] = _NEVER
