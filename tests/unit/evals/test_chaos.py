"""Rows of the chaos evaluation: their verdicts, and one of them on a real worker."""

from pathlib import Path

import pytest

from parley.core.errors import ConfigError, PeerError
from parley.evals.chaos.__main__ import run_rows
from parley.evals.chaos.rows import ROWS, ChaosRow, ChaosRun, rows


def test_names_choose_rows_and_an_unknown_one_is_an_error():
    assert rows(None) == list(ROWS)
    assert [row.name for row in rows(["full-disk", "worker-killed"])] == ["full-disk", "worker-killed"]
    with pytest.raises(ConfigError, match="no-such-row"):
        rows(["no-such-row"])


async def test_a_row_with_faults_or_that_cannot_be_run_has_failed(tmp_path: Path):
    async def sound(_run: ChaosRun) -> list[str]:
        return []

    async def faulty(_run: ChaosRun) -> list[str]:
        return ["a fault"]

    async def broken(_run: ChaosRun) -> list[str]:
        raise PeerError("no server")

    wanted = [ChaosRow(cause.__name__, "", "", cause) for cause in (sound, faulty, broken)]
    found = await run_rows(wanted, ChaosRun(tmp_path, 1))
    assert [each.faults for each in found] == [[], ["a fault"], ["it could not be run: no server"]]


async def test_a_killed_worker_has_its_outcome(tmp_path: Path):
    [found] = await run_rows(rows(["worker-killed"]), ChaosRun(tmp_path, 1))
    assert found.faults == []
