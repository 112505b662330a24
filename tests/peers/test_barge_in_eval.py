"""A short run of the barge-in evaluation: real calls with backchannels and interruptions, and a report."""

from pathlib import Path

import pytest

from tests.peers.eval_command import report_of
from tests.peers.server import briefly_greeting

pytestmark = pytest.mark.alone


@pytest.mark.slow
async def test_an_interruption_stops_the_bot_at_the_client_and_a_hum_does_not(tmp_path: Path):
    size = (
        "--webrtc",
        "--interruptions",
        "2",
        "--per-call",
        "2",
        "--config",
        str(briefly_greeting(tmp_path)),
    )
    report, output = await report_of("turns", tmp_path, *size, within_s=180)
    assert report["interruptions"] >= 2 and report["backchannels"] >= 2
    assert (report["barge_in_recall"], report["false_yield_rate"]) == (1.0, 0.0), report
    # Each cut was decided by the server and heard later, by the time of packets on their way and the client's
    # buffer.
    each = [one["decision_to_silence"] for one in report["per_interruption"]]
    assert all(after_ms is not None and after_ms < 500 for after_ms in each), report
    assert 0 < report["barge_in_stop_ms"]["p50"] < 2_000
    assert "decision to the bot's last sample" in output
