"""A short run of the heard-truth evaluation: real calls, real interruptions, a whole report."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.peers.server import ROOT, briefly_greeting

pytestmark = pytest.mark.alone


@pytest.mark.parametrize("system", ["product", "bare"])
async def test_the_record_of_an_interrupted_reply_is_what_the_caller_heard(tmp_path: Path, system: str):
    out, table = tmp_path / "out.json", tmp_path / "table.md"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley.evals.heard_truth", "--interruptions", "3", "--per-call", "3",
        "--warmup", "0", "--json", str(out), "--table", str(table), "--out-dir", str(tmp_path),
        "--system", system,
        "--config", str(briefly_greeting(tmp_path)),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(child.communicate(), 240)
    assert child.returncode == 0, output.decode()
    report = json.loads(out.read_text())
    assert (report["interruptions"], report["without_record"]) == (3, 0)
    assert report["context_agrees_percent"] == 100
    assert report["attempts"] == 3 + report["surplus"] + sum(report["left_out"].values())
    if system == "product":
        # Read back from the session: the timeline, and the model's view of it.
        assert all(one["committed"] and one["shown"] for one in report["per_interruption"])
    judged = [one for one in report["per_interruption"] if one["word_error"] is not None]
    assert len(judged) >= 2, report["per_interruption"]
    assert all(abs(one["word_error"]) <= 1 for one in judged), judged
    assert 0 < report["stop_ms"]["p50"] < 1_500
    assert "last word within one" in table.read_text()
