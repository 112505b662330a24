"""Route ``POST /v1/chat/completions``: a typed turn of a durable session, as OpenAI's clients request one.

A request begins a session, whose id is in the answer (header ``Parley-Session``, field ``parley``), or goes
on with the one that it names, by the same header or by ``metadata.session``. Its messages are the whole
conversation as the client shows it, which the session follows; a single message is the next one of the
session. Instructions of the client are used where its grants permit them, and reported as unused otherwise.

Tools that a client offers are handed to it: such an answer ends with calls, and the next request, which
brings their results, goes on in the same session, also where it names none.

A request with an ``Idempotency-Key`` is answered once (``repeats``). One that fails before its first piece
answers with a status, and with the session and the next token where it used one up; a session that it began
and that has no words is deleted again.

The number of concurrent turns is bounded together with the sessions API's. A reader that leaves ends the
turn.
"""

import asyncio
import hashlib
import json
import secrets
import time
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Request, Response
from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import AgentError, StoreUnavailableError, UnknownSessionError
from parley.core.grants import ClientIdentity, KeyScope
from parley.protocols.openai_chat import (
    Completion,
    CompletionAnswer,
    CompletionCall,
    CompletionParts,
    CompletionRequest,
    completion_parts,
)
from parley.protocols.openai_http import OpenAiHttpError, check_model, error_body
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import UsageLimits, unless_refused
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.requests import check_origin
from parley.serving.gateway.limits import ConcurrencyLimit
from parley.serving.gateway.openai_http.errors import CompletionFailedError, openai_error
from parley.serving.gateway.openai_http.repeats import FinishedCompletion, KeyedRequest, RepeatedRequests
from parley.serving.gateway.session_api import (
    APP,
    CLIENT_KEY,
    AnswerTyped,
    ClientDialogue,
    TurnEvent,
    known_id,
)
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.conversations import Conversations
from parley.session_store.faults import log_failure

PATH = "/v1/chat/completions"
SESSION_HEADER, TOKEN_HEADER = "Parley-Session", "Parley-Next-Token"
# Of an answer that was given before.
REPLAYED_HEADER = "Idempotent-Replayed"
# Longest wait for the deletion of an empty session.
DELETE_S = 5.0
# Calls of clients' tools whose session is remembered; those of older ones begin a new session.
MOST_HANDED = 10_000
TRANSPORT = "chat_completions"
UNUSED = "messages: those of the system; the prompt is the deployment's"


