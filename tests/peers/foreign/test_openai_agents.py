"""A whole conversation of OpenAI's agents SDK, which tolerates fewer deviations in events than the plain
client.

It requires an older ``websockets`` than Parley, so it runs in an environment of its own.
``PARLEY_AGENTS_PYTHON`` names one; otherwise the test makes one when packages can be installed.
"""

import asyncio
import json
from pathlib import Path

import pytest
import pytest_asyncio

from parley.evals.foreign.programs import PROGRAMS
from tests.peers.foreign.environment import installed, wav
from tests.peers.realtime_caller import PCM_HZ
from tests.peers.server import RunningServer
from tests.peers.test_openai_realtime import QUESTION, forecaster

__all__ = ["forecaster"]
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def python_with_agents(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return an interpreter that has the SDK."""
    folder = tmp_path_factory.mktemp("agents")
    return await installed(PROGRAMS["agents"], folder)


@pytest.mark.paired
@pytest.mark.packages
@pytest.mark.parametrize("model", ["parley-cascade", pytest.param("parley-duplex", marks=pytest.mark.slow)])
async def test_a_spoken_conversation_with_a_tool_and_an_interruption(
    python_with_agents: str, forecaster: RunningServer, tmp_path: Path, model: str
):
    url = f"{forecaster.url.replace('http', 'ws')}/v1/realtime?model={model}"
    child = await asyncio.create_subprocess_exec(
        python_with_agents,
        str(PROGRAMS["agents"].file),
        url,
        wav(tmp_path / "question.wav", QUESTION),
        wav(tmp_path / "stop.wav", "Stop, please tell me the price."),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await asyncio.wait_for(child.communicate(), 90)
    assert child.returncode == 0
    seen = json.loads(out)
    assert seen["errors"] == []
    assert seen["called"] == ["Paris"]
    assert seen["interrupted"] >= 1
    # Both sides, in the order in which they spoke, as the SDK has joined them.
    roles = [role for role, _ in seen["history"]]
    assert roles == ["user", "assistant", "user", "assistant"], seen["history"]
    assert seen["history"][0][1] == ["what are your opening hours"]
    assert seen["audio_bytes"] > 2 * PCM_HZ * 2
