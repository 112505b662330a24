"""Texts that a caller chooses, at their maximal length: no reader takes time quadratic in it.

Processor time is measured, without the garbage collector, which goes through everything that the tests before
have left (over a second). The bound is far above the normal time (a few milliseconds) and far below that of
a search from every character: 5 s for the remarks at the end of a reply, 93 s for its clauses, with 8,000
dots each.
"""

import time
from collections.abc import Callable
from timeit import timeit

import pytest

from parley.language.english.facts import asks, extract_facts
from parley.models.llm import Message
from parley.models.llm.dialogue import without_cut_off_mark
from parley.models.llm.dialogue_history import read_conversation
from parley.models.tts.clauses import split_clauses
from parley.processors.playout.word_times import estimate_word_times
from parley.session_store.prompt import without_remarks

CHARS = 8_000
PIECES = (
    ".",
    "[",
    "(",
    "<",
    " ",
    "\n",
    ". ",
    "a ",
    "a\n",
    "]",
    "[ ",
    "-",
    "\U0001f600",
    "my x is a and ",
    "1 ",
)
MOST_S = 1.0


@pytest.mark.parametrize("piece", PIECES)
@pytest.mark.parametrize(
    "read",
    [
        lambda text: extract_facts(text, {}),
        asks,
        without_cut_off_mark,
        without_remarks,
        split_clauses,
        lambda text: estimate_word_times(text, 0, 1_000_000),
        lambda text: read_conversation([Message("assistant", text), Message("user", text)]),
    ],
    ids=["learnt", "asks", "cut_off_mark", "remarks", "clauses", "place_words", "conversation"],
)
def test_a_long_text_is_read_in_time(read: Callable[[str], object], piece: str):
    text = piece * (CHARS // len(piece))
    taken_s = timeit(lambda: (read(f"a {text}"), read(f"{text}")), number=1, timer=time.thread_time)
    assert taken_s < MOST_S


def test_clauses_of_a_long_run_of_marks_are_the_text():
    for piece in PIECES:
        text = f"Well then {piece * 500} and so on."
        assert "".join(split_clauses(text)) == text


def test_what_stands_after_an_open_bracket_is_no_remark():
    assert without_remarks("one [a] two [three") == "one two [three"
    assert without_cut_off_mark("It costs five [interrupted] ...") == "It costs five"
