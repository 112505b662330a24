"""The sessions API: what pages, programs and evaluations see of a session. Nobody else reads the database.

    POST   /api/sessions                      a new session: its id, which nobody can guess
    GET    /api/sessions                      newest first, ``limit`` and ``before``; for the operator only
    GET    /api/sessions/{id}                 state of one
    GET    /api/sessions/{id}/timeline        events by event time, ``limit`` and ``after``
    GET    /api/sessions/{id}/prompt          what the model would be given now
    GET    /api/sessions/{id}/events          server-sent events: every commit from ``after_seq`` on, live
    GET    /api/sessions/{id}/export          JSON lines that ``POST /api/sessions/import`` takes
    POST   /api/sessions/{id}/messages        a typed turn; the answer streams as server-sent events
    DELETE /api/sessions/{id}                 every trace of it

Whoever knows an id may use the session; ids are therefore not listed to everybody. Listing and importing are
the operator's: with the token of ``admin_token_env`` as ``Authorization: Bearer``, or, while that variable is
not set, from a server that listens on a loopback address only.

A typed turn answers 200 once the turn is durable. Its events are ``turn`` (the committed turn), ``delta``
(more of the answer), ``done`` (the answer is durable) or ``error``. ``Idempotency-Key`` makes a repeated
request harmless. A reader that goes away ends the turn: what it had been given is committed as cut off.
"""

import asyncio
import hmac
import json
import os
import re
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Protocol

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request
from fastapi.responses import JSONResponse, StreamingResponse
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field

from core.errors import AgentError, FencedError, PeerError, StoreUnavailableError, UnknownSessionError
from serving.gateway.middleware import is_loopback
from serving.gateway.requests import check_origin
from serving.gateway.settings import ServerSettings
from session_store.conversation import Conversations
from session_store.events import Event

SESSION_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
MAX_PAGE = 1_000
# Events of other kinds have keys too, with a dot in them: a client's key has none.
CLIENT_KEY = r"^[A-Za-z0-9_-]{1,200}$"
FORWARDING_HEADERS = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
# A comment now and then tells a proxy, and the server, that the reader is still there.
SSE_KEEPALIVE_S = 15.0


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """One server-sent event of a typed turn.

    Attributes:
        name: ``turn``, ``delta``, ``done``.
        data: JSON object.
    """

    name: str
    data: dict[str, object]


class Typing(Protocol):
    """Answers a typed turn (``pipelines.chat``); a closed generator ends it."""

    def __call__(self, session_id: str, text: str, *, key: str | None) -> AsyncGenerator[TurnEvent, None]: ...


class Message(BaseModel):
    """Body of a typed turn."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field(min_length=1, max_length=8_000)


def known_id(session_id: str) -> str:
    """A path's session id, checked before anything else sees it."""
    if not SESSION_ID.fullmatch(session_id):
        raise HTTPException(404, "no such session")
    return session_id


