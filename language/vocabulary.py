"""Phrases of a language by which turn-taking classifies what it hears. Tables only."""

from dataclasses import dataclass

from parley.language.words import Spellings, plain

_AS_WRITTEN = Spellings()


def phrases(text: str) -> frozenset[str]:
    """Return the phrases of a text in which commas divide them."""
    return frozenset(phrase.strip() for phrase in text.split(","))


@dataclass(frozen=True, slots=True)
class UtteranceVocabulary:
    """Phrases of a language, lower case without punctuation, words joined by one space.

    Attributes:
        affirmative: phrases that agree; also backchannels, unless a question is open.
        negative: answers that are no backchannels.
        backchannels: phrases of a listener who continues to listen.
        fillers: sounds of a speaker who holds the floor or is about to take it.
        hesitations: words without content that take the floor.
        stops: commands that stop the bot at once.
        polite: words that may stand around all of these.
        stop_tails: words that may follow a stop.
        hums: words that recognisers write for a hum, which alone are no evidence.
        questions: questions of one word.
        withdrawals: phrases that take back a request, wherever they are in a turn.
        lone_withdrawals: phrases that take back a request when nothing else is said.
        acceptances: phrases with which a turn begins that accepts an offer, whatever it says after them.
        negations: words any of which makes a turn no acceptance.
        spellings: other spellings of these phrases in a transcript.
    """

    affirmative: frozenset[str] = frozenset()
    negative: frozenset[str] = frozenset()
    backchannels: frozenset[str] = frozenset()
    fillers: frozenset[str] = frozenset()
    hesitations: frozenset[str] = frozenset()
    stops: frozenset[str] = frozenset()
    polite: frozenset[str] = frozenset()
    stop_tails: frozenset[str] = frozenset()
    hums: frozenset[str] = frozenset()
    questions: frozenset[str] = frozenset()
    withdrawals: frozenset[str] = frozenset()
    lone_withdrawals: frozenset[str] = frozenset()
    acceptances: frozenset[str] = frozenset()
    negations: frozenset[str] = frozenset()
    spellings: Spellings = _AS_WRITTEN

    def words(self, text: str) -> list[str]:
        """Return the words of a text in the spelling of the phrases."""
        return self.spellings.respelled(plain(text))


@dataclass(frozen=True, slots=True)
class AnsweringPhrases:
    """Phrases by which an answering machine and a person are distinguished; the form is that of a vocabulary.

    Attributes:
        machine: phrases of a machine, one of which is enough. Phrases that people say to each other are left
            out, however often a machine says them.
        hints: words that a poor recogniser leaves of these; two of them are needed.
        person: questions to a person who is there.
    """

    machine: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    person: tuple[str, ...] = ()
