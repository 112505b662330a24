"""What a client types is looked at before it interrupts anybody."""

from typing import Any

import pytest
from pipecat.frames.frames import (
    Frame,
    InputTransportMessageFrame,
    InterruptionFrame,
    LLMMessagesAppendFrame,
    OutputTransportMessageUrgentFrame,
)
from pipecat.tests.utils import run_test

from processors.dialogue.rtvi import CheckedRtvi


async def answered(rtvi: CheckedRtvi, text: str) -> tuple[list[dict[str, Any]], list[Frame]]:
    """What the client is told, and everything that left."""
    message = {
        "label": "rtvi-ai",
        "type": "send-text",
        "id": "7",
        "data": {"content": text, "options": {"run_immediately": True}},
    }
    down, up = await run_test(rtvi, frames_to_send=[InputTransportMessageFrame(message=message)])
    frames: list[Frame] = [*down, *up]
    told = [each.message for each in frames if isinstance(each, OutputTransportMessageUrgentFrame)]
    return [each for each in told if each["type"] == "error-response"], frames


@pytest.mark.parametrize(
    ("refuses", "text", "message"),
    [
        ("", "   ", "the text is empty"),
        ("Please say it.", "How much?", "Please say it."),
    ],
)
async def test_text_that_is_refused_interrupts_nobody(refuses: str, text: str, message: str):
    told, frames = await answered(CheckedRtvi(refuses_text=refuses), text)
    [refusal] = told
    assert refusal["id"] == "7" and refusal["data"]["error"] == message
    assert not any(isinstance(each, InterruptionFrame | LLMMessagesAppendFrame) for each in frames)


async def test_text_over_what_may_be_typed_interrupts_nobody():
    counted: list[str] = []

    def take_typed(text: str) -> float:
        counted.append(text)
        return 12.0

    told, frames = await answered(CheckedRtvi(take_typed=take_typed), "How much?")
    [refusal] = told
    assert counted == ["How much?"] and "12 s" in refusal["data"]["error"]
    assert not any(isinstance(each, InterruptionFrame | LLMMessagesAppendFrame) for each in frames)
