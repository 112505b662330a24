"""Client of a language model that runs in a worker.

Input: the dialogue of one conversation. Output: pieces of the answer, as the worker's model makes them. Each
conversation has its own stream of a worker, with a lease, from its first question to its end, and a thread
that waits for it. It sends a condition with each dialogue: the handle of the context that the worker reported
(worker, process, digest, tokens). The worker compares the digest. A handle of a process that has ended costs
only time.

A cancelled answer sends the worker a stop: it ends at its next token and reports the context that it has
then. The next question waits for that report, ``request_timeout_s`` at most. A link that breaks before the
first piece of an answer is replaced once, with the same session, so that the cache is found again. When the
worker is slow, dead, hung or violates the protocol, ``EngineError`` is raised after ``request_timeout_s`` at
the latest. While the worker reads, or serves other conversations, it sends a sign of life once a second.
"""

import asyncio
import threading
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from loguru import logger
from pydantic import Field

from parley.core.errors import AgentError, EngineError, PeerError
from parley.core.usage import Stage
from parley.models.hosted.link import POLL_S, ConversationLink
from parley.models.hosted.streams import StreamLimits, open_link
from parley.models.hosted.worker import OneWorker, WorkerAddress, forget_session, loaded_engine
from parley.models.llm import Message
from parley.models.llm.hosted.codec import of_asked, to_answered, to_prefilled
from parley.models.llm.hosted.session_cache import (
    STREAM_EPOCHS,
    CachedDialogue,
    SessionCache,
    cache_of,
    cache_text,
)
from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult, Prefilled, Remembered
from parley.models.llm.kv.segments import CacheHandle
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.runtime.engine_thread import EngineThread
from parley.runtime.thread_stream import Emit, stream_from_thread
from parley.runtime.trace_context import trace_facts

ENGINE = "worker"
# Longest wait for a worker to drop a context, in each step; the person who deletes a session waits for it.
FORGET_S = 2.0


class AnswerLimits(StreamLimits):
    """Deadlines for a worker."""

    request_timeout_s: float = Field(
        3,
        gt=0,
        le=600,
        description="longest wait for a sign of life from the worker while it reads the prompt or generates",
    )


class WorkerLlmSettings(WorkerAddress, AnswerLimits):
    """Worker with a language model, and deadlines for it."""


class PoolLlmSettings(AnswerLimits):
    """Pool of workers with a language model in this deployment, and deadlines for them."""

    workers: tuple[str, ...] = Field((), description="names of the workers to use; empty: all of this kind")
    conversation_tokens: int | None = Field(
        None,
        ge=16,
        le=1_048_576,
        description="tokens for which memory is reserved on the worker of a conversation; null: the longest "
        "dialogue of the worker's model (``context_tokens``), so that no cache is evicted in a call",
    )
    queue_timeout_s: float = Field(
        1.0, ge=0, le=60, description="longest wait for a worker with memory for another conversation"
    )
    load_timeout_s: float = Field(
        600, gt=0, le=3_600, description="longest wait until the first worker has loaded its model"
    )


class SessionLeasing(Protocol):
    """Placement of conversations that may come back: a pool, or always the same worker. Thread-safe."""

    def lease_of(self, session_id: str, epoch: int, cached: CachedDialogue) -> tuple[str, EngineMessage]:
        """Return the address of a worker, and the first message to send.

        Args:
            session_id: id of the conversation.
            epoch: number that grows with each lease: the remains of the previous lease are ended.
            cached: context of the conversation; its worker is preferred. The last lease of the session ends.

        Raises:
            EngineBusyError: no worker has capacity for a stream.
            EngineError: no worker is available.
        """
        ...

    def refused(self, session_id: str) -> bool:
        """Report that the worker refused the last lease; return whether there may be another worker."""
        ...

    def ended(self, session_id: str, epoch: int) -> None:
        """Report that a conversation is over; ``epoch`` is that of its last lease."""
        ...

    def watches(self) -> list[tuple[str, EngineMessage]]:
        """Return every worker that may have contexts: its address, and the first message that watches it."""
        ...


class HostedLlm:
    """Language models in workers. Thread-safe.

    Args:
        leasing: chooses the worker.
        limits: deadlines.
    """

    def __init__(self, leasing: SessionLeasing, limits: AnswerLimits) -> None:
        self._leasing = leasing
        self._limits = limits

    def open_replies(self, session: SessionCache | None = None) -> "HostedReplies":
        """Return the language model of one conversation; no connection is made yet.

        Args:
            session: whose context is continued and kept; one stream of it at a time, others have a context of
                their own, which ends with them. None: there is none.
        """
        taken = None if session is None else session.take_cache()
        if session is None or taken is None:
            return HostedReplies(self._leasing, self._limits, uuid.uuid4().hex)
        number, text = taken
        kept = _KeptContext(session, number * STREAM_EPOCHS, cache_of(text))
        return HostedReplies(self._leasing, self._limits, session.session_id, kept=kept)

    async def forget(self, session_id: str) -> int:
        """Have every worker drop the context of a deleted session; return how many had one.

        A worker of an earlier release drops it by itself when it was left for long.

        Raises:
            EngineError: a worker did not confirm it within ``FORGET_S``; the others have.
        """
        asked = [
            asyncio.to_thread(forget_session, url, watch, session_id, engine=ENGINE, within_s=FORGET_S)
            for url, watch in self._leasing.watches()
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, AgentError):
                raise answer
        if failed := [answer for answer in answers if isinstance(answer, AgentError)]:
            raise EngineError(
                f"{len(failed)} of {len(answers)} workers did not confirm that they dropped a context: "
                f"{failed[0]}",
                engine=ENGINE,
            ) from failed[0]
        return sum(answer or 0 for answer in answers if not isinstance(answer, BaseException))

    def close(self) -> None:
        """Do nothing: the owner of each conversation closes it."""


