"""``evals.foreign`` as a user runs it, without the programs, whose packages may not be there."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.peers.server import ROOT


@pytest.mark.alone
async def test_transcripts_of_a_few_turns_under_load_are_complete(tmp_path: Path):
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parley.evals.foreign", "--programs", "--load", "1", "--turns", "3",
        "--callers", "1", "--environments", str(tmp_path),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(child.communicate(), 240)
    [found] = [json.loads(line) for line in out.decode().splitlines()]
    assert child.returncode == 0, found
    assert (found["program"], found["mode"], found["load"]) == ("transcripts", "loaded", 1)
    assert (found["turns"], found["complete"], found["unanswered"]) == (3, 3, 0)
    assert found["errors"] == [] and found["largest_gap_ms"] >= 0
