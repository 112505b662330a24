"""Interface of the rules for cues: signs in the words of a turn that more is coming. Pure."""

from enum import Enum
from typing import Protocol

from parley.language.words import asks


class WordCue(Enum):
    """Sign that the last words give, the strongest first."""

    NO_WORDS = "no_words"
    SPELLING = "spelling"
    FILLER = "filler"
    HANGING = "hanging"
    OPEN_NUMBER = "open_number"
    OPEN_ADDRESS = "open_address"
    TRAILING = "trailing"
    CLOSING = "closing"
    PLAIN = "plain"


class QuestionKind(Enum):
    """Kind of answer that the bot's last words asked for.

    A question for a yes or a no is a ``CHOICE``, any other a ``QUESTION``.
    """

    NOTHING = "nothing"
    CHOICE = "choice"
    QUESTION = "question"
    NUMBER = "number"
    ADDRESS = "address"
    SPELLING = "spelling"


class SyntaxSign(Enum):
    """Sign of how whole a sentence is. All but VERB are counted as signs that it goes on."""

    MODIFIER = "modifier"
    VERB = "verb"
    CLAUSE = "clause"
    NOUN_PHRASE = "noun_phrase"


class CueRules(Protocol):
    """Rules for the last words of a turn, in one language."""

    def words_of(self, text: str, /) -> list[str]:
        """Return the words in lower case, without the punctuation around each word."""
        ...

    def ends_hanging(self, text: str, /) -> bool:
        """Return whether the words end inside a clause or on a hesitation."""
        ...

    def may_trail(self, text: str, /) -> bool:
        """Return whether a sentence may end on the last word but often continues after it."""
        ...

    def asked_for(self, text: str, /) -> QuestionKind:
        """Return the kind of answer that the last sentence of the bot asks for."""
        ...

    def is_question(self, text: str, /) -> bool:
        """Return whether the words ask for something."""
        ...

    def is_statement(self, text: str, /) -> bool:
        """Return whether a sentence of some length asks for nothing: a story is not finished with it."""
        ...

    def word_cue(self, text: str, asked: QuestionKind = QuestionKind.NOTHING, /) -> WordCue:
        """Return the strongest sign in the last words of ``text``."""
        ...


class SyntaxRules(Protocol):
    """Rules for the grammar of a turn, in one language."""

    def syntax_signs(self, text: str, /) -> frozenset[SyntaxSign]:
        """Return the signs in ``text``; none without words."""
        ...


class NoCues:
    """Rules of a language that has none: words are no sign of an end, nor of more."""

    def words_of(self, text: str, /) -> list[str]:
        """Return the words in lower case, without the punctuation around each word."""
        stripped = (word.strip(".,!?;:-\"'()") for word in text.lower().split())
        return [word for word in stripped if word]

    def ends_hanging(self, text: str, /) -> bool:
        """Return False."""
        return False

    def may_trail(self, text: str, /) -> bool:
        """Return False."""
        return False

    def asked_for(self, text: str, /) -> QuestionKind:
        """Return a question for a question mark."""
        return QuestionKind.QUESTION if asks(text) else QuestionKind.NOTHING

    def is_question(self, text: str, /) -> bool:
        """Return whether the text ends with a question mark."""
        return asks(text)

    def is_statement(self, text: str, /) -> bool:
        """Return False."""
        return False

    def word_cue(self, text: str, asked: QuestionKind = QuestionKind.NOTHING, /) -> WordCue:
        """Return ``PLAIN`` for any words."""
        return WordCue.PLAIN if self.words_of(text) else WordCue.NO_WORDS

    def syntax_signs(self, text: str, /) -> frozenset[SyntaxSign]:
        """Return no sign."""
        return frozenset()
