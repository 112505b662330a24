"""A short run of the heard-truth evaluation: real calls, real interruptions, a whole report."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peers.server import ROOT, briefly_greeting

pytestmark = pytest.mark.alone


async def report(folder: Path, system: str) -> tuple[dict[str, Any], str]:
    """Return the figures of one system, and their table."""
    folder.mkdir()
    out, table = folder / "out.json", folder / "table.md"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley.evals.heard_truth", "--interruptions", "3", "--per-call", "3",
        "--warmup", "0", "--json", str(out), "--table", str(table), "--out-dir", str(folder),
        "--system", system,
        "--config", str(briefly_greeting(folder)),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(child.communicate(), 240)
    assert child.returncode == 0, output.decode()
    return json.loads(out.read_text()), table.read_text()


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
