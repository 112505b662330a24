"""Prompts with which a service was asked, on the responses that it begins.

A client may give instructions for one response (``response.create``), or change those of its session while a
response is on its way. The service takes settings and questions one at a time, in their order. So the prompt
of a response is the last one before its question.
"""

from pipecat.frames.frames import Frame, LLMContextFrame, LLMFullResponseStartFrame, LLMUpdateSettingsFrame
from pipecat.services.llm_service import LLMService

from parley.core.frame_facts import PROMPT


class ReplyPrompts:
    """Prompt of each response of one service.

    Args:
        prompt: with which the service was built.
    """

    def __init__(self, prompt: str) -> None:
        self._prompt = self._asked = prompt

    def follow(self, service: LLMService) -> None:
        """Follow the frames of the service."""
        service.add_event_handler("on_before_process_frame", self.on_frame)
        service.add_event_handler("on_before_push_frame", self.on_output)

    async def on_frame(self, _service: object, frame: Frame) -> None:
        """Handle every frame before the service gets it."""
        if isinstance(frame, LLMContextFrame):
            self._asked = self._prompt
        elif isinstance(frame, LLMUpdateSettingsFrame) and frame.delta is not None:
            given = frame.delta.system_instruction
            if isinstance(given, str):
                self._prompt = given

    async def on_output(self, _service: object, frame: Frame) -> None:
        """Handle every frame before the service pushes it."""
        if isinstance(frame, LLMFullResponseStartFrame):
            PROMPT.put(frame, self._asked)
