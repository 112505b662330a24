"""Decides which statements of a chosen passage answer a question: whole ones, few, and none that misleads.

Pure, over an index. The best statement is said with those before it that it leans on ("it", "also"), with
others that fit nearly as well, and with an exception of the same matter: "transfers can be cancelled until
four" is half of the truth when instant transfers cannot.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from models.retrieval import Statement
from models.retrieval.index import PassageIndex
from models.retrieval.terms import is_negated, stem

# Further statements are said when they fit the question nearly as well as the best one.
_MARGIN = 0.08
# The first statement of a passage holds its main point: a general question should get it.
_FIRST_BONUS = 0.06
# For a statement that holds all words of the question which its heading lacks ("and on sundays").
_SHARED_WORDS_BONUS = 0.3
# For one that lacks the name that is asked for, while another has it: the K400's value is no answer for the
# K200.
_WITHOUT_NAME = 0.5
# Asks for one statement of a passage, whatever else is asked.
_AMOUNT = frozenset("cost costs price much many long often when".split())
# A statement that begins so cannot stand without the one before it.
_LEANING = frozenset(
    "it they this that these those then he she both otherwise anything also its their none but "
    "however".split()
)
_ALSO_WORDS = 4
_YES_NO = frozenset(
    "is are was were do does did can could will would should may must has have isn't aren't don't "
    "doesn't can't "
    "couldn't won't shouldn't hasn't haven't".split()
)
_MISSING_SHARE = 0.3
# About twelve seconds of speech.
_SHORT_WORDS = 34
_LEADING_WORDS = 12
# A row of so few cells is said whole: an error code with what it means and what to do.
_SHORT_ROW = 2
# "Up to 25 metres" in a statement and "30 metres" in the question.
_RANGE = re.compile(
    r"\b(up to|at most|below|under|less than|above|over|more than|at least|from) (\d+(?:\.\d+)?) (\w+)"
)
_QUANTITY = re.compile(r"\b(\d+(?:\.\d+)?) (\w+)")
_OUT_OF_RANGE = 0.5
_UPPER = frozenset(("up to", "at most", "below", "under", "less than"))
_EXCEPTIONS = frozenset("but except unless however only".split())


@dataclass(frozen=True, slots=True)
class Question:
    """Question as it is put to a passage.

    Attributes:
        words: of the question.
        text: of it, with the one before where it is a follow-up.
        terms: its own terms.
        names: names with digits that it has.
        is_follow_up: it leans on what was said before.
    """

    words: tuple[str, ...]
    text: str
    terms: tuple[str, ...]
    names: frozenset[str] = frozenset()
    is_follow_up: bool = False


class StatementChoice:
    """Chooses statements of passages. Thread-safe.

    Args:
        index: the passages.
        max_words: longest answer; one statement is always said whole.
        max_statements: in one answer; items of a list that is asked for are not counted.
    """

    def __init__(self, index: PassageIndex, *, max_words: int, max_statements: int) -> None:
        self._index = index
        self._max_words = max_words
        self._max_statements = max_statements

    def choose(self, passage: int, scores: np.ndarray, question: Question) -> list[int]:
        """Return numbers of statements, in reading order.

        Args:
            passage: the chosen one.
            scores: float32, (statements,), how well each fits by meaning.
            question: see the class.
        """
        numbers = list(self._index.sentence_numbers(passage))
        if self._asks_for_the_whole(passage, question):
            return self.fill(numbers)
        fits = self._fits(passage, numbers, scores, question)
        if self._index.passages[passage].form == "row" and len(numbers) <= _SHORT_ROW:
            if not self._names_a_column(passage, question):
                return self.fill(numbers)
        ordered = sorted(numbers, key=lambda number: (-fits[number], number))
        best = ordered[0]
        if (
            self._index.passages[passage].form == "steps"
            and self.count_words(set(numbers)) <= self._max_words
        ):
            return numbers
        taken = self._with_support(best, numbers[0])
        wanted = [number for number in ordered[1:] if fits[number] >= fits[best] - _MARGIN]
        for number in [*self._exceptions(best, numbers, question), *wanted]:
            grown = taken | self._with_support(number, numbers[0])
            if len(grown) <= self._max_statements and self.count_words(grown) <= self._max_words:
                taken = grown
        if not self._index.statements[best].bare and self._needs_more(best, question):
            taken = self._with_neighbours(best, taken, numbers)
        return sorted(taken)

    def _needs_more(self, best: int, question: Question) -> bool:
        """Tell if the best statement may be half of the answer: not all of the question is in it, or it is a
        question for a yes or a no, whose reason or exception stands next to it.
        """
        if question.words and question.words[0] in _YES_NO:
            return True
        title = self._index.terms(self._index.passages[self._index.passage_of(best)].title)
        asked = [term for term in question.terms if term not in title]
        total = sum(self._index.weight(term) for term in asked)
        held = self._index.terms_of(best)
        missing = sum(self._index.weight(term) for term in asked if term not in held)
        return missing > _MISSING_SHARE * total

    def _with_neighbours(self, best: int, taken: set[int], numbers: Sequence[int]) -> set[int]:
        """The statements around the best one, the next one first, while the answer stays short."""
        for number in (best + 1, best - 1, best + 2):
            grown = {*taken, number}
            if (
                number in numbers
                and len(grown) <= self._max_statements
                and self.count_words(grown) <= min(_SHORT_WORDS, self._max_words)
            ):
                taken = grown
        return taken

    def with_list(self, numbers: list[int]) -> list[int]:
        """Return a short answer with the list that follows it in the document: "There are three modes"."""
        last = numbers[-1]
        passage = self._index.passage_of(last)
        if last != self._index.sentence_numbers(passage)[-1] or passage + 1 >= len(self._index.passages):
            return numbers
        found, after = self._index.passages[passage], self._index.passages[passage + 1]
        is_same = (found.source, found.above, found.title) == (after.source, after.above, after.title)
        if found.form != "text" or after.form not in ("list", "steps") or not is_same:
            return numbers
        if self.count_words(set(numbers)) > _LEADING_WORDS:
            return numbers
        return self.fill([*numbers, *self._index.sentence_numbers(passage + 1)])

    def fill(self, numbers: Sequence[int]) -> list[int]:
        """Return as many statements from the beginning as fit into an answer, one at least."""
        taken: list[int] = []
        for number in numbers:
            if taken and self.count_words({*taken, number}) > self._max_words:
                break
            taken.append(number)
        return taken

    def count_words(self, numbers: set[int]) -> int:
        """Return how many words are said."""
        return len(self.text(sorted(numbers)).split())

    def text(self, numbers: Sequence[int]) -> str:
        """Return statements as they are said: what neighbours have in common is said once."""
        parts: list[str] = []
        lead = ""
        for number in numbers:
            statement: Statement = self._index.statements[number]
            if lead and statement.lead == lead:
                parts[-1] = f"{parts[-1].rstrip('.')}; {statement.bare}"
            else:
                parts.append(statement.text)
            lead = statement.lead
        return " ".join(parts)

    def _asks_for_the_whole(self, passage: int, question: Question) -> bool:
        """Tell if the question says nothing that the heading does not say, and wants no amount."""
        if question.is_follow_up or _AMOUNT.intersection(question.words):
            return False
        found = self._index.passages[passage]
        heading = self._index.terms(" ".join((*found.above, found.title, found.lead, found.source)))
        return set(question.terms) <= set(heading)

    def _names_a_column(self, passage: int, question: Question) -> bool:
        columns = self._index.passages[passage].columns[1:]
        return any(
            self._index.terms(name) and set(self._index.terms(name)) <= set(question.terms)
            for name in columns
        )

    def _fits(
        self, passage: int, numbers: Sequence[int], scores: np.ndarray, question: Question
    ) -> dict[int, float]:
        """Return how well each statement of the passage answers the question, by its number."""
        title = set(self._index.terms(self._index.passages[passage].title))
        asked = {term: self._index.weight(term) for term in question.terms if term not in title}
        total = sum(asked.values())
        has_name = any(question.names & self._index.terms_of(number) for number in numbers)
        fits = {}
        for number in numbers:
            held = self._index.terms_of(number)
            fit = float(scores[number])
            if number == numbers[0] and not question.is_follow_up and not question.names:
                fit += _FIRST_BONUS
            if total:
                shared = sum(weight for term, weight in asked.items() if term in held)
                fit += _SHARED_WORDS_BONUS * shared / total
            if self._is_out_of_range(number, question):
                fit -= _OUT_OF_RANGE
            if has_name and not question.names & held:
                fit -= _WITHOUT_NAME
            fits[number] = fit
        return fits

    def _is_out_of_range(self, number: int, question: Question) -> bool:
        """Tell if the statement is of another size than the one that is asked for."""
        quantities = [
            (float(match[1]), stem(match[2]))
            for match in _QUANTITY.finditer(" ".join(self._index.words(question.text)))
        ]
        if not quantities or not self._index.statements[number].bare:
            return False
        for match in _RANGE.finditer(" ".join(self._index.words(self._index.sentences[number]))):
            limit, unit, is_upper = float(match[2]), stem(match[3]), match[1] in _UPPER
            for value, asked in quantities:
                if asked == unit and (value > limit if is_upper else value < limit):
                    return True
        return False

    def _with_support(self, number: int, first: int) -> set[int]:
        """A statement with those before it that it leans on; an "also" comes after the main point."""
        taken = {number}
        if "also" in self._index.words(self._index.sentences[number])[:_ALSO_WORDS]:
            taken.add(first)
        while number > first and self._leans(number):
            number -= 1
            taken.add(number)
        return taken

    def _leans(self, number: int) -> bool:
        words = self._index.words(self._index.sentences[number])
        return bool(words) and words[0] in _LEANING

    def _exceptions(self, best: int, numbers: Sequence[int], question: Question) -> list[int]:
        """Statements that deny, or restrict, what the best one says of the same matter."""
        if (
            self._index.statements[best].row
            or self._index.passages[self._index.passage_of(best)].form == "list"
        ):
            return []
        matter = self._index.terms_of(best) | set(question.terms)
        found = []
        for number in numbers:
            words = self._index.words(self._index.sentences[number])
            restricts = is_negated(words) or not _EXCEPTIONS.isdisjoint(words)
            shared = self._index.terms_of(number) & matter & set(question.terms)
            if number != best and restricts and shared:
                found.append(number)
        return found
