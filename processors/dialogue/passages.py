"""Passages of the deployment's documents in each question to a language model.

    question to the service -> search -> the same question, preceded by passages -> the service

``QuestionPassages`` stands before one service, after the tools (``tool_exchange``). It searches with the
caller's last words and puts what it finds directly before them. The messages before keep their places, so a
provider's or engine's cache of them stays valid, and the next question does not carry old passages along. A
guess ahead of the end of a turn (``speculation``) and the request after a tool's result have the same words
and get the same passages without another search. Each answer is preceded by the names of its passages
(``PassagesCitedFrame``), which go to the session and to the caller's page.

The search runs in a thread with a deadline. A question whose search is late or fails is asked without
passages; the log says so. There is no task; an interruption cancels the wait with the question.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from loguru import logger
from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.passage_notes import CitedPassage, QuotedPassage, is_passages, write_passages
from parley.core.prompt_notes import parse_notes
from parley.models.retrieval import Hit
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.dialogue.engine_llm import text_of
from parley.processors.pipecat_internals import ask_with

# Returns the passages for a question and the words before it. Blocks.
Find = Callable[[str, str], Sequence[Hit]]

# A search takes about 20 ms; one that has to wait for a processor must not be what the caller waits for.
SEARCH_S = 0.25
# About 500 tokens, however long the passages of a document are.
MOST_CHARS = 2_000
# What is kept of a passage at least, where it is cut.
_LEAST_CHARS = 200


@dataclass(frozen=True, slots=True)
class _Found:
    """Result of a search.

    Attributes:
        block: message with the passages; empty where there are none.
        cited: their names, in the same order.
    """

    block: str = ""
    cited: tuple[CitedPassage, ...] = ()


_NOTHING = _Found()


class QuestionPassages:
    """Passages for the questions of one pipeline, added by ``on_frame`` before the service gets a frame.

    Args:
        find: searches the documents.
        timeout_s: longest wait for a search.
    """

    def __init__(self, find: Find, *, timeout_s: float = SEARCH_S) -> None:
        self._find = find
        self._timeout_s = timeout_s
        # The last search and what it found.
        self._asked: tuple[str, str] | None = None
        self._found = _NOTHING

    async def on_frame(self, service: object, frame: Frame) -> None:
        """Add passages to a request; all other frames pass unchanged."""
        if not isinstance(frame, LLMContextFrame):
            return
        messages = list(frame.context.messages)
        place = _last_question(messages)
        if place is None:
            return
        found = await self._passages(_words(messages[place]), _previous_words(messages[:place]))
        if not found.block:
            return
        messages.insert(place, cast(LLMContextMessage, {"role": "user", "content": found.block}))
        context = frame.context
        ask_with(frame, LLMContext(messages=messages, tools=context.tools, tool_choice=context.tool_choice))
        if isinstance(service, FrameProcessor):
            # Before the service begins its response.
            await service.push_frame(PassagesCitedFrame(found.cited))

    async def _passages(self, question: str, previous: str) -> _Found:
        if self._asked == (question, previous):
            return self._found
        try:
            async with asyncio.timeout(self._timeout_s):
                hits = await asyncio.to_thread(self._find, question, previous)
        except TimeoutError:
            logger.warning("the search in the documents was late; the question is asked without passages")
            return _NOTHING
        except Exception as error:
            # Any error of the embedder or the index: an answer without documents is better than none.
            logger.opt(exception=error).error("the search in the documents failed")
            return _NOTHING
        quoted = _quoted(hits)
        found = _Found(write_passages(quoted), tuple(passage.cited for passage in quoted))
        self._asked, self._found = (question, previous), found
        return found


def _quoted(hits: Sequence[Hit]) -> list[QuotedPassage]:
    """Return the passages as the model reads them, the best first, within ``MOST_CHARS``."""
    quoted: list[QuotedPassage] = []
    left = MOST_CHARS
    for hit in hits:
        if left < _LEAST_CHARS:
            break
        passage = hit.passage.quoted(most_chars=left)
        left -= len(passage.text)
        quoted.append(passage)
    return quoted


def _words(message: LLMContextMessage) -> str:
    """Return the words of a user's message, without notes at its front; empty for any other message."""
    if not isinstance(message, dict):
        return ""
    plain = cast(dict[str, Any], message)
    text = text_of(plain.get("content")) if plain.get("role") == "user" else ""
    return "" if is_passages(text) else parse_notes(text)[1]


def _last_question(messages: Sequence[LLMContextMessage]) -> int | None:
    """Return the place of the last message with words of the user."""
    return next((place for place in reversed(range(len(messages))) if _words(messages[place])), None)


def _previous_words(messages: Sequence[LLMContextMessage]) -> str:
    return next((words for words in map(_words, reversed(messages)) if words), "")
