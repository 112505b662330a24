"""The golden questions, and the embedded answerer's results on them as written."""

import ast
import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from parley.evals.answers.__main__ import build_parser, channel, spoken_turns
from parley.evals.answers.asking import ROOT, Examiner, load_models, read_golden
from parley.evals.human.recordings import plain_words
from parley.evals.human.split import clauses


@pytest.fixture(scope="module")
def examiner() -> Examiner:
    return Examiner(load_models())


@pytest.mark.parametrize("half", ["tuning", "report"])
def test_a_half_has_50_questions_over_three_document_sets(half: str) -> None:
    rows = read_golden(half)
    assert len(rows) == 50
    assert Counter(row.documents for row in rows) == {"bank": 17, "product": 16, "pump": 17}


def test_no_question_of_the_report_half_is_one_that_the_code_was_tuned_on() -> None:
    report = {row.turns[-1].lower() for row in read_golden("report") if len(row.turns) == 1}
    for name in ("tuning", "practice", "noise_tuning"):
        assert not report & {row.turns[-1].lower() for row in read_golden(name)}


# A command that any caller may give, not a question.
ANYWHERE = {"could you repeat that please"}
ANSWERER = ("core", "knowledge", "language", "models", "pipelines", "turn_taking")


def test_the_answerer_and_its_settings_know_no_clause_of_the_report_half() -> None:
    asked = {
        clause
        for name in ("report", "noise_report")
        for row in read_golden(name)
        for turn in row.turns
        for clause in clauses(turn)
    } - ANYWHERE
    assert len(asked) > 40
    texts = [path.read_text("utf-8") for path in (ROOT / "knowledge").rglob("*.md")]
    for folder in ANSWERER:
        for path in (ROOT / folder).rglob("*.py"):
            nodes = ast.walk(ast.parse(path.read_text("utf-8")))
            constants = (node.value for node in nodes if isinstance(node, ast.Constant))
            texts += [value for value in constants if isinstance(value, str)]
    known = "".join(f" {' '.join(plain_words(text))} |" for text in texts)
    assert {clause for clause in asked if f" {clause} " in known} == set()


@pytest.mark.parametrize(
    ("half", "least"),
    [
        ("report", 45),  # 46 of 50
        ("tuning", 48),  # 49 of 50
        ("practice", 154),  # 158 of 175
        ("noise_tuning", 23),  # all of 23
        ("noise_report", 22),  # all of 22
    ],
)
def test_questions_are_answered_rightly_and_never_by_the_opposite(
    examiner: Examiner, half: str, least: int
) -> None:
    tally = asyncio.run(examiner.run(read_golden(half)))
    assert tally.right.total() >= least
    assert tally.reversed == 0
    assert tally.facts_for_noise == 0


def test_what_a_recogniser_understood_takes_the_place_of_a_turn(tmp_path: Path) -> None:
    said = spoken_turns()[0]
    (tmp_path / "heard.json").write_text(json.dumps({said: "who knows"}), encoding="utf-8")
    hear = channel(build_parser().parse_args(["--heard", str(tmp_path / "heard.json")]))
    assert hear(said).text == "who knows"
    assert hear("never said").text == "never said"


def test_noise_and_other_languages_are_not_read_aloud() -> None:
    turns = spoken_turns()
    assert 80 <= len(turns) == len(set(turns))
    assert all(turn.isascii() for turn in turns)
