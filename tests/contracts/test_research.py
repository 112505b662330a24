"""Modules of ``research/`` load, write what ships, and nothing that they fit on is part of a report."""

import json
from importlib import import_module
from pathlib import Path

import pytest

from parley.evals.human.split import reported_clauses
from parley.evals.turns import overlap_calls
from parley.evals.turns.texts import sentences
from parley.language.english.vocabulary import UTTERANCES
from research.turn_taking import predictor, tuning_texts
from research.turn_taking.composed_texts import COMPOSED_TEXTS
from research.turn_taking.floor_texts import CLAIMING

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts) for path in (ROOT / "research").glob("*/[a-z]*.py")
)


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_research_loads(name: str):
    assert import_module(name).__doc__


def test_the_weights_that_ship_are_those_that_the_command_writes(tmp_path: Path):
    out = tmp_path / "weights.json"
    assert predictor.main(["--processes", "1", "--out", str(out)]) == 0
    written = json.loads(out.read_text())["weights"]
    shipped = json.loads(predictor.WEIGHTS.read_text())["weights"]
    assert written == pytest.approx(shipped, abs=1e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.json"]


def test_the_texts_of_fits_are_in_no_report():
    fitted = [*sentences(held_out=False), *COMPOSED_TEXTS]
    fitted += [text for name, texts in vars(tuning_texts).items() if name.isupper() for text in texts]
    assert len(fitted) > 50
    assert [text for text in fitted if reported_clauses(text)] == []
    reported = {
        text for name, texts in vars(overlap_calls).items() if name.endswith("_TEXTS") for text in texts
    }
    # Refusals, stop words, questions of one word and backchannels are closed classes.
    closed = UTTERANCES.negative | UTTERANCES.stops | {"what", "why"}
    assert set(CLAIMING) & (reported - set(overlap_calls.BACKCHANNEL_TEXTS)) <= closed