class WorkerLlm(HostedLlm):
    """Language model of one worker.

    Args:
        settings: address and deadlines.

    Raises:
        ConfigError: the secret is not set.
    """

    def __init__(self, settings: WorkerLlmSettings) -> None:
        super().__init__(OneWorker(settings), settings)
        self._settings = settings

    def wait_until_loaded(self) -> None:
        """Return when the worker has its model. Blocks.

        Raises:
            ConfigError: the worker has an engine of another kind.
            EngineError: the worker is not reached, or its model does not load, or not in time.
        """
        settings = self._settings
        loaded_engine(
            settings, ENGINE, "llm", open_s=settings.open_timeout_s, write_s=settings.request_timeout_s
        )


@dataclass(frozen=True, slots=True)
class _KeptContext:
    """Context of a session: where it is kept, the epoch before the stream's leases, and what was kept."""

    session: SessionCache
    epoch: int
    cached: CachedDialogue


class _OfSession:
    """Leasing of one conversation as ``StreamLeasing``; each lease has a higher epoch."""

    def __init__(self, leasing: SessionLeasing, session_id: str, kept: _KeptContext | None) -> None:
        self._leasing = leasing
        self._session_id = session_id
        self._kept = kept
        self._epoch = 0 if kept is None else kept.epoch
        self._cached = CachedDialogue() if kept is None else kept.cached

    def lease(self) -> tuple[str, EngineMessage]:
        self._epoch += 1
        return self._leasing.lease_of(self._session_id, self._epoch, self._cached)

    def not_taken(self, url: str) -> bool:
        return self._leasing.refused(self._session_id)

    def answered(self, cached: CachedDialogue) -> None:
        self._cached = cached
        if self._kept is not None:
            self._kept.session.note_cache(cache_text(cached))

    @property
    def keeps_context(self) -> bool:
        """True when the session's next stream continues from the context."""
        return self._kept is not None

    def ended(self) -> None:
        self._leasing.ended(self._session_id, self._epoch)
        if self._kept is not None:
            self._kept.session.release_cache()


class _Late(Exception):
    """Raised when the worker gave no sign within its deadline."""


