"""Words of a private pause: the caller's words are marks for everything but the model, if even for that.

Between two marks of a pause nothing differs but their numbers. Where the deployment lets the model hear
(``privacy.pause.model_hears``), the words behind the last ``MOST_KEPT`` marks are in memory until the pause
is over, and ``reveal`` puts them into each question right before the service gets it. They are in no record,
no event and no log, and after the pause the model reads the marks too.
"""

import re
from typing import Any, cast

from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage

from parley.core.bounded_dict import BoundedDict
from parley.processors.pipecat_internals import ask_with

MOST_KEPT = 32
_MARK = re.compile(r"\[private-\d+\]")


class PrivateWords:
    """Words of the private pauses of one call.

    Args:
        model_hears: the model gets the words.
    """

    def __init__(self, *, model_hears: bool) -> None:
        self._model_hears = model_hears
        self._kept: BoundedDict[str, str] = BoundedDict(MOST_KEPT)
        self._number = 0
        self.is_on = False

    def begin(self) -> None:
        """Begin a pause."""
        self.is_on = True

    def end(self) -> None:
        """End the pause: its words are forgotten."""
        self.is_on = False
        self._kept.clear()

    def hide(self, text: str, *, is_final: bool) -> str:
        """Return the mark for words; a partial text has the mark of the words that follow."""
        mark = f"[private-{self._number + 1}]"
        if is_final:
            self._number += 1
            if self._model_hears:
                self._kept[mark] = text
        return mark

    async def reveal(self, _service: object, frame: Frame) -> None:
        """Put the words into a question; for a service's event before it gets a frame."""
        if not isinstance(frame, LLMContextFrame) or not self._kept:
            return
        context = frame.context
        messages = [self._revealed(each) for each in context.messages]
        ask_with(frame, LLMContext(messages=messages, tools=context.tools, tool_choice=context.tool_choice))

    def _revealed(self, message: LLMContextMessage) -> LLMContextMessage:
        if not isinstance(message, dict):
            return message
        content: Any = message.get("content")
        if isinstance(content, str):
            content = _MARK.sub(lambda found: self._kept.get(found[0]) or found[0], content)
        elif isinstance(content, list):
            content = [
                {**part, "text": _MARK.sub(lambda found: self._kept.get(found[0]) or found[0], part["text"])}
                if isinstance(part, dict) and isinstance(part.get("text"), str)
                else part
                for part in content
            ]
        else:
            return message
        return cast(LLMContextMessage, {**message, "content": content})
