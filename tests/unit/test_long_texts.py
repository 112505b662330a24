"""Texts that a caller chooses, longer than a turn may be: no reader takes time quadratic in their length.

A search from every character took 5 s for the remarks at the end of a reply and 93 s for its clauses, with
8,000 dots each; with these texts it would take six times as long.
"""

from collections.abc import Callable

import pytest

from parley.language.english.facts import asks, extract_facts
from parley.models.llm import Message
from parley.models.llm.dialogue import without_cut_off_mark
from parley.models.llm.dialogue_history import read_conversation
from parley.models.tts.clauses import split_clauses
from parley.processors.playout.word_times import estimate_word_times
from parley.session_store.prompt import without_remarks
from tests.processor_deadline import processor_deadline

CHARS = 20_000
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
def test_a_long_text_is_read_in_linear_time(read: Callable[[str], object], piece: str):
    text = piece * (CHARS // len(piece))
    with processor_deadline():
        read(f"a {text}"), read(text)


def test_clauses_of_a_long_run_of_marks_are_the_text():
    for piece in PIECES:
        text = f"Well then {piece * 500} and so on."
        assert "".join(split_clauses(text)) == text


def test_what_stands_after_an_open_bracket_is_no_remark():
    assert without_remarks("one [a] two [three") == "one two [three"
    assert without_cut_off_mark("It costs five [interrupted] ...") == "It costs five"
