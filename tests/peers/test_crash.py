"""A short run of ``python -m evals.crash``: the long one is a measurement."""

from evals.crash.__main__ import run


async def test_a_killed_server_loses_nothing_and_does_nothing_twice():
    findings = await run(2, 7, idempotent=False)
    assert findings.kills == 2
    assert findings.acknowledged > 0
    assert findings.passed(), findings
