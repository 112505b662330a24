"""An evaluation as a user runs it: ``python -m`` in a process of its own."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.peers.server import ROOT


async def report_of(
    module: str, folder: Path, *arguments: str, within_s: float = 240
) -> tuple[dict[str, Any], str]:
    """Return the figures that an evaluation writes, and its output; its files are in ``folder``."""
    out = folder / "out.json"
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"parley.evals.{module}", "--out-dir", str(folder), "--json", str(out),
        *arguments,
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    output, _ = await asyncio.wait_for(child.communicate(), within_s)
    assert child.returncode == 0, output.decode()
    figures: dict[str, Any] = json.loads(out.read_text())
    return figures, output.decode()
