"""Words that callers are expected to say, found by their sound where the recogniser doubted.

A small recogniser writes a word that it does not expect as others that sound alike: "Kashimashim" for "cash
machine", "concealed" for "cancelled". Names of products and the words of a deployment's documents are known
beforehand. Where a word of a line has a low probability, each expected term that its sound may begin is put
in its place, and the rest of the line is decoded after it. The new line replaces the old one when its
likelihood, raised by ``BONUS`` for each token of the term, is higher (shallow fusion with a list of terms,
on the two best lines instead of a beam).

The sound decides, so a term is never written where nothing like it was said. A word that the recogniser is
sure of stays, and so do denials, numbers and question words: the subject of a question may be guessed, but
not whether it or its opposite is meant. A line has at most ``MOST_PLACES`` changes and costs at most
``MOST_RUNS`` runs of the decoder. A line without a doubtful word costs none.

With the terms of three document sets, three tuning voices (90 questions each) have 27.3, 20.0 and 35.3 % word
errors without and 23.7, 17.6 and 29.9 % with them; 46 lines became better and 2 worse. None of six long
readings of people (the tuning half of human speech) changed, clean or by phone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from string import punctuation

import numpy as np

from parley.language import Language
from parley.models.stt.moonshine_network import DecodedLine, MoonshineNetwork, log_softmax

# A word with a less probable token may have been misheard. Chosen, like the next two, on the tuning voices of
# ``evals.answers`` and the tuning half of human speech.
DOUBTFUL = 0.7
# Logarithm: each token of a term counts as 4.5 times as probable as the decoder finds it.
BONUS = 1.5
# Below this mean confidence of its words a line was not understood: another language, for example.
LOST = 0.5
# A term's first token is at most this much less probable than the best one (logarithm).
FIRST_GAP = 5.0
MOST_FIRSTS = 3
MOST_PLACES = 2
# Runs of the decoder for a line, 2 to 4 ms each.
MOST_RUNS = 40
# Terms of an engine; those after them are left out.
MOST_TERMS = 2_000
MOST_TERM_CHARS = 60


@dataclass(slots=True)
class _Node:
    """Place in the tree of terms.

    Attributes:
        following: nodes by their token.
        is_end: a term ends here.
    """

    following: "dict[int, _Node]" = field(default_factory=dict)
    is_end: bool = False


@dataclass(frozen=True, slots=True)
class RevisedLine:
    """A line with its expected terms.

    Attributes:
        tokens: token ids of the tokenizer.
        probabilities: probability of each token. Those of a term that was put in have the probability that
            the new line is the right one of the two.
    """

    tokens: tuple[int, ...]
    probabilities: tuple[float, ...]


class ExpectedTerms:
    """Terms as a tree of tokens. Read-only, thread-safe.

    Args:
        network: its tokenizer.
        terms: words and phrases, the most important first; each as it is written in a sentence.
        language: that of the terms.
    """

    def __init__(
        self,
        network: MoonshineNetwork,
        terms: Iterable[str],
        *,
        language: Language,
    ) -> None:
        self._network = network
        self._language = language
        self._root = _Node()
        self._written: set[str] = set()
        for term in list(dict.fromkeys(terms))[:MOST_TERMS]:
            spaced = " ".join(term.split())[:MOST_TERM_CHARS]
            self._written.update((spaced.lower(), *spaced.lower().split()))
            # A term may begin the sentence.
            for form in {spaced, spaced[:1].upper() + spaced[1:]}:
                self._add(network.tokens(form))

    def _add(self, tokens: Sequence[int]) -> None:
        if not tokens:
            return
        node = self._root
        for token in tokens:
            node = node.following.setdefault(token, _Node())
        node.is_end = True

    @property
    def is_empty(self) -> bool:
        """True when there is no term."""
        return not self._root.following

    def revise(self, line: DecodedLine, *, most_runs: int = MOST_RUNS) -> RevisedLine:
        """Return the line with terms where the recogniser doubted and their sound fits.

        Args:
            line: a line of the network.
            most_runs: greatest number of runs of the decoder.

        Raises:
            EngineError: the network failed.
        """
        probabilities = line.probabilities()
        if self.is_empty or self._mean_of_words(line.tokens, probabilities) < LOST:
            return RevisedLine(line.tokens, tuple(probabilities))
        runs, settled = _Runs(most_runs), 0
        for _ in range(MOST_PLACES):
            found = None
            for start, end in self._doubtful(line.tokens, probabilities, settled):
                found = self._better(line, start, end, runs)
                if found is not None:
                    break
            if found is None:
                break
            line, probabilities, settled = found
        return RevisedLine(line.tokens, tuple(probabilities))

    def _words(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Return the place of each word's first token, and of the one after its last."""
        starts = [
            place for place, token in enumerate(tokens) if not place or self._network.begins_word(token)
        ]
        return list(zip(starts, [*starts[1:], len(tokens)], strict=True))

    def _mean_of_words(self, tokens: Sequence[int], probabilities: Sequence[float]) -> float:
        words = self._words(tokens)
        return sum(min(probabilities[start:end]) for start, end in words) / max(1, len(words))

    def _doubtful(
        self, tokens: Sequence[int], probabilities: Sequence[float], settled: int
    ) -> Iterator[tuple[int, int]]:
        """Yield the first and last place of each doubtful word from a place on, without its punctuation."""
        for start, end in self._words(tokens):
            while end > start + 1 and not any(map(str.isalnum, self._network.text(tokens[end - 1 : end]))):
                end -= 1
            word = self._network.text(tokens[start:end]).lower()
            stays = word in self._written or self._language.fixes_meaning(word)
            if start >= settled and not stays and min(probabilities[start:end]) < DOUBTFUL:
                yield start, end

    def _better(
        self, line: DecodedLine, start: int, end: int, runs: "_Runs"
    ) -> tuple[DecodedLine, list[float], int] | None:
        """Return the best line with a term in the place of a word, its probabilities and the place after the
        term; None when the present line is better.
        """
        row = line.row(start)
        firsts = [first for first in self._root.following if row[first] > row.max() - FIRST_GAP]
        present = line.log_likelihood(start)
        best, best_gain, best_after = None, 0.0, 0
        for first in sorted(firsts, key=lambda token: -row[token])[:MOST_FIRSTS]:
            term = self._term(line, start, first, runs)
            if term is None or self._is_same(term, line.tokens[start:end]) or not runs.take():
                continue
            attempt = _Attempt(runs, least=present + best_gain - BONUS * len(term))
            draft = (*term, *line.tokens[end:])
            other = self._network.search_again(line, start, draft, kept=len(term), goes_on=attempt.goes_on)
            if other is None or self._denials(other.tokens) != self._denials(line.tokens):
                continue
            gain = other.log_likelihood(start) + BONUS * len(term) - present
            if gain > best_gain:
                best, best_gain, best_after = other, gain, start + len(term)
        if best is None:
            return None
        probabilities = best.probabilities()
        certain = float(1 / (1 + np.exp(-best_gain)))
        probabilities[start:best_after] = [max(certain, each) for each in probabilities[start:best_after]]
        return best, probabilities, best_after

    def _denials(self, tokens: Sequence[int]) -> list[str]:
        words = (word.strip(punctuation) for word in self._network.text(tokens).lower().split())
        return [word for word in words if self._language.content.is_negated((word,))]

    def _is_same(self, term: Sequence[int], tokens: Sequence[int]) -> bool:
        return self._network.text(term).lower() == self._network.text(tokens).lower()

    def _term(self, line: DecodedLine, start: int, first: int, runs: "_Runs") -> tuple[int, ...] | None:
        """Return the most probable term that begins with a token; None when the runs are used up."""
        term, node = [first], self._root.following[first]
        while node.following:
            if len(node.following) == 1 and not node.is_end:
                chosen = next(iter(node.following))
            else:
                if not runs.take():
                    return None
                row = self._network.row_after(line, start, term)
                chosen = max(node.following, key=lambda token: row[token])
                if node.is_end and int(row.argmax()) != chosen:
                    break
            term.append(chosen)
            node = node.following[chosen]
        return tuple(term)


@dataclass(slots=True)
class _Runs:
    """Runs of the decoder that a line may still cost."""

    left: int

    def take(self) -> bool:
        self.left -= 1
        return self.left >= 0


@dataclass(slots=True)
class _Attempt:
    """Search for a line with a term, which ends as soon as the line cannot be the better one.

    Attributes:
        runs: those that are left.
        least: logarithm of the probability below which the present line is better.
        log_likelihood: that of the tokens so far.
    """

    runs: _Runs
    least: float
    log_likelihood: float = 0.0

    def goes_on(self, rows: np.ndarray, tokens: Sequence[int]) -> bool:
        """Return whether the search goes on; see ``GoesOn``."""
        self.log_likelihood += float(log_softmax(rows)[range(len(tokens)), list(tokens)].sum())
        return self.log_likelihood > self.least and self.runs.take()
