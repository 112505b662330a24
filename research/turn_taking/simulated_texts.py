"""Words of scripted callers, piece by piece, and the places of their pauses.

Sentences are those of ``evals.turns.texts``. A pause inside a turn falls between two sentences or inside one,
with shares given by ``PauseHabits``. Inside, every gap between two words is equally likely, which favours no
policy's list of words. Numbers, addresses and spelled names come in the groups in which people say them. The
module is independent of the rules that will read these words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np

from parley.evals.turns.texts import plain, texts

FILLERS = ("uh", "um")
CONJUNCTIONS = ("and", "so", "but", "because")
DIGIT_WORDS = "zero one two three four five six seven eight nine".split()
STREETS = ("oak street", "park avenue", "church road", "mill lane", "station road", "maple drive")
TOWNS = ("springfield", "brighton", "portland", "bristol", "salem", "cambridge")
NAMES = ("smith", "novak", "garcia", "nguyen", "weber", "larsen", "okafor")
SHORT_ANSWERS = (
    "yes",
    "yes please",
    "no",
    "no thank you",
    "okay",
    "that is right",
    "on monday",
    "two hundred",
)
# Sizes of the groups in which a number is read: telephone, account, card, last four of a card.
GROUPS = ((3, 3, 4), (2, 3, 3), (4, 4, 4, 4), (4,))
NUMBER_CARRIERS = ("my number is", "it is", "my account number is", "the card number is", "")
GREETINGS = ("What can I do for you?", "Your card has been blocked.", "The branch opens at nine.")


class Kind(Enum):
    """Kinds of turns."""

    SENTENCES = "sentences"
    ANSWER = "answer"
    NUMBER = "number"
    ADDRESS = "address"
    SPELLING = "spelling"


PROMPTS = {
    Kind.ANSWER: ("Is that right?", "When would you like to come?", "Shall I do that now?"),
    Kind.NUMBER: ("What is your number?", "Please tell me the number."),
    Kind.ADDRESS: ("What is your address?",),
    Kind.SPELLING: ("Could you spell your last name, please?",),
}


@dataclass(frozen=True, slots=True)
class PauseHabits:
    """Places of pauses and the words before them. Shares, 0..1.

    Attributes:
        between: of pauses inside a turn, those between two sentences. Of the pauses in spontaneous English
            about 55 % are at grammatical junctures (Goldman-Eisler 1968, as commonly cited).
        filler: of pauses inside a sentence, those after an "uh".
        conjunction: of pauses between sentences, those after the conjunction that opens the next one.
        trailing_off: of turns, those that end on a filler or a conjunction.
        kinds: of turns, in the order of ``UtteranceKind``. Assumed, as all of the above but the first.
        holds: number of holds of a turn of each kind, relative to the caller's mean. Few after a yes, more
            inside a number. Over all kinds the mean is 1.
    """

    between: float = 0.55
    filler: float = 0.2
    conjunction: float = 0.15
    trailing_off: float = 0.03
    kinds: tuple[float, ...] = (0.74, 0.12, 0.08, 0.03, 0.03)
    holds: tuple[float, ...] = (1.035, 0.2, 1.5, 1.5, 1.5)


@dataclass(frozen=True, slots=True)
class Piece:
    """Words between two pauses.

    Attributes:
        text: as spoken.
        inside: true when the pause after it is inside a sentence, a number or an address.
    """

    text: str
    inside: bool


@dataclass(frozen=True, slots=True)
class Script:
    """Words of a turn.

    Attributes:
        prompt: the bot's words before it.
        pieces: the last one ends the turn.
    """

    prompt: str
    pieces: tuple[Piece, ...]


@cache
def questions() -> frozenset[str]:
    """Return the sentences of both sets that end with a question mark, in the form of ``sentences``."""
    return frozenset(
        plain(text) for held_out in (False, True) for text in texts(held_out=held_out) if text[-1] == "?"
    )


def script(mean_holds: float, corpus: Sequence[str], habits: PauseHabits, rng: np.random.Generator) -> Script:
    """Draw one turn of a caller with this mean number of holds."""
    place = int(rng.choice(len(habits.kinds), p=habits.kinds))
    kind = list(Kind)[place]
    holds = int(rng.geometric(1 / (1 + mean_holds * habits.holds[place]))) - 1
    prompt = _pick(PROMPTS.get(kind, GREETINGS), rng)
    opening = {
        Kind.SENTENCES: lambda: [],
        Kind.ANSWER: lambda: [_pick(SHORT_ANSWERS, rng)],
        Kind.NUMBER: lambda: _number(rng),
        Kind.ADDRESS: lambda: _address(rng),
        Kind.SPELLING: lambda: _spelled(rng),
    }[kind]()
    pieces = _grouped(opening, holds, rng)
    left = holds - max(0, len(pieces) - 1)
    if pieces and not left:
        return Script(prompt, tuple(pieces))
    if pieces:
        # The requested answer comes first; a sentence of its own follows after one of the pauses.
        left -= 1
    return Script(prompt, (*pieces, *_sentences(left, corpus, habits, rng)))


def _grouped(groups: Sequence[str], holds: int, rng: np.random.Generator) -> list[Piece]:
    """Return the groups with at most ``holds`` pauses between them; the last piece completes the answer."""
    if not groups:
        return []
    cuts = sorted(rng.choice(np.arange(1, len(groups)), min(holds, len(groups) - 1), replace=False))
    edges = [0, *(int(cut) for cut in cuts), len(groups)]
    parts = [" ".join(groups[first:last]).strip() for first, last in zip(edges, edges[1:], strict=False)]
    return [Piece(part, inside=place + 1 < len(parts)) for place, part in enumerate(parts)]


def _sentences(
    holds: int, corpus: Sequence[str], habits: PauseHabits, rng: np.random.Generator
) -> list[Piece]:
    said: list[list[str]] = [_pick(corpus, rng).split()]
    cuts: list[set[int]] = [set()]
    for _ in range(holds):
        free = set(range(1, len(said[-1]))) - cuts[-1]
        if free and rng.random() >= habits.between:
            cuts[-1].add(int(rng.choice(sorted(free))))
        else:
            said.append(_pick(corpus, rng).split())
            cuts.append(set())
    pieces: list[Piece] = []
    for place, (words, inner) in enumerate(zip(said, cuts, strict=True)):
        edges = [0, *sorted(inner), len(words)]
        for first, last in zip(edges, edges[1:], strict=False):
            inside, final = last < len(words), place + 1 == len(said)
            text = " ".join(words[first:last])
            if inside and rng.random() < habits.filler:
                text += f" {_pick(FILLERS, rng)}"
            elif not inside and not final and rng.random() < habits.conjunction:
                text += f" {_pick(CONJUNCTIONS, rng)}"
            elif not inside and final and rng.random() < habits.trailing_off:
                text += f" {_pick((*FILLERS, *CONJUNCTIONS), rng)}"
            pieces.append(Piece(text, inside))
    return pieces


def _number(rng: np.random.Generator) -> list[str]:
    sizes = GROUPS[int(rng.integers(len(GROUPS)))]
    groups = [" ".join(DIGIT_WORDS[digit] for digit in rng.integers(10, size=size)) for size in sizes]
    carrier = _pick(NUMBER_CARRIERS, rng)
    return [f"{carrier} {groups[0]}".strip(), *groups[1:]]


def _address(rng: np.random.Generator) -> list[str]:
    return [f"i live at {rng.integers(2, 99)}", _pick(STREETS, rng), f"in {_pick(TOWNS, rng)}"]


def _spelled(rng: np.random.Generator) -> list[str]:
    letters = list(_pick(NAMES, rng))
    half = len(letters) // 2
    return [" ".join(letters[:half]), " ".join(letters[half:])]


def _pick(rows: Sequence[str], rng: np.random.Generator) -> str:
    return rows[int(rng.integers(len(rows)))]
