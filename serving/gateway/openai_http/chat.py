"""Route ``POST /v1/chat/completions``: a typed turn of a durable session, as OpenAI's clients request one.

A request begins a session, whose id is in the answer (header ``Parley-Session``, field ``parley``), or goes
on with the one that it names, by the same header or by ``metadata.session``. Its messages are the whole
conversation as the client shows it, which the session follows; a single message is the next one of the
session. Instructions of the client are used where its grants permit them, and reported as unused otherwise.

The number of concurrent turns is bounded together with the sessions API's. A reader that leaves ends the
turn.
"""

import json
import secrets
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing

from fastapi import APIRouter, Depends, Request, Response

from parley.core.errors import AgentError
from parley.core.grants import ClientIdentity
from parley.protocols.openai_http import (
    Completion,
    CompletionParts,
    CompletionRequest,
    OpenAiHttpError,
    check_model,
    completion_parts,
    error_body,
)
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.requests import check_origin
from parley.serving.gateway.limits import ConcurrencyLimit
from parley.serving.gateway.openai_http.errors import openai_error
from parley.serving.gateway.session_api import APP, AnswerTyped, ClientDialogue, TurnEvent, known_id
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.conversations import Conversations
from parley.session_store.faults import log_failure

PATH = "/v1/chat/completions"
SESSION_HEADER, TOKEN_HEADER = "Parley-Session", "Parley-Next-Token"
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

    def router(self) -> APIRouter:
        """Return the route, to be included in an application."""
        # A dependency: a client without a credential gets that answer, whatever its body is.
        router = APIRouter(dependencies=[Depends(self._identify)])
        router.add_api_route(PATH, self.complete, methods=["POST"], response_model=None)
        return router

    async def complete(self, request: Request, body: CompletionRequest) -> Response:
        """Answer a conversation, as one object or as server-sent events."""
        check_model(body.model, self._models)
        parts = completion_parts(body)
        session_id, identity, headers = await self._session(request, body)
        facts: dict[str, object] = {"session": session_id}
        may_instruct = identity.is_operator or identity.grants.instructions
        if parts.instruction is not None and not may_instruct:
            facts["unused"] = [UNUSED]
        completion = Completion(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), body.model, facts)
        turn = self._turn(session_id, identity, parts)
        if body.stream:
            usage = body.stream_options is not None and bool(body.stream_options.include_usage)
            chunks, media_type = (
                self._streamed(session_id, turn, completion, usage=usage),
                "text/event-stream",
            )
        else:
            chunks, media_type = self._whole(session_id, turn, completion), "application/json"
        headers = {**headers, SESSION_HEADER: session_id, "X-Accel-Buffering": "no"}
        return EventStream(
            chunks, stall_s=self._settings.reader_stall_s, media_type=media_type, headers=headers
        )

    async def _identify(self, request: Request) -> ClientIdentity:
        check_origin(request, allowed=self._settings.allowed_origins)
        identity = await self._access.identify(request)
        self._access.check_surface(identity, APP)
        return identity

    async def _session(
        self, request: Request, body: CompletionRequest
    ) -> tuple[str, ClientIdentity, dict[str, str]]:
        """Return the session of a request, its client, and headers of the answer."""
        access = self._access
        named = request.headers.get(SESSION_HEADER) or body.session_id
        if named is not None:
            identity = await self._identify(request)
            info = await self._conversations.store.info(known_id(named))
            access.check_use(identity, named, info.owner)
            return named, identity, {}
        identity = await access.check(request, APP)
        access.check_new_session(identity)
        self._usage.take_session(identity)
        admitted = await access.admit(request, APP)
        cookies = Response()
        owner = identity.session_owner
        if owner is None and not identity.is_operator:
            owner = access.set_cookie(request, cookies)
        made = await self._conversations.store.create(owner=owner)
        headers = {} if admitted.next_token is None else {TOKEN_HEADER: admitted.next_token}
        if "set-cookie" in cookies.headers:
            headers["set-cookie"] = cookies.headers["set-cookie"]
        return made.id, identity, headers

    def _turn(
        self, session_id: str, identity: ClientIdentity, parts: CompletionParts
    ) -> AsyncGenerator[TurnEvent, None]:
        *earlier, last = parts.turns
        dialogue = ClientDialogue(
            TRANSPORT, tuple(earlier) if parts.is_whole else None, instruction=parts.instruction
        )
        return self._type_turn(
            session_id, last.text, key=None, identity=identity, pictures=last.pictures, dialogue=dialogue
        )

    async def _whole(
        self, session_id: str, turn: AsyncGenerator[TurnEvent, None], completion: Completion
    ) -> AsyncGenerator[str, None]:
        said: list[str] = []
        last: TurnEvent | None = None
        with self._turns.take(session_id):
            async with aclosing(turn):
                async for event in turn:
                    last = event
                    if event.name == "delta":
                        said.append(str(event.data["text"]))
        text = "".join(said).strip()
        yield json.dumps(completion.whole(text, _usage(last), _facts(last)))

    async def _streamed(
        self,
        session_id: str,
        turn: AsyncGenerator[TurnEvent, None],
        completion: Completion,
        *,
        usage: bool,
    ) -> AsyncGenerator[str, None]:
        begun = False
        last: TurnEvent | None = None
        with self._turns.take(session_id):
            async with aclosing(turn):
                try:
                    async for event in turn:
                        last = event
                        if not begun:
                            # The turn is durable: an error before it is a status.
                            begun = True
                            yield _event(completion.chunk({"role": "assistant", "content": ""}))
                        if event.name == "delta":
                            yield _event(completion.chunk({"content": event.data["text"]}))
                except Exception as error:
                    if not begun:
                        raise
                    yield _event(_failure(error))
                    return
        yield _event(completion.chunk({}, "stop"))
        if usage:
            yield _event(completion.usage_chunk(_usage(last)))
        yield "data: [DONE]\n\n"


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
