"""A short run of ``python -m evals.tiers``; the long one is a measurement."""

import pytest

from parley.evals.tiers.__main__ import passed, run
from tests.peers.operations_gateway import TOKEN, TOKEN_ENV


@pytest.mark.slow
async def test_sessions_over_changes_of_the_tier_lose_no_fact_and_repeat_no_question(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv(TOKEN_ENV, TOKEN)
    result = await run(3, at_once=3, seed=2)
    assert passed(result), result
    assert result["facts"] == 18 and result["changes"] >= 15