class ChatCompletions:
    """Chat completions of one process.

    Args:
        models: names of the models that are served.
        conversations: of this process, with their store.
        type_turn: answers typed turns.
        settings: of the server.
        usage: limits the sessions that each client may begin; ``type_turn`` counts the turns.
        access: checks that a client may begin or use a session.
        turns: limits concurrent typed turns.
    """

    def __init__(
        self,
        models: Sequence[str],
        conversations: Conversations,
        type_turn: AnswerTyped,
        settings: ServerTuning,
        usage: UsageLimits,
        access: Access,
        turns: ConcurrencyLimit,
    ) -> None:
        self._models = models
        self._conversations = conversations
        self._type_turn = type_turn
        self._settings = settings
        self._usage = usage
        self._access = access
        self._turns = turns
        self._repeats = RepeatedRequests()
        self._calls: BoundedDict[str, str] = BoundedDict(MOST_HANDED)

    def router(self) -> APIRouter:
        """Return the route, to be included in an application."""
        # A dependency: a client without a credential gets that answer, whatever its body is.
        router = APIRouter(dependencies=[Depends(self._identify)])
        router.add_api_route(PATH, self.complete, methods=["POST"], response_model=None)
        return router

    def forget(self, session_id: str) -> int:
        """Drop what is kept of a session that was deleted; return the number of entries."""
        calls = [call_id for call_id, session in self._calls.items() if session == session_id]
        for call_id in calls:
            del self._calls[call_id]
        return len(calls) + self._repeats.forget(session_id)

    async def complete(
        self,
        request: Request,
        body: CompletionRequest,
        idempotency_key: Annotated[str | None, Header(pattern=CLIENT_KEY)] = None,
    ) -> Response:
        """Answer a conversation, as one object or as server-sent events."""
        check_model(body.model, self._models)
        parts = completion_parts(body)
        keyed = await self._keyed(request, body, idempotency_key)
        if keyed is not None and keyed.finished is not None:
            return self._again(body, keyed.finished)
        try:
            run = await self._begin(request, body, parts, keyed, idempotency_key)
        except BaseException:
            if keyed is not None:
                keyed.end()
            raise
        chunks = self._streamed(run, usage=_wants_usage(body)) if body.stream else self._whole(run)
        headers = {**run.headers, SESSION_HEADER: run.session_id, "X-Accel-Buffering": "no"}
        return EventStream(
            chunks,
            stall_s=self._settings.reader_stall_s,
            media_type=_media_type(body),
            headers=headers,
            on_end=partial(self._end, run),
        )

    async def _keyed(self, request: Request, body: CompletionRequest, key: str | None) -> KeyedRequest | None:
        """Return the request of a key; None without one. Raises OpenAiHttpError as ``RepeatedRequests``."""
        if key is None:
            return None
        identity = await self._identify(request)
        named = request.headers.get(SESSION_HEADER) or body.session_id
        digest = await asyncio.to_thread(_digest, await request.body())
        client = identity.owner or identity.session_owner or identity.address
        return self._repeats.take((client, named, key), digest)

    def _again(self, body: CompletionRequest, finished: FinishedCompletion) -> Response:
        """Return an answer that was given before."""
        headers = {**finished.headers, SESSION_HEADER: finished.session_id, REPLAYED_HEADER: "true"}
        headers["X-Accel-Buffering"] = "no"
        chunks = _replayed(finished, is_stream=bool(body.stream), usage=_wants_usage(body))
        stall_s = self._settings.reader_stall_s
        return EventStream(chunks, stall_s=stall_s, media_type=_media_type(body), headers=headers)

    async def _begin(
        self,
        request: Request,
        body: CompletionRequest,
        parts: CompletionParts,
        keyed: KeyedRequest | None,
        key: str | None,
    ) -> "_Run":
        session_id, identity, headers = await self._session(request, body, parts, keyed)
        facts: dict[str, object] = {"session": session_id}
        may_instruct = identity.is_operator or identity.grants.instructions
        if parts.instruction is not None and not may_instruct:
            facts["unused"] = [UNUSED]
        completion = Completion(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), body.model, facts)
        turn = self._turn(session_id, identity, parts, key)
        return _Run(session_id, headers, turn, completion, keyed)

    async def _identify(self, request: Request) -> ClientIdentity:
        check_origin(request, allowed=self._settings.allowed_origins)
        identity = await self._access.identify(request, KeyScope.TALK)
        self._access.check_surface(identity, APP)
        return identity

    async def _session(
        self,
        request: Request,
        body: CompletionRequest,
        parts: CompletionParts,
        keyed: KeyedRequest | None,
    ) -> tuple[str, ClientIdentity, dict[str, str]]:
        """Return the session of a request, its client, and headers of the answer.

        The headers of a new session are not empty: they hold its id, under the name of the answer's header.
        """
        access = self._access
        named = request.headers.get(SESSION_HEADER) or body.session_id
        if named is not None:
            identity = await self._identify(request)
            info = await self._conversations.store.info(known_id(named))
            access.check_use(identity, named, info.owner)
            return named, identity, {}
        known = await self._known_session(request, parts, keyed)
        if known is not None:
            return *known, {}
        identity = await access.check(request, APP)
        access.check_new_session(identity)
        counted = self._usage.take_session(identity)
        with unless_refused(counted):
            admitted = await access.admit(request, APP)
        headers = {} if admitted.next_token is None else {TOKEN_HEADER: admitted.next_token}
        cookies = Response()
        owner = identity.session_owner
        if owner is None and not identity.is_operator:
            owner = access.set_cookie(request, cookies)
        if "set-cookie" in cookies.headers:
            headers["set-cookie"] = cookies.headers["set-cookie"]
        try:
            with unless_refused(counted):
                made = await self._conversations.store.create(owner=owner)
        except Exception as error:
            # The token is used up.
            raise CompletionFailedError(error, headers) from error
        if keyed is not None:
            keyed.keep_session(made.id)
        return made.id, identity, {**headers, SESSION_HEADER: made.id}

    async def _known_session(
        self, request: Request, parts: CompletionParts, keyed: KeyedRequest | None
    ) -> tuple[str, ClientIdentity] | None:
        """Return the session that a request goes on with and does not name, and its client; None: a new one.

        That is the session in which the model has called the tools whose results it brings, or the one that
        the same request began before it failed.
        """
        uses = parts.turns[-1].uses
        session_id = "" if keyed is None else keyed.session_id
        session_id = session_id or next(
            (self._calls[use.call_id] for use in uses if use.call_id in self._calls), ""
        )
        if not session_id:
            return None
        identity = await self._identify(request)
        try:
            info = await self._conversations.store.info(session_id)
            self._access.check_use(identity, session_id, info.owner)
        except (UnknownSessionError, HTTPException):
            # Deleted, or of another client: the request has everything that a new session needs.
            return None
        return session_id, identity

    def _turn(
        self, session_id: str, identity: ClientIdentity, parts: CompletionParts, key: str | None
    ) -> AsyncGenerator[TurnEvent, None]:
        *earlier, last = parts.turns
        dialogue = ClientDialogue(
            TRANSPORT,
            tuple(earlier) if parts.is_whole else None,
            instruction=parts.instruction,
            offer=parts.offer,
            uses=last.uses,
        )
        return self._type_turn(
            session_id, last.text, key=key, identity=identity, pictures=last.pictures, dialogue=dialogue
        )

    async def _end(self, run: "_Run") -> None:
        """End a request: a session that it began and that has no words is deleted."""
        try:
            if run.is_new and not run.has_begun:
                async with asyncio.timeout(DELETE_S):
                    await self._conversations.delete(run.session_id)
        except (UnknownSessionError, StoreUnavailableError, TimeoutError) as error:
            logger.warning(f"an empty session of a failed chat completion stays: {type(error).__name__}")
        finally:
            run.end()

    async def _events(self, run: "_Run") -> AsyncGenerator[TurnEvent, None]:
        """Yield the events of a run's turn, and note them. Raises as ``AnswerTyped`` and the limit do."""
        with self._turns.take(run.session_id):
            async with aclosing(run.turn):
                async for event in run.turn:
                    run.note(event)
                    for call in run.calls:
                        self._calls[call.call_id] = run.session_id
                    yield event

    async def _whole(self, run: "_Run") -> AsyncGenerator[str, None]:
        try:
            async with aclosing(self._events(run)) as events:
                async for _ in events:
                    pass
        except Exception as error:
            raise CompletionFailedError(error, run.failed_headers()) from error
        yield json.dumps(run.completion.whole(run.finish()))

    async def _streamed(self, run: "_Run", *, usage: bool) -> AsyncGenerator[str, None]:
        completion, begun = run.completion, False
        async with aclosing(self._events(run)) as events:
            try:
                async for event in events:
                    if not begun:
                        # The turn is durable: an error before it is a status.
                        begun = True
                        yield _event(completion.chunk({"role": "assistant", "content": ""}))
                    if event.name == "delta":
                        yield _event(completion.chunk({"content": event.data["text"]}))
            except Exception as error:
                if not begun:
                    raise CompletionFailedError(error, run.failed_headers()) from error
                yield _event(_failure(error))
                return
        for chunk in _last_chunks(completion, run.finish(), usage=usage):
            yield chunk


