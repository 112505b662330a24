"""An engine of ``models.llm`` as a Pipecat service.

Input: an ``LLMContextFrame``. Output: one response of text frames, or an error pushed upstream. The engine's
stream belongs to Pipecat's process task of this service: an interruption cancels the task, and with it the
stream. An engine that stays silent longer than ``piece_timeout_s`` has failed.

An engine of one conversation that can ``read_ahead`` reads the turn while it is being said
(``ReadAheadFrame``). It does so in a task of this service: one request at a time, the newest words next. A
question cancels the task and is answered. Its failure has no consequence: the question itself reports errors.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

from loguru import logger
from pipecat.adapters.llm.base_llm_adapter import BaseLLMAdapter
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    DataFrame,
    Frame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext, LLMSpecificMessage
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.llm_service import LLMService
from pipecat.services.settings import LLMSettings
from pipecat.utils.types import assert_given

from parley.core.errors import EngineError
from parley.core.passage_notes import CitedPassage
from parley.core.pictures import UNSEEN, is_image
from parley.models.llm import CitingModel, LanguageModel, Message
from parley.processors.dialogue.cited_passages import PassagesCitedFrame
from parley.processors.pipecat_internals import push_llm_text


@dataclass
class ReadAheadFrame(DataFrame):
    """A question that is not whole yet, for a model that can already read it.

    Attributes:
        context: the context as it would be if the turn ended now.
    """

    context: LLMContext


@runtime_checkable
class ReadsAhead(Protocol):
    """Engine that reads ahead; see ``models.llm.kv.Replies``."""

    @property
    def reads_ahead(self) -> bool: ...

    async def read_ahead(self, messages: Sequence[Message]) -> None: ...


def messages_of(context: LLMContext, instruction: str | None = None) -> list[Message]:
    """Return the dialogue of a context as plain text, oldest first.

    All system messages become the first one. A ``developer`` message counts as the user's, as Pipecat's own
    adapters treat it for providers without that role. Tool calls and their results, messages of one provider
    and audio have no text for an engine and are left out. A picture becomes a remark: no engine sees, and one
    that knows that something was shown can say so.

    Args:
        context: Pipecat's dialogue.
        instruction: replaces the system messages.
    """
    system: list[str] = [instruction] if instruction else []
    dialogue: list[Message] = []
    for entry in context.get_messages():
        if isinstance(entry, LLMSpecificMessage):
            continue
        content = entry.get("content")
        text = _shown(content) if isinstance(content, list) else text_of(content)
        role = entry.get("role")
        if not text:
            continue
        if role == "system":
            if not instruction:
                system.append(text)
        elif role == "assistant":
            dialogue.append(Message("assistant", text))
        elif role in ("user", "developer"):
            dialogue.append(Message("user", text))
    return ([Message("system", "\n\n".join(system))] if system else []) + dialogue


def text_of(content: object) -> str:
    """Return the words of a message's content in the OpenAI form; parts that are not text are left out."""
    if isinstance(content, str):
        return content.strip()
    if not isinstance(content, list):
        return ""
    # Notes are a part of their own, and end with a paragraph.
    return "\n\n".join(filter(None, map(_text_in, content))).strip()


def _shown(content: Sequence[object]) -> str:
    """Return the words of a content's parts, with a remark before those that came with a picture."""
    parts = (f"{UNSEEN} " if is_image(part) else f"{_text_in(part)}\n\n" for part in content)
    return "".join(part for part in parts if part.strip()).strip()


def _text_in(part: object) -> str:
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text.strip() if isinstance(text, str) else ""


async def timed_pieces(
    pieces: AsyncIterator[str], *, engine: str, first_s: float, next_s: float
) -> AsyncGenerator[str, None]:
    """Pass the pieces of an answer on, with a deadline on each.

    Closes ``pieces`` when it ends; wrap it in ``aclosing``.

    Raises:
        EngineError: the engine failed, or the next piece took too long.
    """
    limit_s = first_s
    try:
        while True:
            try:
                async with asyncio.timeout(limit_s):
                    piece = await anext(pieces)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise EngineError(f"no text arrived for {limit_s:.1f} s", engine=engine) from error
            limit_s = next_s
            yield piece
    finally:
        close = getattr(pieces, "aclose", None)
        if close is not None:
            await close()


# The end of an answer waits for the names of its passages.
CITED_WITHIN_S = 0.5


async def passages_of(engine: LanguageModel, answer: str) -> tuple[CitedPassage, ...]:
    """Return the passages of an engine's answer; none where the engine names none, or is too slow."""
    if not isinstance(engine, CitingModel) or not answer.strip():
        return ()
    try:
        async with asyncio.timeout(CITED_WITHIN_S):
            return await engine.cited(answer)
    except (EngineError, TimeoutError) as error:
        # The answer is whole without the names of its passages, and its end must not wait for them.
        logger.warning(f"the passages of an answer are not known: {error or 'the look-up took too long'}")
        return ()


