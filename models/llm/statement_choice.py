"""Choice of the statements of a passage that answer a question: whole ones, few, and none that misleads.

Pure, over an index. The best statement is accompanied by those before it that it depends on ("it", "also").
Others that fit nearly as well are added, and so are exceptions on the same subject. "Transfers can be
cancelled until four" is half of the truth when instant transfers cannot.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from parley.models.retrieval import SpeakableStatement
from parley.models.retrieval.index import PassageIndex

# Further statements are added when they fit the question nearly as well as the best one.
_MARGIN = 0.08
# The first statement of a passage holds its main point: a general question should get it.
_FIRST_BONUS = 0.06
# Bonus for a statement that holds all words of the question which its heading lacks ("and on sundays").
_SHARED_WORDS_BONUS = 0.3
# Penalty for a statement without the name in the question, while another has it: the K400's value is no
# answer for the K200.
_WITHOUT_NAME = 0.5
_ALSO_WORDS = 4
# A pronoun among the first words of a statement stands for something in the one before it.
_LEANING_WORDS = 3
_MISSING_SHARE = 0.3
# About twelve seconds of speech.
_SHORT_WORDS = 34
_LEADING_WORDS = 12
# A row of at most this many cells is spoken whole: an error code with its meaning and remedy.
_SHORT_ROW = 2
_QUANTITY = re.compile(r"\b(\d+(?:\.\d+)?) (\w+)")
_OUT_OF_RANGE = 0.5
# Of the words, by weight, that the question and its best statement share, a statement on the same subject has
# more than this share.
_SAME_SUBJECT = 0.5
# A statement around the best one that fits the question by this much less adds nothing to the answer. The
# next one is excepted: it has the reason or the exception in other words.
_NEIGHBOUR_MARGIN = 0.4


@dataclass(frozen=True, slots=True)
class Question:
    """Question to a passage.

    Attributes:
        words: words of the question.
        text: its text, with the previous question where it is a follow-up.
        terms: its own terms.
        names: names with digits in it.
        is_follow_up: it depends on earlier turns.
    """

    words: tuple[str, ...]
    text: str
    terms: tuple[str, ...]
    names: frozenset[str] = frozenset()
    is_follow_up: bool = False


class StatementChoice:
    """Selection of statements of passages. Thread-safe.

    Args:
        index: the passages.
        max_words: longest answer; a single statement is always spoken whole.
        max_statements: statements in one answer, without the items of a list that was requested.
    """

    def __init__(self, index: PassageIndex, *, max_words: int, max_statements: int) -> None:
        self._index = index
        self._content = index.language.content
        self._asking = index.language.questions
        self._max_words = max_words
        self._max_statements = max_statements

    def choose(self, passage: int, scores: np.ndarray, question: Question) -> list[int]:
        """Return numbers of statements, in reading order.

        Args:
            passage: the chosen one.
            scores: float32, (statements,), fit of each by meaning.
            question: the question.
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
            taken = self._with_neighbours(best, taken, fits)
        return sorted(taken)

    def _needs_more(self, best: int, question: Question) -> bool:
        """Return whether the best statement may be only half of the answer.

        This is so when it lacks a part of the question, or when the question asks for yes or no, whose reason
        or exception is in the next statement.
        """
        if question.words and question.words[0] in self._asking.yes_no:
            return True
        title = self._index.terms(self._index.passages[self._index.passage_of(best)].title)
        asked = [term for term in question.terms if term not in title]
        total = sum(self._index.weight(term) for term in asked)
        held = self._index.terms_of(best)
        missing = sum(self._index.weight(term) for term in asked if term not in held)
        return missing > _MISSING_SHARE * total

    def _weight(self, terms: Iterable[str]) -> float:
        return sum(self._index.weight(term) for term in terms)

    def _with_neighbours(self, best: int, taken: set[int], fits: Mapping[int, float]) -> set[int]:
        """Return ``taken`` with the statements around the best one, the next first, while the answer stays
        short.
        """
        for number in (best + 1, best - 1, best + 2):
            grown = {*taken, number}
            if number in fits and number != best + 1 and fits[number] < fits[best] - _NEIGHBOUR_MARGIN:
                continue
            if (
                number in fits
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
        """Return as many statements from the beginning as fit into an answer, at least one."""
        taken: list[int] = []
        for number in numbers:
            if taken and self.count_words({*taken, number}) > self._max_words:
                break
            taken.append(number)
        return taken

    def count_words(self, numbers: set[int]) -> int:
        """Return the number of words of the spoken answer."""
        return len(self.text(sorted(numbers)).split())

    def text(self, numbers: Sequence[int]) -> str:
        """Return the spoken text of statements; a lead that neighbours share is spoken once."""
        parts: list[str] = []
        lead = ""
        for number in numbers:
            statement: SpeakableStatement = self._index.statements[number]
            if lead and statement.lead == lead:
                parts[-1] = f"{parts[-1].rstrip('.')}; {statement.bare}"
            else:
                parts.append(statement.text)
            lead = statement.lead
        return " ".join(parts)

    def _asks_for_the_whole(self, passage: int, question: Question) -> bool:
        """Return whether the question has no terms beyond the heading, and asks for no amount."""
        if question.is_follow_up or self._asking.amounts.intersection(question.words):
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
        """Return the fit of each statement of the passage to the question, by its number."""
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
        """Return whether the statement is about another size than the question."""
        quantities = [
            (float(match[1]), self._content.stem(match[2]))
            for match in _QUANTITY.finditer(" ".join(self._index.words(question.text)))
        ]
        if not quantities or not self._index.statements[number].bare:
            return False
        stated = " ".join(self._index.words(self._index.sentences[number]))
        for match in self._asking.range.finditer(stated):
            limit, unit = float(match[2]), self._content.stem(match[3])
            is_upper = match[1] in self._asking.upper
            for value, asked in quantities:
                if asked == unit and (value > limit if is_upper else value < limit):
                    return True
        return False

    def _with_support(self, number: int, first: int) -> set[int]:
        """Return a statement with those before it that it depends on; "also" adds the main point."""
        taken = {number}
        if self._asking.also.intersection(self._index.words(self._index.sentences[number])[:_ALSO_WORDS]):
            taken.add(first)
        while number > first and self._leans(number):
            number -= 1
            taken.add(number)
        return taken

    def _leans(self, number: int) -> bool:
        words = self._index.words(self._index.sentences[number])
        if not words:
            return False
        # "Apply for it in the app" depends on the statement before as "It is sent by post" does.
        objects = self._asking.objects.intersection(words[:_LEANING_WORDS])
        return words[0] in self._asking.leaning or bool(objects)

    def _exceptions(self, best: int, numbers: Sequence[int], question: Question) -> list[int]:
        """Return statements that deny or restrict the best one on the same subject."""
        if (
            self._index.statements[best].row
            or self._index.passages[self._index.passage_of(best)].form == "list"
        ):
            return []
        asked = set(question.terms)
        subject = self._index.terms_of(best) & asked or asked
        found = []
        for number in numbers:
            words = self._index.words(self._index.sentences[number])
            restricts = self._content.is_negated(words) or not self._asking.exceptions.isdisjoint(words)
            shared = self._index.terms_of(number) & subject
            # A rule that shares only the common word of a whole document ("climb") is on another subject.
            is_same = bool(shared) and self._weight(shared) > _SAME_SUBJECT * self._weight(subject)
            if number != best and restricts and is_same:
                found.append(number)
        return found
