"""Passages that are found for a question, with the embedder of the product."""

import json
from pathlib import Path

import pytest

from parley.models.retrieval.files import load_passages
from parley.models.retrieval.finder import FinderTuning, PassageFinder
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.minilm import MiniLm

ROOT = Path(__file__).parents[4]
QUESTIONS = json.loads((ROOT / "tests/golden/questions.json").read_text())


@pytest.fixture(scope="module")
def index() -> PassageIndex:
    return PassageIndex(load_passages(ROOT / "knowledge"), MiniLm())


def titles(index: PassageIndex, question: str, previous: str = "", **tuning: float) -> list[str]:
    found = PassageFinder(index, FinderTuning(**tuning)).find(question, previous)
    assert [hit.score for hit in found] == sorted((hit.score for hit in found), reverse=True)
    return [hit.passage.title for hit in found]


def test_the_passage_that_answers_is_among_the_first_three(index: PassageIndex):
    found = [title in titles(index, question) for title, question in QUESTIONS["held_out"]]
    assert sum(found) >= 0.9 * len(found)


def test_a_short_question_is_also_read_after_the_one_before(index: PassageIndex):
    assert "Replacement card" in titles(index, "and how long does it take?", "I need a new card.")
    assert "Replacement card" not in titles(index, "and how long does it take?")


def test_an_earlier_question_does_not_hide_a_whole_one(index: PassageIndex):
    asked = "I lost my card, what should I do?"
    assert titles(index, asked, "When are the branches open?")[0] == titles(index, asked)[0]


@pytest.mark.parametrize("said", ["", "   ", "thank you", "hello there", "what is the capital of peru"])
def test_nothing_is_found_for_what_the_documents_do_not_cover(index: PassageIndex, said: str):
    assert titles(index, said) == []


def test_no_more_than_were_wanted_are_found(index: PassageIndex):
    assert len(titles(index, "card", count=2, threshold=-1.0)) == 2


def test_a_monologue_is_searched_by_its_end(index: PassageIndex):
    said = (
        "so I was on the train yesterday and it was late again " * 200
        + "and now I lost my card, what should I do"
    )
    assert any("card" in title.lower() for title in titles(index, said))
