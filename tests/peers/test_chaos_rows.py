"""Rows of ``python -m evals.chaos`` that concern one server, each with its outcome."""

from pathlib import Path

import pytest

from parley.evals.chaos.__main__ import run_rows
from parley.evals.chaos.rows import ChaosRun, rows

SERVED = ("full-disk", "read-only-database", "wrong-clock", "collector-hangs", "scraper-never-reads")


@pytest.mark.slow
@pytest.mark.paired
@pytest.mark.parametrize("name", SERVED)
async def test_a_server_has_the_stated_outcome(tmp_path: Path, name: str):
    [found] = await run_rows(rows([name]), ChaosRun(tmp_path, 1))
    assert found.faults == []