class EngineLlmAdapter(BaseLLMAdapter[dict[str, Any]]):
    """Adapter that turns a Pipecat context into messages; it has no tools.

    Naming one keeps ``LLMService`` from importing OpenAI's SDK for its default adapter.
    """

    @property
    def id_for_llm_specific_messages(self) -> str:
        """Name under which a context may hold messages for this service alone."""
        return "engine"

    async def get_llm_invocation_params(self, context: LLMContext, **kwargs: Any) -> dict[str, Any]:
        """Return the messages, under ``messages``."""
        return {"messages": messages_of(context)}

    def to_provider_tools_format(self, tools_schema: ToolsSchema) -> list[Any]:
        """Return no tools."""
        return []

    def get_messages_for_logging(self, context: LLMContext) -> list[dict[str, Any]]:
        """Return roles and lengths: the words stay out of the log."""
        return [{"role": message.role, "characters": len(message.text)} for message in messages_of(context)]


class EngineLlmService(LLMService[EngineLlmAdapter]):
    """Service that answers with a ``models.llm.LanguageModel``.

    Args:
        engine: shared by all calls, unless it is owned.
        engine_name: its name in the registry, for metrics and errors.
        piece_timeout_s: longest wait for the next piece of text.
        system_instruction: instructions for the answer; replaces system messages in the context.
        owns_engine: True when the engine serves this call alone; it is closed with it.
    """

    adapter_class = EngineLlmAdapter

    def __init__(
        self,
        engine: LanguageModel,
        *,
        engine_name: str = "engine",
        piece_timeout_s: float = 10.0,
        system_instruction: str | None = None,
        owns_engine: bool = False,
    ) -> None:
        super().__init__(
            settings=LLMSettings(
                model=engine_name,
                system_instruction=system_instruction,
                temperature=None,
                max_tokens=None,
                top_p=None,
                top_k=None,
                frequency_penalty=None,
                presence_penalty=None,
                seed=None,
                filter_incomplete_user_turns=False,
                user_turn_completion_config=None,
            )
        )
        self._engine = engine
        self._owns_engine = owns_engine
        self._engine_name = engine_name
        self._piece_timeout_s = piece_timeout_s
        self._reader = engine if owns_engine and isinstance(engine, ReadsAhead) else None
        self._reading: asyncio.Task[None] | None = None
        self._to_read: list[Message] | None = None

    @property
    def reads_ahead(self) -> bool:
        """True when the engine can read a question ahead."""
        return self._reader is not None and self._reader.reads_ahead

    async def cleanup(self) -> None:
        """Close an owned engine, which forgets its state of the call."""
        await super().cleanup()
        await self._stop_reading()
        close = getattr(self._engine, "close", None)
        if self._owns_engine and close is not None:
            close()

    def can_generate_metrics(self) -> bool:
        """Return True: time to first byte and processing time are measured."""
        return True

    async def run_inference(
        self,
        context: LLMContext,
        max_tokens: int | None = None,
        system_instruction: str | None = None,
        response_schema: dict[str, Any] | None = None,
    ) -> str | None:
        """Return the whole answer at once, outside the pipeline; None when the engine has no answer.

        The engine decides how long its answers are and knows no schemas: ``max_tokens`` and
        ``response_schema`` are ignored.

        Raises:
            EngineError: the engine failed or was too slow.
        """
        if response_schema is not None:
            logger.warning(f"{self}: response_schema is not supported and is ignored")
        messages = self._messages(context, system_instruction)
        async with aclosing(self._pieces(messages)) as pieces:
            text = "".join([piece async for piece in pieces])
        return text.strip() or None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Answer a context; pass everything else on."""
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame):
            await self._stop_reading()
            await self._answer(frame.context)
        elif isinstance(frame, ReadAheadFrame) and self._reader is not None:
            self._to_read = self._messages(frame.context)
            if self._reading is None:
                self._reading = self.create_task(self._read(self._reader), "read_ahead")
        else:
            await self.push_frame(frame, direction)

    async def _answer(self, context: LLMContext) -> None:
        await self.push_frame(LLMFullResponseStartFrame())
        try:
            await self.start_processing_metrics()
            await self.start_ttfb_metrics()
            said: list[str] = []
            async with aclosing(self._pieces(self._messages(context))) as pieces:
                async for piece in pieces:
                    await self.stop_ttfb_metrics()
                    said.append(piece)
                    await push_llm_text(self, piece)
            cited = await passages_of(self._engine, "".join(said))
            if cited:
                await self.push_frame(PassagesCitedFrame(cited))
        except EngineError as error:
            await self.push_error(f"language model failed: {error}", exception=error)
        finally:
            await self.stop_processing_metrics()
            await self.push_frame(LLMFullResponseEndFrame())

    async def _read(self, reader: ReadsAhead) -> None:
        try:
            while (messages := self._to_read) is not None:
                self._to_read = None
                try:
                    await reader.read_ahead(messages)
                except EngineError as error:
                    logger.debug(f"{self}: reading ahead failed: {error}")
        finally:
            if self._reading is asyncio.current_task():
                self._reading = None

    async def _stop_reading(self) -> None:
        self._to_read = None
        reading, self._reading = self._reading, None
        if reading is not None:
            await self.cancel_task(reading)

    def _messages(self, context: LLMContext, instruction: str | None = None) -> list[Message]:
        settings = cast(LLMSettings, self.settings)
        return messages_of(context, instruction or assert_given(settings.system_instruction))

    def _pieces(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        return timed_pieces(
            self._engine.reply(messages),
            engine=self._engine_name,
            first_s=self._piece_timeout_s,
            next_s=self._piece_timeout_s,
        )
