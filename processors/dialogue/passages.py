"""Passages of the deployment's documents in each question to a language model.

    question to the service -> search -> the same question, preceded by passages -> the service

``QuestionPassages`` stands before one service, after the tools (``tool_exchange``). It searches with the
caller's last words and puts what it finds directly before them. The messages before keep their places, so a
provider's or engine's cache of them stays valid, and the next question does not carry old passages along. A
guess ahead of the end of a turn (``speculation``) and the request after a tool's result have the same words
and get the same passages without another search. Each answer is preceded by the names of its passages
(``PassagesCitedFrame``), which go to the session and to the caller's page.

While the caller still speaks, the words so far are searched for too (``ReadAheadFrame``, ``speculation``), so
that the passages are there when the turn ends. The final words decide: only a search with exactly the words
of the question, in the same documents, is used for it, and any other is forgotten. A model that reads ahead
gets the passages found so far with the words so far, because they stand before the question in the request
too.

A search runs in a thread with a deadline. A question whose search is late or fails is asked without passages;
the log says so. Searches ahead are one at a time, of the newest words, as often as words are given to be read
ahead. A question does not wait for them, unless it has the same words. Their task ends with the question and
with the pipeline; a thread that is searching then finishes, and its result is dropped.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from loguru import logger
from pipecat.frames.frames import CancelFrame, EndFrame, Frame, LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.bounded_dict import BoundedDict
from parley.core.passage_notes import CitedPassage, QuotedPassage, is_passages, write_passages
from parley.core.prompt_notes import parse_notes
from parley.models.retrieval import Hit
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.dialogue.engine_llm import ReadAheadFrame, text_of
from parley.processors.pipecat_internals import ask_with

# Returns the passages for a question and the words before it. Blocks.
Find = Callable[[str, str], Sequence[Hit]]

# A search takes about 20 ms; one that has to wait for a processor must not be what the caller waits for.
SEARCH_S = 0.25
# Of the question, of a guess before it and of words before that.
_MOST_KNOWN = 4
# About 500 tokens, however long the passages of a document are.
MOST_CHARS = 2_000
# What is kept of a passage at least, where it is cut.
_LEAST_CHARS = 200


@dataclass(frozen=True, slots=True)
class _Searched:
    """Words that are searched.

    Attributes:
        question: the caller's last words.
        previous: the words before.
        generation: number of the documents' changes before the search.
    """

    question: str
    previous: str
    generation: int


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
        generation: returns the number of the documents' changes so far.
    """

    def __init__(
        self,
        find: Find,
        *,
        timeout_s: float = SEARCH_S,
        generation: Callable[[], int] = lambda: 0,
    ) -> None:
        self._find = find
        self._timeout_s = timeout_s
        self._generation = generation
        self._known: BoundedDict[_Searched, _Found] = BoundedDict(_MOST_KNOWN)
        # Newest words of the turn that goes on, to be searched next; what the search ahead is at; its task.
        self._next: _Searched | None = None
        self._under_way: tuple[_Searched, asyncio.Task[_Found | None]] | None = None
        self._ahead: asyncio.Task[None] | None = None
        # What was last found for the turn that goes on.
        self._so_far = _NOTHING

    async def on_frame(self, service: object, frame: Frame) -> None:
        """Add passages to a request; all other frames pass unchanged."""
        if isinstance(frame, LLMContextFrame):
            await self._on_question(service, frame)
        elif isinstance(frame, ReadAheadFrame):
            self._on_words(frame)
        elif isinstance(frame, (CancelFrame, EndFrame)):
            self._stop_ahead()

    async def _on_question(self, service: object, frame: LLMContextFrame) -> None:
        asked = self._asked_in(frame.context)
        if asked is None:
            return
        place, searched = asked
        found = await self._found_for(searched)
        if not found.block:
            return
        ask_with(frame, _with_block(frame.context, place, found.block))
        if isinstance(service, FrameProcessor):
            # Before the service begins its response.
            await service.push_frame(PassagesCitedFrame(found.cited))

    def _on_words(self, frame: ReadAheadFrame) -> None:
        """Search for the words of a turn that goes on, and have the model read what was found so far."""
        asked = self._asked_in(frame.context)
        if asked is None:
            return
        place, self._next = asked
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._search_ahead(), name="passages.ahead")
        if self._so_far.block:
            ask_with(frame, _with_block(frame.context, place, self._so_far.block))

    def _asked_in(self, context: LLMContext) -> tuple[int, _Searched] | None:
        """Return the place of the question among the messages, and what is searched for it."""
        messages = context.messages
        place = _last_question(messages)
        if place is None:
            return None
        words, previous = _words(messages[place]), _previous_words(messages[:place])
        return place, _Searched(words, previous, self._generation())

    async def _found_for(self, searched: _Searched) -> _Found:
        """Return the passages of a question."""
        found = self._known.get(searched)
        under_way = self._under_way
        if found is None and under_way is not None and under_way[0] == searched:
            # Within the deadline of that search, which began earlier.
            found = await asyncio.shield(under_way[1])
        elif found is None:
            self._stop_ahead()
            found = await self._search(searched)
        self._stop_ahead()
        if found is None:
            return _NOTHING
        self._known[searched] = found
        return found

    async def _search_ahead(self) -> None:
        """Search for the newest words until there are none."""
        try:
            while (searched := self._next) is not None:
                self._next = None
                if searched in self._known:
                    continue
                # Its own task, so that a question with the same words can wait for it.
                search = asyncio.create_task(self._search(searched), name="passages.search")
                self._under_way = (searched, search)
                try:
                    found = await search
                finally:
                    search.cancel()
                    self._under_way = None
                if found is not None:
                    self._known[searched] = self._so_far = found
        finally:
            if self._ahead is asyncio.current_task():
                self._ahead = None

    def _stop_ahead(self) -> None:
        """End the search ahead: the turn is over, or the pipeline."""
        self._next, self._so_far = None, _NOTHING
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()

    async def _search(self, searched: _Searched) -> _Found | None:
        """Return the passages that a search finds; None when it is late or fails."""
        try:
            async with asyncio.timeout(self._timeout_s):
                hits = await asyncio.to_thread(self._find, searched.question, searched.previous)
        except TimeoutError:
            logger.warning("the search in the documents was late; the question is asked without passages")
            return None
        except Exception as error:
            # Any error of the embedder or the index: an answer without documents is better than none.
            logger.opt(exception=error).error("the search in the documents failed")
            return None
        quoted = _quoted(hits)
        return _Found(write_passages(quoted), tuple(passage.cited for passage in quoted))


def _with_block(context: LLMContext, place: int, block: str) -> LLMContext:
    """Return the context with the passages before the question."""
    messages = list(context.messages)
    messages.insert(place, cast(LLMContextMessage, {"role": "user", "content": block}))
    return LLMContext(messages=messages, tools=context.tools, tool_choice=context.tool_choice)


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
