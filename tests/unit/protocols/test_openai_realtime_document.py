"""The code in docs/reference/openai_realtime.md is valid Python, and its names exist."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from openai import AsyncOpenAI
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService

from parley.protocols.openai_realtime.client_events import HANDLERS

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs/reference/openai_realtime.md").read_text()
EXAMPLES = dict(re.findall(r"```python\n# (\w+)\n(.*?)```", DOCUMENT, re.DOTALL))


def keywords(source: str, name: str) -> set[str]:
    """Return the keyword arguments of the calls of a function."""
    wrapped = "async def example():\n" + "".join(f"    {line}\n" for line in source.splitlines())
    return {
        keyword.arg or ""
        for node in ast.walk(ast.parse(wrapped))
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(name)
        for keyword in node.keywords
    }


@pytest.mark.parametrize("name", ["openai", "agents", "pipecat", "livekit", "scenario", "webrtc"])
def test_every_client_has_an_example_that_is_python(name: str):
    assert "localhost:7860" in EXAMPLES[name]
    keywords(EXAMPLES[name], "")


def test_the_examples_arguments_are_those_of_the_clients():
    assert keywords(EXAMPLES["openai"], "AsyncOpenAI") <= inspect.signature(AsyncOpenAI).parameters.keys()
    assert (
        keywords(EXAMPLES["openai"], "connect")
        <= inspect.signature(AsyncOpenAI(api_key="x").realtime.connect).parameters.keys()
    )
    connect = inspect.signature(AsyncOpenAI(api_key="x").realtime.connect).parameters.keys()
    assert keywords(EXAMPLES["sideband"], "realtime.connect") <= connect
    create = inspect.signature(AsyncOpenAI(api_key="x").realtime.calls.create).parameters.keys()
    assert keywords(EXAMPLES["webrtc"], "calls.create") <= create
    settings = inspect.signature(OpenAIRealtimeLLMService.Settings).parameters.keys()
    assert keywords(EXAMPLES["pipecat"], "Settings") <= settings
    service = inspect.signature(OpenAIRealtimeLLMService).parameters.keys()
    assert keywords(EXAMPLES["pipecat"], "LLMService") <= service


def test_the_table_names_every_event_that_is_read():
    kept = set(
        re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", DOCUMENT.split("## What is kept")[1].split("- Audio")[0])
    )
    read = set(HANDLERS) - {"input_audio_buffer.clear"}
    assert read <= kept
