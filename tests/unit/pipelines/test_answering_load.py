"""Start of the language model: what it has opened is closed when a tool cannot be created."""

from typing import Any

import aiohttp
import pytest

from parley.configs.deployment import Deployment
from parley.core.errors import ConfigError
from parley.models.tools import ToolSettings
from parley.pipelines.engines import llm_runtime
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.processors.dialogue.services import LlamaCpp, LlamaCppRowSettings

SETTINGS = ToolSettings(name="book", description="Book a table.")
given: list[aiohttp.ClientSession] = []


class BrokenTool:
    """Tool whose constructor fails."""

    def __init__(self, settings: ToolSettings, http: aiohttp.ClientSession) -> None:
        given.append(http)
        raise OSError("no calendar")

    async def run(self, arguments: Any, *, key: str) -> Any: ...


class FakeServer:
    """Server of a GGUF file, without the file."""

    opened: list["FakeServer"] = []
    uses_tools = True

    def __init__(self, settings: object) -> None:
        self.is_closed = False
        self.opened.append(self)

    async def start(self) -> None: ...

    async def close(self) -> None:
        self.is_closed = True


async def test_the_server_and_the_http_session_are_closed_when_a_tool_cannot_be_created(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(llm_runtime, "LlamaCppServer", FakeServer)
    plan = AnsweringPlan(
        LlamaCpp(LlamaCppRowSettings()), None, False, ((f"{__name__}:BrokenTool", SETTINGS),)
    )
    with pytest.raises(ConfigError, match="BrokenTool' cannot be created: OSError: no calendar"):
        await LlmRuntime.load(Deployment(), plan)
    assert [http.closed for http in given] == [True]
    assert [server.is_closed for server in FakeServer.opened] == [True]