class HostedReplies:
    """Language model of one conversation in a worker; implements ``models.llm.kv.Replies``.

    Args:
        leasing: chooses the worker.
        limits: deadlines.
        session_id: id of the conversation; unguessable, made by the server.
        kept: context of the session of that id; None: the context ends with the conversation.

    Attributes:
        prefilled: cache use of the last answer. None before the first.
        answered: the last answer, once it is complete or broken off; None before.
        handle: context that the worker reported; None before the first answer.
    """

    def __init__(
        self,
        leasing: SessionLeasing,
        limits: AnswerLimits,
        session_id: str,
        *,
        kept: _KeptContext | None = None,
    ) -> None:
        self._leasing = _OfSession(leasing, session_id, kept)
        self._limits = limits
        self._thread = EngineThread("answers")
        self._link: ConversationLink | None = None
        self._remembered = Remembered()
        self._is_closed = False
        self._reads_ahead = True
        self.prefilled: Prefilled | None = None
        self.answered: GenerationResult | None = None
        self.handle: CacheHandle | None = None

    def close(self) -> None:
        """End the conversation: the worker discards its cache, unless a session keeps it. Returns at once."""
        if not self._is_closed:
            self._is_closed = True
            self._thread.submit(self._end)
            self._thread.shutdown(wait=False)

    async def prefill(self, messages: Sequence[Message]) -> Prefilled:
        """Read a dialogue as ``Replies.prefill``. Cancelling it stops the model.

        Raises:
            EngineError: the dialogue does not fit, the model failed, or no worker accepts it.
        """
        read = await self._prefilled(messages)
        if read is None:
            raise EngineError(f"{ENGINE}: stopped while reading the prompt", engine=ENGINE)
        return read

    @property
    def reads_ahead(self) -> bool:
        """True until reading ahead has failed, or has cost more than it saved."""
        return self._reads_ahead

    async def read_ahead(self, messages: Sequence[Message]) -> None:
        """Read a dialogue ahead as ``Replies.read_ahead``. The worker shares its time between streams
        itself.
        """
        if not self._reads_ahead:
            return
        try:
            read = await self._prefilled(messages)
        except EngineError:
            # A later question detects the state of the worker, without waiting for a reading first.
            self._reads_ahead = False
            raise
        if read is not None and read.refused and self.answered is not None:
            # The model cannot take back tokens that were read and are not part of the question.
            self._reads_ahead = False

    async def _prefilled(self, messages: Sequence[Message]) -> Prefilled | None:
        """Read a dialogue; return None when stopped before its end."""
        stopped = threading.Event()
        working = self._thread.submit(self._ask, MessageType.PREFILL, tuple(messages), stopped, _discard)
        try:
            return await asyncio.wrap_future(working)
        finally:
            stopped.set()

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        """Stream the answer as ``LanguageModel.reply``."""
        if not any(message.role == "user" and message.text.strip() for message in messages):
            return
        self.answered = None
        pieces = stream_from_thread(self._thread, partial(self._answer, tuple(messages)))
        async with aclosing(pieces):
            async for piece in pieces:
                yield piece

    # Called on the thread.

    def _answer(self, messages: tuple[Message, ...], stopped: threading.Event, deliver: Emit) -> None:
        try:
            self._ask(MessageType.GENERATE, messages, stopped, deliver)
        except AgentError as error:
            deliver(error)
        except Exception as error:  # boundary of the thread: the reader gets the error
            deliver(EngineError(f"{ENGINE}: {type(error).__name__}", engine=ENGINE))
            raise
        else:
            deliver(None)

    def _ask(
        self, type_: MessageType, messages: tuple[Message, ...], stopped: threading.Event, deliver: Emit
    ) -> Prefilled | None:
        """Send a question; return the counts of its reading, or None when it was stopped before its end.

        Raises:
            EngineError: no worker accepts it, or the worker fails.
        """
        link = self._link
        heard = _Heard(stopped, deliver)
        try:
            if link is not None and link.is_open:
                try:
                    return self._collect(link, type_, messages, heard)
                except EngineError as error:
                    if link.is_open or heard.anything or stopped.is_set():
                        raise
                    # The cache may belong to a process that has ended.
                    logger.warning(f"{ENGINE}: repeating the request over another link: {error}")
            self._link = link = open_link(self._leasing, self._limits, ENGINE)
            return self._collect(link, type_, messages, heard)
        except _Late as late:
            assert link is not None
            raise link.given_up("no sign of life in time") from late
        except EngineError:
            raise
        except PeerError as error:
            assert link is not None
            raise link.given_up(str(error)) from error
        except AgentError as error:
            # The worker is full or rejects the message; another worker may still answer, so the error is
            # retryable.
            raise EngineError(str(error), engine=ENGINE) from error

    def _collect(
        self, link: ConversationLink, type_: MessageType, messages: tuple[Message, ...], heard: "_Heard"
    ) -> Prefilled | None:
        asked = self._remembered.ask(messages)
        facts, payload = of_asked(asked, self._condition(asked))
        number = link.put(type_, {**facts, **trace_facts(Stage.LLM)}, payload)
        due_s = time.monotonic() + self._limits.request_timeout_s
        is_stop_sent = False
        read: Prefilled | None = None
        while True:
            if heard.stopped.is_set() and not is_stop_sent:
                link.notify(MessageType.STOP, {"of": number})
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
                    # The previous context no longer exists.
                    self._remembered.forget()
            elif (text := message.facts.get("text")) is not None:
                heard.say(text)

    def _done(self, asked: GenerationRequest, facts: Any) -> None:
        if facts.get("handle") is None:
            # The worker was stopped while it read; the next question finds how far it came.
            return
        answered, self.handle = to_answered(facts)
        self._leasing.answered(CachedDialogue(self.handle, answered.chain))
        self._remembered.answered(asked, answered)
        self.answered = answered

    def _condition(self, asked: GenerationRequest) -> CacheHandle | None:
        newest = self._remembered.newest
        if asked.condition is None or self.handle is None or newest is None:
            return None
        kv_tokens = dict(newest.chain).get(asked.condition, 0)
        return replace(self.handle, digest=asked.condition, kv_tokens=kv_tokens)

    def _end(self) -> None:
        link, self._link = self._link, None
        # A worker that is not reached drops the cache later, as any unused one.
        if link is not None and link.is_open:
            with suppress(AgentError):
                # The worker drops a context that is kept when it needs the memory, or after a while.
                if not self._leasing.keeps_context:
                    link.ask(MessageType.DISCARD, within_s=self._limits.request_timeout_s)
        if link is not None:
            link.close()
        self._leasing.ended()


class _Heard:
    """Pieces of an answer received so far, over one or several links.

    Attributes:
        stopped: set when the answer is no longer wanted.
        anything: true after the first piece.
    """

    def __init__(self, stopped: threading.Event, deliver: Emit) -> None:
        self.stopped = stopped
        self.anything = False
        self._deliver = deliver

    def say(self, text: object) -> None:
        if not isinstance(text, str):
            raise PeerError("a piece of the answer is not text")
        self.anything = True
        if not self.stopped.is_set():
            self._deliver(text)


def _discard(_piece: str | AgentError | None) -> None:
    pass
