"""A short run of the latency evaluation: both systems answer real calls, and the report is complete."""

from pathlib import Path

import pytest

from tests.peers.eval_command import report_of
from tests.peers.server import briefly_greeting

pytestmark = pytest.mark.alone

FIGURES = {"turns", "voice_to_voice_ms", "false_cut_ins", "unanswered", "spans_ms", "span_error_ms"}


@pytest.mark.slow
async def test_both_systems_answer_and_the_report_is_whole(tmp_path: Path):
    picture = tmp_path / "waterfall.png"
    report, _ = await report_of(
        "latency", tmp_path, "--turns", "1", "--warmup", "0", "--baseline", "stock",
        "--waterfall", str(picture), "--config", str(briefly_greeting(tmp_path)),
        within_s=180,
    )  # fmt: skip
    for system in (report, report["baseline"]):
        assert system.keys() >= FIGURES
        assert (system["turns"], system["unanswered"]) == (1, 0)
        assert 100 < system["voice_to_voice_ms"]["p50"] < 10_000
    assert report["ratio_p50"] > 0
    # The server's marks agree with the client's recording.
    assert report["span_error_ms"]["p95"] <= 20
    assert picture.read_bytes().startswith(b"\x89PNG")
