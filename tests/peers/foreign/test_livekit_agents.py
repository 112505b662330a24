"""A whole conversation of LiveKit's ``AgentSession`` with its OpenAI plugin, which is pointed here.

``PARLEY_LIVEKIT_PYTHON`` names an interpreter that has the packages; otherwise the test makes an environment
when packages can be installed.
"""

import asyncio
import json
from pathlib import Path

import pytest
import pytest_asyncio

from parley.evals.foreign.programs import PROGRAMS
from tests.peers.foreign.environment import installed, wav
from tests.peers.server import RunningServer
from tests.peers.test_openai_realtime import LONG, QUESTION, Asked, Turn, serving

pytestmark = pytest.mark.asyncio(loop_scope="module")

PRICE = "It costs five euros."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python_with_livekit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter that has LiveKit's packages."""
    folder = tmp_path_factory.mktemp("livekit")
    return await installed(PROGRAMS["livekit"], folder)


@pytest.mark.packages
@pytest.mark.alone
async def test_replies_on_request_a_tool_and_an_interruption(python_with_livekit: str, tmp_path: Path):
    async with Asked([Turn(LONG)], after_tool=LONG) as llm, serving(llm, tmp_path) as server:
        seen = await _conversation(python_with_livekit, server, tmp_path)
    assert seen["errors"] == []
    # Each request has its own answer, in its own time: the plugin gives up after 10 s.
    assert {name: step["error"] for name, step in seen["steps"].items()} == {
        "instructed": "",
        "typed": "",
        "after_barge_in": "",
    }
    assert seen["steps"]["instructed"]["words"] == ["".join(LONG).strip()]
    assert [seen["steps"][name]["words"] for name in ("typed", "after_barge_in")] == [[PRICE], [PRICE]]
    assert seen["called"] == ["Paris"]
    [about_weather] = [said for said in seen["said"] if "sunny in Paris" in said[1]]
    assert about_weather[2], "the answer that the caller spoke over is not marked as interrupted"
    # What the caller said is there once, in order, and the words after the interruption were answered.
    assert len(seen["heard"]) == 2 and seen["heard"][0] == "what are your opening hours"
    place = seen["said"].index(about_weather)
    assert [role for role, *_ in seen["said"][place + 1 : place + 3]] == ["user", "assistant"]
    assert seen["said"][place + 2][1] == PRICE


async def _conversation(python: str, server: RunningServer, folder: Path) -> dict[str, object]:
    child = await asyncio.create_subprocess_exec(
        python,
        str(PROGRAMS["livekit"].file),
        f"{server.url}/v1",
        wav(folder / "question.wav", QUESTION),
        wav(folder / "stop.wav", "Stop, please tell me the price."),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    out, _ = await asyncio.wait_for(child.communicate(), 120)
    assert child.returncode == 0
    return json.loads(out)