class _Run:
    """Request that is being answered.

    Args:
        session_id: of the session in which it is answered.
        headers: of its answer; with the id of the session where the request began it.
        turn: events of the turn.
        completion: answer.
        keyed: with its key; None without one.

    Attributes:
        session_id, headers, turn, completion: as given.
        is_new: true when the request began the session.
        has_begun: true when the turn is durable.
        calls: of tools that the client is to run.
    """

    def __init__(
        self,
        session_id: str,
        headers: Mapping[str, str],
        turn: AsyncGenerator[TurnEvent, None],
        completion: Completion,
        keyed: KeyedRequest | None,
    ) -> None:
        self.session_id, self.headers = session_id, headers
        self.turn, self.completion = turn, completion
        self.is_new = SESSION_HEADER in headers
        self.has_begun = False
        self.calls: tuple[CompletionCall, ...] = ()
        self._keyed = keyed
        self._said: list[str] = []
        self._last: TurnEvent | None = None

    def note(self, event: TurnEvent) -> None:
        """Note an event of the turn."""
        self.has_begun, self._last = True, event
        if event.name == "delta":
            self._said.append(str(event.data["text"]))
        elif event.name == "calls":
            self.calls = _calls_of(event)

    def finish(self) -> CompletionAnswer:
        """Return the answer, which is complete, and note it for a repetition of the request."""
        text = "".join(self._said).strip()
        answer = CompletionAnswer(text, self.calls, _usage(self._last), _facts(self._last))
        if self._keyed is not None:
            self._keyed.finish(FinishedCompletion(self.session_id, self.completion, answer, self.headers))
        return answer

    def failed_headers(self) -> dict[str, str]:
        """Return the headers of an error: the session is in them unless it is deleted."""
        headers = {name: value for name, value in self.headers.items() if name != SESSION_HEADER}
        if not self.is_new or self.has_begun:
            headers[SESSION_HEADER] = self.session_id
        return headers

    def end(self) -> None:
        """End the request; it may be repeated."""
        if self._keyed is not None:
            if self.is_new and not self.has_begun:
                self._keyed.keep_session("")
            self._keyed.end()


