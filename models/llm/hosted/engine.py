"""The language model that runs in a worker: this side of the worker link.

In: the dialogue of one conversation. Out: pieces of the answer, as the worker's model makes them. A
conversation has a stream of a worker to itself, with a lease of its own, from its first question to its end,
and a thread that waits for it. What it sends with a dialogue is a condition: the handle of what the worker
said that it has read (worker, process, digest, tokens). The worker compares; a handle of a process that is
gone costs time, and nothing else.

A cancelled answer sends the worker a stop: it ends at its next token and reports what it has read by then;
the next question waits for that, ``request_timeout_s`` at most. A link that broke while nothing was said of
an answer is replaced once, by the same session, so that what is kept of it is found again. Slow, dead, hung
or wrong: ``EngineError`` behind ``request_timeout_s`` at the latest; while the worker reads, or others have
their turn, it says once a second that it is there.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from loguru import logger
from pydantic import Field

from core.errors import AgentError, EngineError, PeerError
from models.hosted.link import POLL_S, ConversationLink
from models.hosted.streams import StreamLimits, open_link
from models.hosted.worker import OneWorker, WorkerAddress, loaded_engine
from models.llm import Message
from models.llm.hosted.codec import of_asked, to_answered, to_prefilled
from models.llm.kv.dialogue import Answered, Asked, Prefilled, Remembered
from models.llm.kv.segments import CacheHandle
from runtime.engine_hosting.messages import EngineMessage, MessageType
from runtime.engine_thread import EngineThread
from runtime.told_pieces import Tell, told_pieces

ENGINE = "worker"


class AnswerLimits(StreamLimits):
    """How long a worker is waited for."""

    request_timeout_s: float = Field(
        3, gt=0, le=600, description="longest wait for a sign of the worker, while it reads or answers"
    )


class WorkerLlmSettings(WorkerAddress, AnswerLimits):
    """One worker with a language model."""


class PoolLlmSettings(AnswerLimits):
    """Language models in the workers of this deployment."""

    workers: tuple[str, ...] = Field((), description="names of those that are meant; none: all of the kind")
    load_timeout_s: float = Field(600, gt=0, le=3_600, description="longest wait until the first is loaded")


class SessionLeasing(Protocol):
    """Places conversations that may come back: a pool, or always the same worker. Thread-safe."""

    def lease_of(self, session_id: str, epoch: int, near: CacheHandle | None) -> tuple[str, EngineMessage]:
        """Where to go, and the first message there.

        Args:
            session_id: of the conversation.
            epoch: higher each time: what is left of the last one ends.
            near: who has something of it.

        Raises:
            EngineBusyError: no worker has a stream left.
            EngineError: no worker is there.
        """
        ...

    def not_taken(self, url: str) -> bool:
        """See ``StreamLeasing``."""
        ...


class HostedLlm:
    """Language models in workers. Thread-safe.

    Args:
        leasing: says which worker.
        limits: deadlines.
    """

    def __init__(self, leasing: SessionLeasing, limits: AnswerLimits) -> None:
        self._leasing = leasing
        self._limits = limits

    def open_replies(self) -> "HostedReplies":
        """The language model of one conversation; reaches for nothing yet."""
        return HostedReplies(self._leasing, self._limits, uuid.uuid4().hex)

    def close(self) -> None:
        """Do nothing: each conversation is closed by its owner."""


class WorkerLlm(HostedLlm):
    """The language model of one worker.

    Args:
        settings: see the model.

    Raises:
        ConfigError: there is no secret.
    """

    def __init__(self, settings: WorkerLlmSettings) -> None:
        super().__init__(OneWorker(settings), settings)
        self._settings = settings

    def wait_until_loaded(self) -> None:
        """Return when the worker has its model. Blocks.

        Raises:
            ConfigError: it has an engine of another kind.
            EngineError: it is not reached, or its model does not load, or not in time.
        """
        settings = self._settings
        loaded_engine(
            settings, ENGINE, "llm", open_s=settings.open_timeout_s, write_s=settings.request_timeout_s
        )


class _OfSession:
    """See ``StreamLeasing``: always the same conversation, each time a newer owner of it."""

    def __init__(self, leasing: SessionLeasing, session_id: str) -> None:
        self._leasing = leasing
        self._session_id = session_id
        self._epoch = 0
        self.near: CacheHandle | None = None

    def lease(self) -> tuple[str, EngineMessage]:
        self._epoch += 1
        return self._leasing.lease_of(self._session_id, self._epoch, self.near)

    def not_taken(self, url: str) -> bool:
        return self._leasing.not_taken(url)


class _Late(Exception):
    """The worker has had its time."""


class HostedReplies:
    """See ``models.llm.kv.Replies``, and the module.

    Args:
        leasing: says which worker.
        limits: deadlines.
        session_id: names the conversation; unguessable, made by the server.

    Attributes:
        prefilled: of the last answer: how much was in the cache. None before the first.
        answered: what the last answer was, once it is complete or broken off; None before.
        handle: what the worker says that it has read; None before the first answer.
    """

    def __init__(self, leasing: SessionLeasing, limits: AnswerLimits, session_id: str) -> None:
        self._leasing = _OfSession(leasing, session_id)
        self._limits = limits
        self._thread = EngineThread("answers")
        self._link: ConversationLink | None = None
        self._remembered = Remembered()
        self._is_closed = False
        self._reads_ahead = True
        self.prefilled: Prefilled | None = None
        self.answered: Answered | None = None
        self.handle: CacheHandle | None = None

    def close(self) -> None:
        """The conversation is over: the worker keeps nothing of it. Returns at once."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.submit(self._end)
            self._thread.shutdown(wait=False)

    async def prefill(self, messages: Sequence[Message]) -> Prefilled:
        """See ``Replies``. Cancelling it stops the model.

        Raises:
            EngineError: the dialogue does not fit, the model failed, or no worker takes it.
        """
        read = await self._prefilled(messages)
        if read is None:
            raise EngineError(f"{ENGINE}: stopped while it read", engine=ENGINE)
        return read

    @property
    def reads_ahead(self) -> bool:
        """See ``Replies``: until it has cost more than it saved, or failed."""
        return self._reads_ahead

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        """See ``Replies``. The worker has a stream for this conversation alone, and takes turns itself."""
        if not self._reads_ahead:
            return
        try:
            read = await self._prefilled(messages)
        except EngineError:
            # Who asks finds out how the worker is, without waiting for a reading as well.
            self._reads_ahead = False
            raise
        if read is not None and read.refused and self.answered is not None:
            # Its model cannot take back what was read and is not asked.
            self._reads_ahead = False

    async def _prefilled(self, messages: Sequence[Message]) -> Prefilled | None:
        """None: it was stopped while it read."""
        stopped = threading.Event()
        working = self._thread.submit(self._ask, MessageType.PREFILL, tuple(messages), stopped, _discard)
        try:
            return await asyncio.wrap_future(working)
        finally:
            stopped.set()

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """See ``LanguageModel``."""
        if not any(message.role == "user" and message.text.strip() for message in messages):
            return
        self.answered = None
        pieces = told_pieces(self._thread, partial(self._answer, tuple(messages)))
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    # In the thread.

    def _answer(self, messages: tuple[Message, ...], stopped: threading.Event, tell: Tell) -> None:
        try:
            self._ask(MessageType.GENERATE, messages, stopped, tell)
        except AgentError as error:
            tell(error)
        except Exception as error:  # the edge of the thread: the reader gets the error
            tell(EngineError(f"{ENGINE}: {type(error).__name__}", engine=ENGINE))
            raise
        else:
            tell(None)

    def _ask(
        self, type_: MessageType, messages: tuple[Message, ...], stopped: threading.Event, tell: Tell
    ) -> Prefilled | None:
        """What was read of the question; None: it was stopped before all of it was.

        Raises:
            EngineError: no worker takes it, or the one that did fails.
        """
        link = self._link
        heard = _Heard(stopped, tell)
        try:
            if link is not None and link.is_open:
                try:
                    return self._collect(link, type_, messages, heard)
                except EngineError as error:
                    if link.is_open or heard.anything or stopped.is_set():
                        raise
                    # What was kept may be of a process that is gone.
                    logger.warning(f"{ENGINE}: a question is asked again over another link: {error}")
            self._link = link = open_link(self._leasing, self._limits, ENGINE)
            return self._collect(link, type_, messages, heard)
        except _Late as late:
            assert link is not None
            raise link.given_up("no sign of it in time") from late
        except EngineError:
            raise
        except PeerError as error:
            assert link is not None
            raise link.given_up(str(error)) from error
        except AgentError as error:
            # Of a worker that is full, or is sent something wrong: another one is to answer all the same.
            raise EngineError(str(error), engine=ENGINE) from error

    def _collect(
        self, link: ConversationLink, type_: MessageType, messages: tuple[Message, ...], heard: "_Heard"
    ) -> Prefilled | None:
        asked = self._remembered.ask(messages)
        number = link.put(type_, *of_asked(asked, self._condition(asked)))
        due_s = time.monotonic() + self._limits.request_timeout_s
        is_stop_sent = False
        read: Prefilled | None = None
        while True:
            if heard.stopped.is_set() and not is_stop_sent:
                link.tell(MessageType.STOP, {"of": number})
                is_stop_sent = True
                due_s = time.monotonic() + self._limits.request_timeout_s
            message = link.heard(number, within_s=POLL_S)
            if message is None:
                if time.monotonic() >= due_s:
                    raise _Late
                continue
            due_s = time.monotonic() + self._limits.request_timeout_s
            if message.type is MessageType.DONE:
                self._done(asked, message.facts)
                return read
            if (counts := message.facts.get("prefilled")) is not None:
                read = self.prefilled = to_prefilled(counts)
                if read.refused:
                    # Of what was there nothing is.
                    self._remembered.forget()
            elif (text := message.facts.get("text")) is not None:
                heard.say(text)

    def _done(self, asked: Asked, facts: Any) -> None:
        if facts.get("handle") is None:
            # It was stopped while it read: the next question finds out how far it came.
            return
        answered, self.handle = to_answered(facts)
        self._leasing.near = self.handle
        self._remembered.answered(asked, answered)
        self.answered = answered

    def _condition(self, asked: Asked) -> CacheHandle | None:
        newest = self._remembered.newest
        if asked.condition is None or self.handle is None or newest is None:
            return None
        kv_tokens = dict(newest.chain).get(asked.condition, 0)
        return replace(self.handle, digest=asked.condition, kv_tokens=kv_tokens)

    def _end(self) -> None:
        link, self._link = self._link, None
        if link is None:
            return
        # Where it is not reached any more, what it keeps of this goes like what is unused.
        if link.is_open:
            with suppress(AgentError):
                link.ask(MessageType.DISCARD, within_s=self._limits.request_timeout_s)
        link.close()


class _Heard:
    """What of an answer has come, over however many links.

    Attributes:
        stopped: it is not wanted any more.
        anything: a piece of it has.
    """

    def __init__(self, stopped: threading.Event, tell: Tell) -> None:
        self.stopped = stopped
        self.anything = False
        self._tell = tell

    def say(self, text: object) -> None:
        if not isinstance(text, str):
            raise PeerError("a piece of an answer that is no text")
        self.anything = True
        if not self.stopped.is_set():
            self._tell(text)


def _discard(_piece: str | AgentError | None) -> None:
    pass
