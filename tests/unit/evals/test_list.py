"""The list of instruments."""

import subprocess
import sys
from pathlib import Path

import pytest

from parley.evals.__main__ import instruments
from parley.evals.bench import BENCHMARKS
from parley.evals.listing import summary

ROOT = Path(__file__).resolve().parents[3]


def test_every_instrument_is_listed_with_one_line() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "evals"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert [f"parley.evals.{line.split()[0]}" for line in lines] == instruments()
    assert {"parley.evals.latency", "parley.evals.turns.frontier", "parley.evals.abuse"} <= set(instruments())
    assert {f"parley.evals.bench.{name}" for name in BENCHMARKS} <= set(instruments())


@pytest.mark.parametrize("name", ["evals.no_such_thing", "parley.evals.turns.no_such_thing"])
def test_a_name_that_is_no_module_is_reported(name: str) -> None:
    with pytest.raises(LookupError, match=name):
        summary(name)


def test_a_line_has_no_markup() -> None:
    assert "``" not in "".join(map(summary, instruments()))