def _calls_of(event: TurnEvent) -> tuple[CompletionCall, ...]:
    shown = event.data["calls"]
    assert isinstance(shown, list)
    return tuple(CompletionCall(each["id"], each["name"], each["arguments"]) for each in shown)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()


def _wants_usage(body: CompletionRequest) -> bool:
    return body.stream_options is not None and bool(body.stream_options.include_usage)


def _media_type(body: CompletionRequest) -> str:
    return "text/event-stream" if body.stream else "application/json"


def _last_chunks(completion: Completion, answer: CompletionAnswer, *, usage: bool) -> Iterator[str]:
    """Yield the end of a streamed answer."""
    for chunk in completion.call_chunks(answer.calls):
        yield _event(chunk)
    yield _event(completion.chunk({}, answer.finish))
    if usage:
        yield _event(completion.usage_chunk(answer.usage))
    yield "data: [DONE]\n\n"


async def _replayed(
    finished: FinishedCompletion, *, is_stream: bool, usage: bool
) -> AsyncGenerator[str, None]:
    completion, answer = finished.completion, finished.answer
    if not is_stream:
        yield json.dumps(completion.whole(answer))
        return
    yield _event(completion.chunk({"role": "assistant", "content": ""}))
    if answer.text:
        yield _event(completion.chunk({"content": answer.text}))
    for chunk in _last_chunks(completion, answer, usage=usage):
        yield chunk


def _event(data: Mapping[str, object]) -> str:
    return f"data: {json.dumps(data)}\n\n"


def _usage(done: TurnEvent | None) -> dict[str, object] | None:
    """Return the tokens of an answer, as OpenAI counts them; None where the model reported none."""
    used = None if done is None else done.data.get("usage")
    if not isinstance(used, dict):
        return None
    cached = used.get("cached_tokens", 0)
    read = used.get("prompt_tokens", 0) + cached + used.get("cache_write_tokens", 0)
    wrote = used.get("completion_tokens", 0)
    return {
        "prompt_tokens": read,
        "completion_tokens": wrote,
        "total_tokens": read + wrote,
        "prompt_tokens_details": {"cached_tokens": cached},
    }


def _facts(last: TurnEvent | None) -> dict[str, object]:
    """Return our own facts about an answer: its passages, or that a human has the session."""
    if last is None:
        return {}
    if last.name == "held":
        return {"held": True}
    return {"passages": last.data["passages"]} if "passages" in last.data else {}


def _failure(error: Exception) -> dict[str, object]:
    if not isinstance(error, AgentError):
        log_failure("a chat completion failed", error)
        error = OpenAiHttpError("the server failed at this turn", kind="server_error")
    failed = openai_error(error)
    return error_body(str(failed), kind=failed.kind, param=failed.param, code=failed.code)
