"""A causal model as the language model of one conversation: what was read stays read between its turns.

In: a dialogue. Out: pieces of the answer. The model blocks and answers one conversation at a time, in a
thread that all conversations of the process share; here is the memory of one (``dialogue.Remembered``).
Whoever cancels the iteration stops the model at its next token; what it has read and written by then is
remembered, and the next dialogue says how much of it was heard.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, closing
from functools import partial

from core.errors import AgentError, EngineError
from models.llm import Message
from models.llm.kv.causal import ENGINE, CausalLm
from models.llm.kv.dialogue import Answered, Prefilled, Remembered
from runtime.engine_thread import EngineThread
from runtime.told_pieces import Tell, told_pieces


class CausalReplies:
    """See ``LanguageModel``, and the module.

    Args:
        model: shared by all conversations.
        session: names the conversation; unguessable, made by the server.
        thread: in which all conversations are answered, one after the other.

    Attributes:
        prefilled: of the last answer: how much was in the cache. None before the first.
        answered: what the last answer was, once it is complete or broken off; None before.
    """

    def __init__(self, model: CausalLm, session: str, *, thread: EngineThread) -> None:
        self._model = model
        self._scope = model.scope(session)
        self._thread = thread
        self._remembered = Remembered()
        self.prefilled: Prefilled | None = None
        self.answered: Answered | None = None

    def close(self) -> None:
        """The conversation is over: nothing of it is kept. Returns at once."""
        self._thread.submit(self._model.forget, self._scope)

    async def prefill(self, messages: Sequence[Message]) -> Prefilled:
        """Read a dialogue whose answer is asked for later: a ``reply`` to the same goes on from there.

        Whoever cancels stops the model within ``prefill_tokens``.

        Raises:
            EngineError: the dialogue does not fit, or the model failed.
        """
        read = await self._prefilled(messages, gives_way=False)
        if read is None:
            raise EngineError(f"{ENGINE}: stopped while it read", engine=ENGINE)
        return read

    @property
    def reads_ahead(self) -> bool:
        """See ``Replies``."""
        return self._model.can_crop(self._scope)

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        """See ``Replies``."""
        # All conversations share the thread: one that has a question does not wait for this one's words.
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
        """In the thread; None: it was stopped."""
        asked = self._remembered.ask(messages)
        read: Prefilled | None = None

        def is_stopped() -> bool:
            # Behind the question the answer would begin.
            return read is not None or stopped.is_set() or (gives_way and self._thread.is_awaited)

        try:
            with closing(self._model.answer(self._scope, asked, is_stopped=is_stopped)) as told:
                for each in told:
                    if isinstance(each, Prefilled):
                        read = each
                        self._heed(read)
                    elif isinstance(each, Answered):
                        self._remembered.answered(asked, each)
        except AgentError:
            raise
        except Exception as error:  # the edge of the thread: whatever the model's code raises
            raise EngineError(f"{ENGINE}: the model raised {type(error).__name__}", engine=ENGINE) from error
        return read

    def _heed(self, read: Prefilled) -> None:
        if read.refused:
            # Of what was there nothing is.
            self._remembered.forget()

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """See ``LanguageModel``."""
        if not any(message.role == "user" and message.text.strip() for message in messages):
            return
        self.answered = None
        told = told_pieces(self._thread, partial(self._answer, tuple(messages)))
        async with aclosing(told):
            async for piece in told:
                yield piece

    def _answer(
        self,
        messages: tuple[Message, ...],
        stopped: threading.Event,
        tell: Tell,
    ) -> None:
        """In the thread."""
        asked = self._remembered.ask(messages)
        try:
            with closing(self._model.answer(self._scope, asked, is_stopped=stopped.is_set)) as told:
                for each in told:
                    if isinstance(each, Prefilled):
                        self.prefilled = each
                        self._heed(each)
                    elif isinstance(each, Answered):
                        self._remembered.answered(asked, each)
                        self.answered = each
                    elif not stopped.is_set():
                        tell(each)
        except AgentError as error:
            tell(error)
        except Exception as error:  # the edge of the thread: whatever the model's code raises
            tell(EngineError(f"{ENGINE}: the model raised {type(error).__name__}", engine=ENGINE))
        else:
            tell(None)
