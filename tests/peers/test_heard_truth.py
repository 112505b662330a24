"""A short run of the heard-truth evaluation: real calls, real interruptions, a whole report."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.peers.eval_command import report_of
from tests.peers.server import briefly_greeting

pytestmark = pytest.mark.alone


async def report(folder: Path, system: str) -> tuple[dict[str, Any], str]:
    """Return the figures of one system, and their table."""
    folder.mkdir()
    table = folder / "table.md"
    size = ("--interruptions", "3", "--per-call", "3", "--warmup", "0", "--table", str(table))
    figures, _ = await report_of(
        "heard_truth", folder, *size, "--system", system, "--config", str(briefly_greeting(folder))
    )
    return figures, table.read_text()


@pytest.mark.slow
async def test_the_record_of_an_interrupted_reply_is_what_the_caller_heard(tmp_path: Path):
    systems = ("product", "bare")
    # At the same time: each of them waits for speech, most of the time.
    reports = await asyncio.gather(*(report(tmp_path / system, system) for system in systems))
    for system, (found, table) in zip(systems, reports, strict=True):
        assert (found["interruptions"], found["without_record"]) == (3, 0), system
        assert found["context_agrees_percent"] == 100, system
        assert found["attempts"] == 3 + found["surplus"] + sum(found["left_out"].values()), system
        if system == "product":
            # Read back from the session: the timeline, and the model's view of it.
            assert all(one["committed"] and one["shown"] for one in found["per_interruption"])
        judged = [one for one in found["per_interruption"] if one["word_error"] is not None]
        assert len(judged) >= 2, (system, found["per_interruption"])
        assert all(abs(one["word_error"]) <= 1 for one in judged), (system, judged)
        assert 0 < found["stop_ms"]["p50"] < 1_500, system
        assert "last word within one" in table, system
