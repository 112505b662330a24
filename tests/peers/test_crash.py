"""A short run of ``python -m evals.crash``; the long one is a measurement."""

import shutil

import pytest

from parley.evals.crash.calls import run_calls
from parley.evals.crash.pages import DROP, KILL, run_pages
from parley.evals.crash.rounds import run
from tests.peers.postgres import postgres, postgres_url  # noqa: F401
from tests.system import missing


@pytest.mark.parametrize(
    ("database", "voice"), [("sqlite", True), pytest.param("postgres", False, marks=pytest.mark.slow)]
)
async def test_a_killed_server_loses_nothing_and_does_nothing_twice(
    request: pytest.FixtureRequest, database: str, voice: bool
):
    store = request.getfixturevalue("postgres_url") if database == "postgres" else None
    findings = await run(2, 7, store=store, voice=voice)
    assert findings.kills == 2
    assert findings.acknowledged.total() > 0
    assert findings.passed(), findings


@pytest.mark.paired
async def test_a_phone_call_goes_on_when_its_server_was_killed():
    findings = await run_calls(1, 7)
    assert findings.passed(), findings.details
    assert findings.kills == len(findings.gaps_ms) == len(findings.silences_ms) == 1


@pytest.mark.browser
@pytest.mark.paired
@pytest.mark.parametrize("breaks", [DROP, KILL])
async def test_the_call_of_a_page_goes_on_when_its_network_was_away_or_its_server_was_killed(breaks: str):
    if shutil.which("chromium") is None:
        missing("chromium")
    findings = await run_pages(1, 7, breaks=breaks)
    assert findings.passed(), findings.details
    assert len(findings.gaps_ms) == len(findings.silences_ms) == 1
