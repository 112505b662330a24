"""Whole conversations of other projects' programs with the server of their evaluation."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from parley.evals.foreign.__main__ import serving
from parley.evals.foreign.programs import PROGRAMS, Site, converse, recordings
from tests.peers.foreign.environment import installed
from tests.system import missing

pytestmark = [pytest.mark.packages, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    """Run the server of the evaluation of these programs."""
    async with serving(tmp_path_factory.mktemp("server")) as served:
        yield served


@pytest.mark.browser
@pytest.mark.paired
async def test_clients_for_pages_hold_their_conversations(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if shutil.which("chromium") is None:
        missing("chromium")
    console = await installed(PROGRAMS["pipecat_console"], tmp_path / "console")
    # The console has the packages of the others as well.
    monkeypatch.setenv("PARLEY_PIPECAT_JS_NODE_PATH", f"{console}/node_modules")
    client = await installed(PROGRAMS["pipecat_js_webrtc"], tmp_path)
    agents = await installed(PROGRAMS["agents_js_webrtc"], tmp_path / "agents")
    pages = {"pipecat_js_webrtc": client, "pipecat_js_websocket": client, "pipecat_console": console}
    pages["agents_js_webrtc"] = agents
    sounds = recordings(tmp_path)
    # At the same time: most of a conversation is waiting for words that are being spoken.
    seen = await asyncio.gather(
        *(converse(PROGRAMS[name], page, site, sounds) for name, page in pages.items())
    )
    faults = {name: PROGRAMS[name].faults(each) for name, each in zip(pages, seen, strict=True)}
    assert faults == dict.fromkeys(pages, [])


@pytest.mark.slow
@pytest.mark.paired
@pytest.mark.parametrize("name", ["scenario", "voicebench"])
async def test_programs_that_test_agents_hold_their_conversations(site: Site, tmp_path: Path, name: str):
    program = PROGRAMS[name]
    python = await installed(program, tmp_path / "environment")
    seen = await converse(program, python, site, recordings(tmp_path))
    assert program.faults(seen) == []
