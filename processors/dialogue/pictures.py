"""Pictures of the session in each question to a language model that sees.

    question to the service, with references -> the session -> the same question with pictures -> the service

``QuestionPictures`` stands before one service, after the stages that make or change a question. The context
of the pipeline keeps the references (``core.pictures``): it stays small, and a guess ahead of the end of a
turn can be compared with the question. The provider's SDK gets the pictures as data URLs, in the same place
and form each time, so its cache of the earlier messages stays valid.

A picture that cannot be read in time is replaced by a remark, and the question is asked. There is no task; an
interruption cancels the wait with the question.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

from loguru import logger
from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage

from parley.core.errors import StoreError
from parley.core.pictures import UNREADABLE, Picture, referred_key
from parley.processors.pipecat_internals import ask_with

# Returns the picture of a key; None when there is none.
ReadPicture = Callable[[str], Awaitable[Picture | None]]

# A picture that was just shown is in memory. One of an earlier call is read once.
READ_S = 2.0


class QuestionPictures:
    """Pictures for the questions of one pipeline, put in by ``on_frame`` before the service gets a frame.

    Args:
        read: returns a picture of the session.
        timeout_s: longest wait for all pictures of a question.
    """

    def __init__(self, read: ReadPicture, *, timeout_s: float = READ_S) -> None:
        self._read = read
        self._timeout_s = timeout_s

    async def on_frame(self, _service: object, frame: Frame) -> None:
        """Put pictures into a request; all other frames pass unchanged."""
        if not isinstance(frame, LLMContextFrame):
            return
        messages = list(frame.context.messages)
        keys = {key for message in messages for key in _keys(message)}
        if not keys:
            return
        found = await self._find(sorted(keys))
        context = frame.context
        filled = [_filled(message, found) for message in messages]
        ask_with(frame, LLMContext(messages=filled, tools=context.tools, tool_choice=context.tool_choice))

    async def _find(self, keys: Sequence[str]) -> dict[str, Picture]:
        found: dict[str, Picture] = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                for key in keys:
                    picture = await self._read(key)
                    if picture is not None:
                        found[key] = picture
        except (TimeoutError, StoreError) as error:
            logger.warning(
                f"{len(keys) - len(found)} pictures of a question could not be read: {type(error).__name__}"
            )
        return found


def _keys(message: LLMContextMessage) -> list[str]:
    return [key for part in _parts(message) if (key := referred_key(part)) is not None]


def _parts(message: LLMContextMessage) -> Sequence[Any]:
    content = cast(Mapping[str, Any], message).get("content") if isinstance(message, dict) else None
    return content if isinstance(content, list) else ()


def _filled(message: LLMContextMessage, found: Mapping[str, Picture]) -> LLMContextMessage:
    if not _keys(message):
        return message
    parts: list[Any] = []
    for part in _parts(message):
        key = referred_key(part)
        if key is None:
            parts.append(part)
        elif key in found:
            parts.append({"type": "image_url", "image_url": {"url": found[key].url}})
        else:
            parts.append({"type": "text", "text": UNREADABLE})
    return cast(LLMContextMessage, {**cast(Mapping[str, Any], message), "content": parts})
