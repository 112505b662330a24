"""A short run of the latency evaluation: both systems answer real calls, and the report is complete."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.peers.server import ROOT, briefly_greeting

pytestmark = pytest.mark.alone

FIGURES = {"turns", "voice_to_voice_ms", "false_cut_ins", "unanswered", "spans_ms", "span_error_ms"}


async def test_both_systems_answer_and_the_report_is_whole(tmp_path: Path):
    out, picture = tmp_path / "out.json", tmp_path / "waterfall.png"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley.evals.latency", "--turns", "1", "--warmup", "0", "--baseline", "stock",
        "--json", str(out), "--waterfall", str(picture), "--out-dir", str(tmp_path),
        "--config", str(briefly_greeting(tmp_path)),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(child.communicate(), 180)
    assert child.returncode == 0, output.decode()
    report = json.loads(out.read_text())
    for system in (report, report["baseline"]):
        assert system.keys() >= FIGURES
        assert (system["turns"], system["unanswered"]) == (1, 0)
        assert 100 < system["voice_to_voice_ms"]["p50"] < 10_000
    assert report["ratio_p50"] > 0
    # The server's marks agree with the client's recording.
    assert report["span_error_ms"]["p95"] <= 20
    assert picture.read_bytes().startswith(b"\x89PNG")
