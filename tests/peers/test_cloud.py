"""The deployment ``cloud`` as a user starts it: starting contacts none of its providers."""

import asyncio
import os
import sys
from pathlib import Path

import httpx
import pytest

from tests.peers.server import ROOT, running_server

KEYS = ("DEEPGRAM_API_KEY", "ANTHROPIC_API_KEY", "CARTESIA_API_KEY")


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set API keys that are not valid."""
    for key in KEYS:
        monkeypatch.setenv(key, "opens nothing")


async def test_the_deployment_cloud_starts_with_its_extras(keys: None, tmp_path: Path):
    pytest.importorskip("deepgram", reason="needs the extra 'deepgram'")
    async with running_server("--config", "cloud", log=tmp_path / "log") as server:
        async with httpx.AsyncClient() as client:
            received = (await client.get(f"{server.url}/status")).json()
    stages = (received["deployment"], received["stt"], received["llm"], received["tts"])
    assert stages == ("cloud", "deepgram", "anthropic", "cartesia")


async def test_without_its_extra_it_says_in_one_line_what_to_install(keys: None, tmp_path: Path):
    # Every Python imports this file at its start; it makes the package unavailable for this process.
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['deepgram'] = None\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, str(ROOT / "bot.py"), "--config", "cloud", "--port", "0"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        _, errors = await child.communicate()
    lines = [line for line in errors.decode().splitlines() if " | INFO " not in line]
    assert child.returncode == 2
    assert lines == ["bot.py: 'deepgram' needs the extra 'deepgram': pip install -e '.[deepgram]'"]
