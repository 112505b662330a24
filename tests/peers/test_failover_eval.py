"""A short run of ``python -m evals.failover``; the long one is a measurement."""

from pathlib import Path

import pytest

from parley.evals.failover.__main__ import run
from parley.evals.failover.calls import KINDS
from parley.evals.failover.faults import Stage
from parley.evals.failover.figures import FAILED_TURN, MOST_SILENCE_MS, lost


@pytest.mark.paired
@pytest.mark.parametrize(
    "stage", [Stage.VOICE, *(pytest.param(each, marks=pytest.mark.slow) for each in Stage if each != "voice")]
)
async def test_a_caller_hears_every_word_once_whatever_stage_fails(tmp_path: Path, stage: Stage):
    [record] = await run(1, 7, 1, tmp_path, [stage])
    assert record.kind == KINDS[0] and record.failure.stage is stage
    assert not record.error and len(record.turns) == 3
    assert record.repeated == [] and record.caller_repeated == [] and lost(record) == []
    for turn in record.turns[FAILED_TURN:]:
        assert turn.first_ms is not None
        assert turn.silence_ms <= MOST_SILENCE_MS


@pytest.mark.slow
@pytest.mark.paired
async def test_calls_of_every_kind_of_lane_are_held(tmp_path: Path):
    records = await run(6, 11, 3, tmp_path, [*Stage])
    assert {each.kind for each in records} == {*KINDS}
    assert [each.error for each in records] == [""] * 6
    assert [word for each in records for word in each.repeated] == []