SessionId = Annotated[str, Depends(known_id)]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def session_api(conversations: Conversations, type_turn: Typing, settings: ServerSettings) -> APIRouter:
    """The routes.

    Args:
        conversations: of this process, with their store.
        type_turn: answers typed turns.
        settings: of the server.
    """
    store = conversations.store

    def origin_allowed(request: Request) -> None:
        check_origin(request, allowed=settings.allowed_origins)

    router = APIRouter(prefix="/api/sessions", dependencies=[Depends(origin_allowed)])

    def check_operator(request: Request, authorization: Annotated[str, Header()] = "") -> None:
        token = os.environ.get(settings.admin_token_env, "")
        given = authorization.removeprefix("Bearer ")
        if token and hmac.compare_digest(given.encode(), token.encode()):
            return
        # What a proxy on this machine passes on comes from anywhere.
        proxied = settings.allowed_hosts or any(name in request.headers for name in FORWARDING_HEADERS)
        if not token and is_loopback(settings.host) and not proxied:
            return
        raise HTTPException(
            403, f"for the operator: send the token of {settings.admin_token_env} as a bearer token"
        )

    @router.post("", status_code=201)
    async def create() -> dict[str, object]:
        return asdict(await store.create())

    @router.get("", dependencies=[Depends(check_operator)])
    async def listed(limit: Limit = 50, before: str | None = None) -> dict[str, object]:
        found = await store.sessions(limit=limit, before=before)
        return {
            "sessions": [asdict(info) for info in found],
            "before": found[-1].id if len(found) == limit else None,
        }

    @router.post("/import", status_code=201, dependencies=[Depends(check_operator)])
    async def taken_in(request: Request) -> dict[str, object]:
        try:
            text = (await request.body()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise PeerError("the session is not UTF-8") from error
        return asdict(await store.import_(text.splitlines()))

    @router.get("/{session_id}")
    async def shown(session_id: SessionId) -> dict[str, object]:
        live = conversations.get(session_id)
        return {**asdict(await store.info(session_id)), "live": live is not None}

    @router.get("/{session_id}/timeline")
    async def timeline(session_id: SessionId, limit: Limit = 200, after: str | None = None) -> dict[str, Any]:
        events = await store.timeline(session_id, after=_place(after), limit=limit)
        last = events[-1] if len(events) == limit else None
        return {
            "events": [as_json(event) for event in events],
            "after": f"{last.event_us}.{last.seq}" if last else None,
        }

    @router.get("/{session_id}/prompt")
    async def prompt(session_id: SessionId) -> dict[str, object]:
        view = await conversations.view(session_id)
        return {"messages": list(view.messages), "tokens": view.tokens}

    @router.get("/{session_id}/events")
    async def events(
        session_id: SessionId,
        after_seq: Annotated[int, Query(ge=0)] = 0,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
    ) -> StreamingResponse:
        await store.info(session_id)
        # A browser that reconnects says what it has.
        after_seq = after_seq if last_event_id is None else max(after_seq, last_event_id)
        return _sse(_followed(store.follow(session_id, after_seq=after_seq)))

    @router.get("/{session_id}/export")
    async def export(session_id: SessionId) -> StreamingResponse:
        await store.info(session_id)
        headers = {"Content-Disposition": f'attachment; filename="{session_id}.jsonl"'}
        lines = (f"{line}\n" async for line in store.export(session_id))
        return StreamingResponse(lines, media_type="application/x-ndjson", headers=headers)

    @router.delete("/{session_id}", status_code=204)
    async def delete(session_id: SessionId) -> None:
        await conversations.delete(session_id)

    @router.post("/{session_id}/messages")
    async def message(
        session_id: SessionId,
        body: Message,
        idempotency_key: Annotated[str | None, Header(pattern=CLIENT_KEY)] = None,
    ) -> StreamingResponse:
        text = body.text.strip()
        if not text:
            raise HTTPException(422, "text: is empty")
        turn = type_turn(session_id, text, key=idempotency_key)
        # The first event stands for the commit: what goes wrong before it is a status, not a stream.
        try:
            first = await anext(turn)
        except BaseException:
            await turn.aclose()
            raise
        return _sse(_streamed(first, turn))

    return router


def as_json(event: Event) -> dict[str, object]:
    """An event for programs."""
    return {**asdict(event), "kind": event.kind.value, "payload": dict(event.payload)}


async def on_store_error(_request: Request, error: Exception) -> JSONResponse:
    """Statuses of what a session store refuses."""
    status = 409 if isinstance(error, FencedError) else 400
    headers = {}
    if isinstance(error, UnknownSessionError):
        status = 404
    elif isinstance(error, StoreUnavailableError):
        status, headers = 503, {"Retry-After": "5"}
    return JSONResponse({"error": str(error)}, status_code=status, headers=headers)


def _place(after: str | None) -> tuple[int, int] | None:
    if after is None:
        return None
    match = re.fullmatch(r"(\d{1,18})\.(\d{1,18})", after)
    if match is None:
        raise HTTPException(422, "after: not a place that this API gave")
    return int(match.group(1)), int(match.group(2))


def _sse(chunks: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(
        chunks,
        media_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


def _chunk(name: str, data: dict[str, object], *, place: int | None = None) -> str:
    head = "" if place is None else f"id: {place}\n"
    return f"{head}event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"


async def _streamed(first: TurnEvent, turn: AsyncGenerator[TurnEvent, None]) -> AsyncGenerator[str, None]:
    async with aclosing(turn):
        yield _chunk(first.name, first.data)
        try:
            async for event in turn:
                yield _chunk(event.name, event.data)
        except AgentError as error:
            # The status is out; the stream says what happened.
            yield _chunk("error", {"error": str(error)})
        except Exception:
            logger.exception("a typed turn failed")
            yield _chunk("error", {"error": "the server failed at this turn"})


async def _followed(events: AsyncIterator[Event]) -> AsyncGenerator[str, None]:
    pending: asyncio.Future[Event] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(events))
            done, _ = await asyncio.wait({pending}, timeout=SSE_KEEPALIVE_S)
            if not done:
                yield ": still here\n\n"
                continue
            try:
                event = pending.result()
            except StopAsyncIteration:
                return
            pending = None
            yield _chunk("event", as_json(event), place=event.seq)
    finally:
        if pending is not None:
            pending.cancel()
