"""Decide when the bot asks back instead of answering, because recognition is in doubt.

Inputs: the caller's final words with the recogniser's confidence in each, the words of the bot, and each turn
as it is recorded. Output for a turn: ``AskBack`` (say this, and do not send the turn to the model),
``Confirmed`` (the turn before was recognised correctly: send that one), or None (send this one).

A turn is doubtful when the mean confidence of its words is below ``below``. The bot asks back at most once in
a row: the turn after the question goes to the model. Below ``lost_below`` nothing was understood, as with
another language. The recogniser's words are then neither repeated nor answered, and each time the caller is
asked to say it again.

Three kinds of turn are never asked back. First, a turn whose confidence is not known (a service that does not
report it, typed text). Second, a turn of so few words that repeating them does not help. Third, above
``lost_below``, a short answer to a question of the bot, since the context is known.

The module is pure; it holds one turn's words and whether a question of this kind is open.
"""

import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.language import Language, find_language
from parley.language.words import asks


class AskBackSettings(StrictModel):
    """Conditions of a doubtful turn, and the phrases for it."""

    # Of PocketSphinx's turns in synthetic voices (``research.turn_taking.confidence``, 144 reported) 0.4
    # asks back 76 % of those with a third of their words wrong, and 13 % of the others; 0.5 90 % and 24 %.
    below: float = Field(
        0.4, gt=0, le=1, description="mean confidence of the words below which a turn is doubtful"
    )
    repeat: str = Field(
        "I heard: {words}. Is that right?",
        min_length=1,
        description="question to the caller; ``{words}`` is replaced by the recognised words",
    )
    again: str = Field(
        "Sorry, I am not sure I got that. Could you say it again in fewer words?",
        min_length=1,
        description="question when the words are too many, or too doubtful, to repeat",
    )


class AskBackTuning(AskBackSettings):
    """Settings of asking back including the values that no deployment sets."""

    # A fact of a recogniser (``RecogniserTraits.lost_below``); most cannot be judged by it.
    lost_below: float = Field(
        0.0,
        ge=0,
        le=1,
        description="mean confidence below which a turn counts as not understood; 0: never",
    )
    least_words: int = Field(3, ge=1, le=50, description="words below which a turn is not asked about")
    answer_words: int = Field(
        5, ge=0, le=50, description="words up to which an answer to a question of the bot is not asked about"
    )
    most_words: int = Field(
        15, ge=1, le=100, description="words above which a turn is not repeated; ``again`` is used instead"
    )


def is_doubtful(settings: AskBackSettings | None, text: str, confidences: Sequence[float] | None) -> bool:
    """Return whether these words are of so low a confidence that the bot would ask about them.

    Args:
        settings: thresholds; None for the defaults.
        text: the words.
        confidences: 0..1, one for each word; None or another number where they are not known.
    """
    chosen, words = tuned(AskBackTuning, settings), text.split()
    if confidences is None or len(confidences) != len(words) or len(words) < chosen.least_words:
        return False
    return statistics.fmean(confidences) < max(chosen.below, chosen.lost_below)


@dataclass(frozen=True, slots=True)
class AskBack:
    """Say this in place of an answer.

    Attributes:
        text: the question.
        confidence: mean of the turn's words.
    """

    text: str
    confidence: float


@dataclass(frozen=True, slots=True)
class Confirmed:
    """Notice that the turn before this one was recognised correctly, as it was repeated."""


class Clarification:
    """State of asking back in one call.

    Args:
        settings: thresholds and phrases; None for the defaults.
        language: that of the caller; None for the default language.
    """

    def __init__(self, settings: AskBackSettings | None = None, *, language: Language | None = None) -> None:
        self._settings = tuned(AskBackTuning, settings)
        spoken = language or find_language()
        self._vocabulary, self._intents = spoken.vocabulary, spoken.intents
        self._words: list[str] = []
        self._confidences: list[float] = []
        self._is_known = True
        self._bot_asked = False
        # The question that is not answered yet, and whether it repeated the words.
        self._open: AskBack | None = None
        self._repeats = False

    @property
    def is_open(self) -> bool:
        """True when the next turn is the answer to a question of this kind."""
        return self._open is not None

    def on_words(self, text: str, confidences: Sequence[float] | None) -> None:
        """Add final words of the turn.

        Args:
            text: the words.
            confidences: 0..1, one for each word; None when the recogniser does not report them.
        """
        words = text.split()
        self._words.extend(words)
        if confidences is None or len(confidences) != len(words):
            self._is_known = False
        else:
            self._confidences.extend(confidences)

    def forget(self) -> None:
        """Discard the words since the last turn, which were not meant."""
        self._words, self._confidences, self._is_known = [], [], True

    def close(self) -> None:
        """Note that the turn needs no answer of the model: no turn is in doubt any more."""
        self.forget()
        self._open = None

    def on_bot_said(self, text: str) -> None:
        """Register the last words of the bot, as far as they were heard."""
        if text.strip():
            self._bot_asked = asks(text)

    def on_turn(self, said: str) -> AskBack | Confirmed | None:
        """Decide about a turn that is over and recorded with these words."""
        words, confidences, is_known = self._words, self._confidences, self._is_known
        self.forget()
        chosen, asked, self._open = self._settings, self._open, None
        if self._intents.is_farewell(said):
            # The call ends after it: a question would not be answered.
            return None
        # Typed text, or words of another turn mixed with these: their confidence is not known.
        is_known = is_known and bool(words) and words == said.split()
        confidence = statistics.fmean(confidences) if is_known else 1.0
        is_long = len(words) >= chosen.least_words
        if confidence < chosen.lost_below and is_long:
            return self._ask(chosen.again, confidence, repeats=False)
        if asked is not None:
            return Confirmed() if self._repeats and self._agrees(said) else None
        is_answer = self._bot_asked and len(words) <= chosen.answer_words
        if not is_known or confidence >= chosen.below or not is_long or is_answer:
            return None
        repeats = len(words) <= chosen.most_words
        text = chosen.repeat.replace("{words}", " ".join(words)) if repeats else chosen.again
        return self._ask(text, confidence, repeats=repeats)

    def _agrees(self, said: str) -> bool:
        return is_made_of(self._vocabulary.words(said), self._vocabulary.affirmative)

    def _ask(self, text: str, confidence: float, *, repeats: bool) -> AskBack:
        self._repeats = repeats
        self._open = AskBack(text, confidence)
        return self._open


def is_made_of(words: Sequence[str], phrases: Collection[str]) -> bool:
    """Return whether the words are a sequence of these phrases: "yes that's right"."""
    longest = max((len(phrase.split()) for phrase in phrases), default=0)
    reached = {0}
    for end in range(1, len(words) + 1):
        starts = reached.intersection(range(max(0, end - longest), end))
        if any(" ".join(words[start:end]) in phrases for start in starts):
            reached.add(end)
    return bool(words) and len(words) in reached
