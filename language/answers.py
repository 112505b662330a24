"""Words of questions to documents, and the phrases around an answer. Tables only."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

_NEVER = re.compile(r"(?!)")


@dataclass(frozen=True, slots=True)
class QuestionWords:
    """Words by which a question and its answer are chosen, lower case; terms are stems.

    Attributes:
        asking: question words.
        open_questions: first words of a question that is not for yes or no.
        lists: first words of a question for several things.
        yes_no: first words of a question for yes or no.
        how_to: beginnings of a question about how something is done.
        sources: questions for the source of an answer.
        follow_ups: beginnings of a question that depends on the one before.
        pointing: words that refer to what was said before.
        joining: words that join a statement and a question.
        amounts: words that ask for one statement of a passage, in any question.
        leaning: first words of a statement that depends on the one before it.
        objects: pronouns near the beginning of a statement that stand for something in the one before it.
        also: words near the beginning of a statement that adds to the main one.
        exceptions: words of a statement that restricts another one.
        denying: beginnings of words that negate another word.
        range: pattern of a limit: the kind of limit, the number, the unit.
        upper: the kinds of limit that are upper ones.
        choice: pattern of a question that asks to compare or to choose.
        open_choice: pattern of a question that asks for advice.
        yes: contents of a cell that mean yes.
        no: contents of a cell that mean no.
        largest: superlatives of any large number.
        smallest: superlatives of any small number.
        with_more: adjectives that compare only with one of ``more``.
        more: words that make an adjective a comparison.
        fitting: terms of a question for yes or no that no heading has: "suited for".
        bounds: terms in the name of a column that do not describe its content.
        adjectives: adjective -> true when a small number is meant, and the terms of the columns that it
            refers to.
        articles: words at the beginning of a name that stay as they are.
        rewordings: patterns of whole questions, each with what documents that answer it talk about, as a
            template of ``re.Match.expand``.
    """

    asking: frozenset[str] = frozenset()
    open_questions: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    yes_no: frozenset[str] = frozenset()
    how_to: tuple[str, ...] = ()
    sources: frozenset[str] = frozenset()
    follow_ups: tuple[str, ...] = ()
    pointing: frozenset[str] = frozenset()
    joining: frozenset[str] = frozenset()
    amounts: frozenset[str] = frozenset()
    leaning: frozenset[str] = frozenset()
    objects: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    exceptions: frozenset[str] = frozenset()
    denying: tuple[str, ...] = ()
    range: re.Pattern[str] = _NEVER
    upper: frozenset[str] = frozenset()
    choice: re.Pattern[str] = _NEVER
    open_choice: re.Pattern[str] = _NEVER
    yes: frozenset[str] = frozenset()
    no: frozenset[str] = frozenset()
    largest: frozenset[str] = frozenset()
    smallest: frozenset[str] = frozenset()
    with_more: frozenset[str] = frozenset()
    more: frozenset[str] = frozenset()
    fitting: frozenset[str] = frozenset()
    bounds: frozenset[str] = frozenset()
    adjectives: Mapping[str, tuple[bool, frozenset[str]]] = field(default_factory=dict)
    articles: frozenset[str] = frozenset()
    rewordings: tuple[tuple[re.Pattern[str], str], ...] = ()

    def reworded(self, question: str) -> list[str]:
        """Return other wordings of a question in lower case without punctuation."""
        found = ((pattern.fullmatch(question), wording) for pattern, wording in self.rewordings)
        return [match.expand(wording) for match, wording in found if match is not None]


@dataclass(frozen=True, slots=True)
class AnswerPhrases:
    """Phrases around an answer from documents; where there are several, they are used in turn.

    Attributes:
        greeting: before the caller has spoken; ``{name}`` is the agent, ``{topics}`` a spoken list of topics.
        ask_again: for noise.
        other_language: for another language than ``{language}``.
        no_human: for a request for a person.
        no_pictures: for a picture, which no engine of documents sees; an answer to the words may follow.
        sounds_unhappy: for words of consent that were said in an angry or tense voice.
        disagree: for two people who want opposite things: ``{first}`` and ``{second}`` are their words.
        farewell: for a farewell.
        moment: for a request to wait.
        stopped: for a command to stop.
        nothing_said: for "say that again" before any answer.
        no_advice: before the facts for a choice, with a space at its end.
        unknown: for a question without an answer; ``{topics}`` are some that have one.
        source: for a question for the source; ``{source}`` is the name of the document.
        the: before the name of a document that has no article, with a space at its end.
        all_said: for "more" after everything of ``{topic}`` was said.
        related: after that, with the next ``{topics}``.
        either: between the last two items of a choice.
    """

    greeting: str = "{name}: {topics}."
    ask_again: tuple[str, ...] = ("?",)
    other_language: str = "{language}!"
    no_human: str = "-"
    no_pictures: str = "-"
    sounds_unhappy: str = "?"
    disagree: str = "{first} / {second}?"
    farewell: str = "-"
    moment: str = "-"
    stopped: str = "-"
    nothing_said: str = "-"
    no_advice: str = ""
    unknown: tuple[str, ...] = ("? {topics}.",)
    source: str = "{source}."
    the: str = ""
    all_said: str = "{topic}."
    related: str = " {topics}?"
    either: str = "/"
