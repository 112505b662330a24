"""A short run of the barge-in evaluation: real calls with backchannels and interruptions, and a report."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.peers.server import ROOT, briefly_greeting

pytestmark = pytest.mark.alone


async def test_an_interruption_stops_the_bot_at_the_client_and_a_hum_does_not(tmp_path: Path):
    out = tmp_path / "out.json"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley.evals.turns", "--webrtc", "--interruptions", "2", "--per-call", "2",
        "--json", str(out), "--out-dir", str(tmp_path),
        "--config", str(briefly_greeting(tmp_path)),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(child.communicate(), 180)
    assert child.returncode == 0, output.decode()
    report = json.loads(out.read_text())
    assert report["interruptions"] >= 2 and report["backchannels"] >= 2
    assert (report["barge_in_recall"], report["false_yield_rate"]) == (1.0, 0.0), report
    # Each cut was decided by the server and heard later, by the time of packets on their way and the client's
    # buffer.
    each = [one["decision_to_silence"] for one in report["per_interruption"]]
    assert all(after_ms is not None and after_ms < 500 for after_ms in each), report
    assert 0 < report["barge_in_stop_ms"]["p50"] < 2_000
    assert b"decision to the bot's last sample" in output
