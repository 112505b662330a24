"""Pipecat's own evaluation tool against the product: every shipped scenario passes."""

import asyncio
import re
import sys
from pathlib import Path

from tests.peers.server import ROOT, running_server

SCENARIOS = ROOT / "evals" / "scenarios" / "embedded.yaml"
PIPECAT = Path(sys.executable).parent / "pipecat"


async def test_every_scenario_passes(tmp_path: Path):
    async with running_server() as server:
        address = server.url.replace("http", "ws") + "/ws"
        child = await asyncio.create_subprocess_exec(
            str(PIPECAT), "eval", "run", str(SCENARIOS), "--bot-url", address, "--logs-dir", str(tmp_path),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        output, _ = await asyncio.wait_for(child.communicate(), 90)
    report = output.decode()
    passed, total = map(int, re.search(r"(\d+)/(\d+) passed", report).groups())
    assert (passed, child.returncode) == (total, 0), report
