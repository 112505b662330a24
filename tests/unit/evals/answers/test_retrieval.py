"""The instrument that measures the search before each question."""

import json
from pathlib import Path
from typing import Any

import pytest

from parley.core.passage_notes import QuotedPassage, write_passages
from parley.evals.answers.retrieval import Asked, main, other_passages, questions

SHORT = ("--passages", "140", "--set", "tuning", "--first", "15")


def test_a_passage_counts_by_its_heading_or_by_all_facts():
    block = write_passages([QuotedPassage("guide", "Cards, Lost card", "Call 0199 at once.")])
    assert Asked("bank", ("?",), title="Lost card").is_answered_by(block)
    assert not Asked("bank", ("?",), title="Card").is_answered_by(block)
    assert Asked("bank", ("?",), facts=("0199", "at once|now")).is_answered_by(block)
    assert not Asked("bank", ("?",), facts=("0199", "tomorrow")).is_answered_by(block)
    assert not Asked("bank", ("?",), title="Lost card").is_answered_by("")


def test_the_halves_have_no_question_in_common():
    halves = [questions(half, 0.08) for half in ("tuning", "report")]
    for name in ("headings", "facts"):
        tuned, reported = ({each.turns for each in half[name]} for half in halves)
        assert tuned and reported and not tuned & reported


def test_other_passages_are_the_same_each_time_and_differ_from_each_other():
    once, again = other_passages(200), other_passages(200)
    assert once == again and len({each.text for each in once}) == 200


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the figures of a short run."""
    out = tmp_path_factory.mktemp("exact") / "figures.json"
    assert main([*SHORT, "--json", str(out)]) == 0
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures


def test_a_short_run_measures(exact: dict[str, Any]):
    figures = exact
    assert figures["passages"] == {"bank": 140, "product": 140, "pump": 140, "all": 140}
    assert {row["asked"] for row in figures["questions"].values()} == {15}
    assert 0 < figures["search_ms"]["p50"] <= figures["search_ms"]["p95"]


def test_chroma_finds_as_many(exact: dict[str, Any], tmp_path: Path):
    pytest.importorskip("chromadb")
    out, chroma = tmp_path / "figures.json", ["--chroma", str(tmp_path / "vectors")]
    assert main([*chroma, *SHORT, "--json", str(out)]) == 0
    near = json.loads(out.read_text())["questions"]
    assert all(abs(kind["found"] - near[name]["found"]) <= 1 for name, kind in exact["questions"].items())
    assert (tmp_path / "vectors" / "all" / "chroma.sqlite3").is_file()
