"""Causal model as the language model of one conversation, which keeps its context between turns.

Input: a dialogue. Output: pieces of the answer. The model blocks and answers one conversation at a time, in a
thread that all conversations of the process share. This module holds the record of one
(``dialogue.Remembered``). Cancelling the iteration stops the model at its next token. The tokens that it has
read and written by then are recorded, and the next dialogue shows how much of the answer was heard.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, closing
from functools import partial

from parley.core.errors import AgentError, EngineError
from parley.models.llm import Message
from parley.models.llm.kv.batching import ENGINE
from parley.models.llm.kv.causal import CausalLm
from parley.models.llm.kv.dialogue import GenerationResult, Prefilled, Remembered
from parley.runtime.engine_thread import EngineThread
from parley.runtime.thread_stream import Emit, stream_from_thread


class CausalReplies:
    """Language model of one conversation on a shared causal model; implements ``Replies``.

    Args:
        model: shared by all conversations.
        session: id of the conversation; unguessable, made by the server.
        thread: answers all conversations, one after the other.

    Attributes:
        prefilled: cache use of the last answer. None before the first.
        answered: the last answer, once it is complete or broken off; None before.
    """

    def __init__(self, model: CausalLm, session: str, *, thread: EngineThread) -> None:
        self._model = model
        self._scope = model.scope(session)
        self._thread = thread
        self._remembered = Remembered()
        self.prefilled: Prefilled | None = None
        self.answered: GenerationResult | None = None

    def close(self) -> None:
        """End the conversation and discard its context. Returns at once."""
        self._thread.submit(self._model.forget, self._scope)

    async def prefill(self, messages: Sequence[Message]) -> Prefilled:
        """Read a dialogue whose answer is requested later: a ``reply`` to the same dialogue continues from
        there.

        Cancelling it stops the model within ``prefill_tokens``.

        Raises:
            EngineError: the dialogue does not fit, or the model failed.
        """
        read = await self._prefilled(messages, gives_way=False)
        if read is None:
            raise EngineError(f"{ENGINE}: stopped while reading the prompt", engine=ENGINE)
        return read

    @property
    def reads_ahead(self) -> bool:
        """True when the model's cache can be cropped."""
        return self._model.can_crop(self._scope)

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        """Read a dialogue ahead as ``Replies.read_ahead``, while the shared thread is idle."""
        # All conversations share the thread: a question of another one must not wait for this.
        if self.reads_ahead and self._thread.is_idle:
            await self._prefilled(messages, gives_way=True)

    async def _prefilled(self, messages: Sequence[Message], *, gives_way: bool) -> Prefilled | None:
        stopped = threading.Event()
        working = self._thread.submit(self._read, tuple(messages), stopped, gives_way)
        try:
            return await asyncio.wrap_future(working)
        finally:
            stopped.set()

    def _read(
        self, messages: tuple[Message, ...], stopped: threading.Event, gives_way: bool
    ) -> Prefilled | None:
        """Read a dialogue on the thread; return None when stopped."""
        asked = self._remembered.ask(messages)
        read: Prefilled | None = None

        def is_stopped() -> bool:
            # Stop after the question, where the answer would begin.
            return read is not None or stopped.is_set() or (gives_way and self._thread.is_awaited)

        try:
            with closing(self._model.answer(self._scope, asked, is_stopped=is_stopped)) as pieces:
                for each in pieces:
                    if isinstance(each, Prefilled):
                        read = each
                        self._heed(read)
                    elif isinstance(each, GenerationResult):
                        self._remembered.answered(asked, each)
        except AgentError:
            raise
        except Exception as error:  # boundary of the thread: any exception of the model's code
            raise EngineError(f"{ENGINE}: the model raised {type(error).__name__}", engine=ENGINE) from error
        return read

    def _heed(self, read: Prefilled) -> None:
        if read.refused:
            # The previous context no longer exists.
            self._remembered.forget()

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Stream the answer as ``LanguageModel.reply``."""
        if not any(message.role == "user" and message.text.strip() for message in messages):
            return
        self.answered = None
        pieces = stream_from_thread(self._thread, partial(self._answer, tuple(messages)))
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    def _answer(
        self,
        messages: tuple[Message, ...],
        stopped: threading.Event,
        deliver: Emit,
    ) -> None:
        """Answer on the thread; pass pieces, then None or an error, to ``deliver``."""
        asked = self._remembered.ask(messages)
        try:
            with closing(self._model.answer(self._scope, asked, is_stopped=stopped.is_set)) as pieces:
                for each in pieces:
                    if isinstance(each, Prefilled):
                        self.prefilled = each
                        self._heed(each)
                    elif isinstance(each, GenerationResult):
                        self._remembered.answered(asked, each)
                        self.answered = each
                    elif not stopped.is_set():
                        deliver(each)
        except AgentError as error:
            deliver(error)
        except Exception as error:  # boundary of the thread: any exception of the model's code
            deliver(EngineError(f"{ENGINE}: the model raised {type(error).__name__}", engine=ENGINE))
        else:
            deliver(None)
