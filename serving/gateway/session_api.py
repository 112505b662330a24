"""Sessions API: the only access of pages, programs and evaluations to sessions.

    POST   /api/sessions                      a new session: its id, which is unguessable
    GET    /api/sessions                      newest first, ``limit`` and ``before``; for the operator only
    GET    /api/sessions/search               by words, transport and time; for the operator only
    GET    /api/sessions/{id}                 state of one
    GET    /api/sessions/{id}/timeline        events by event time: ``limit``, ``after``, ``kind``, ``order``
    GET    /api/sessions/{id}/prompt          present input of the model
    GET    /api/sessions/{id}/events          server-sent events: every commit from ``after_seq`` on, live
    GET    /api/sessions/{id}/export          JSON lines
    POST   /api/sessions/import               stores them, also from a very large file; for the operator
    POST   /api/sessions/{id}/messages        a typed turn, also with pictures; the answer streams as
                                              server-sent events
    GET    /api/sessions/{id}/recordings      its recorded calls; below it their files (``recording_routes``)
                                              and replays, for the operator (``replays.routes``)
    GET    /api/sessions/{id}/meta            and others: names of the MiniCPM-o server
                                              (``minicpm.session_routes``)
    GET    /api/sessions/{id}/comments        notes of its readers (``comment_routes``)
    GET    /api/sessions/{id}/shares          links by which others read it (``share_routes``)
    GET    /api/sessions/{id}/evidence        whether its signed evidence holds (``evidence_routes``)
    DELETE /api/sessions/{id}                 deletes it completely; answers with what was removed, by kind
                                              (``session_erasure``)

Without client keys a client with an id reads and types; with keys the session is its owner's (``access``).
Listing and importing are reserved for the operator (``auth.admin_auth``), deletion for the owner or the
operator.

A typed turn answers 200 once the turn is durable. Its events are ``turn`` (the committed turn), ``delta``
(more of the answer), ``done`` (the answer is durable) or ``error``. ``Idempotency-Key`` makes a repeated
request harmless. When the reader leaves, the turn ends: the part of the answer that was sent is committed as
cut off.

Concurrent requests to an open server are bounded (``limits``, ``ServerTuning``): new sessions of one address,
typed turns and followers, in all and of one session, and reads of one address (``read_pace``). A page holds a
megabyte at most. A page with fewer events than requested may therefore not be the last one; ``after`` shows
it. A refused request has changed nothing.
"""

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, fields
from functools import partial
from typing import Annotated, Literal, Protocol

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from parley.core.errors import (
    AgentError,
    FencedError,
    KeyReusedError,
    SessionExistsError,
    StoreUnavailableError,
    UnknownSessionError,
)
from parley.core.grants import ClientIdentity, KeyScope
from parley.core.pictures import PictureFile
from parley.protocols.openai_chat import CompletionCall, CompletionTurn, ToolOffer
from parley.recording.library import RecordingSummaries
from parley.serving.gateway.admin.apps import AppId
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import UsageLimits, unless_refused
from parley.serving.gateway.comment_routes import add_comment_routes
from parley.serving.gateway.evidence_routes import add_evidence_route
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.read_pace import VIEW_COST_BYTES, ReadPace
from parley.serving.gateway.http.requests import check_origin, client_of, read_lines, timeline_place
from parley.serving.gateway.limits import ConcurrencyLimit, Slot
from parley.serving.gateway.minicpm.session_routes import MiniCpmSessions
from parley.serving.gateway.recording_routes import SessionRecordings, add_recording_routes
from parley.serving.gateway.replays.routes import ReplayAccess, ReplayRoutes
from parley.serving.gateway.session_erasure import SessionEraser
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.share_routes import SharedSession, ShareReading, add_share_routes
from parley.serving.gateway.tag_routes import MOST_GIVEN_CHARS, add_tag_routes, checked
from parley.session_store.comments import SessionComments
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.faults import log_failure
from parley.session_store.rows import MAX_INT, SESSION_ID, SessionInfo
from parley.session_store.searching import SessionSearch
from parley.session_store.tags import SessionTags

PATH = "/api/sessions"
# Surface of typed turns, and of sessions that are created for them.
APP: AppId = "turnbased"
IMPORT_PATH = f"{PATH}/import"
MAX_PAGE = 1_000
# Sessions of one page of a search.
MAX_FOUND = 100
# Characters of an export that are sent together.
EXPORT_CHUNK_CHARS = 65_536
# Paths of typed turns, whose bodies may hold pictures.
MESSAGES_PATH = re.compile(rf"{PATH}/[^/]+/messages|/v1/chat/completions|/api/chat")
# Paths of recordings of clients, which are read while they arrive.
UPLOAD_PATH = re.compile(rf"{PATH}/[^/]+/upload-recording")
MAX_PICTURES = 8
# Base64; the length of the whole body usually applies first.
MAX_PICTURE_CHARS = 100_000_000
# Other events have keys too, which contain a dot. A client's key contains none.
CLIENT_KEY = r"^[A-Za-z0-9_-]{1,200}$"
# A regular comment shows a proxy, and the server, that the reader is still connected.
SSE_KEEPALIVE_S = 15.0


@dataclass(frozen=True, slots=True)
class TurnEvent:
    """Server-sent event of a typed turn.

    Attributes:
        name: ``turn``, ``delta``, ``held``, ``calls`` (tools that the client is to run) or ``done``.
        data: JSON object.
    """

    name: str
    data: dict[str, object]


@dataclass(frozen=True, slots=True)
class ClientDialogue:
    """Context that a client sends with its turn.

    Attributes:
        transport: of the turn, in the session.
        earlier: all messages before the turn, as the client shows them, which the session is to follow; None:
            the turn is the session's next one.
        instruction: text that the client adds to the deployment's prompt, where its grants permit it.
        offer: tools of the client.
        uses: calls of such tools for this turn, with their results, which are to be answered.
    """

    transport: str
    earlier: tuple[CompletionTurn, ...] | None = None
    instruction: str | None = None
    offer: ToolOffer = ToolOffer()
    uses: tuple[CompletionCall, ...] = ()


class AnswerTyped(Protocol):
    """Function that answers a typed turn (``pipelines.text.typed_turns``).

    Closing the generator ends the turn.
    """

    def __call__(
        self,
        session_id: str,
        text: str,
        *,
        key: str | None,
        identity: ClientIdentity,
        pictures: Sequence[PictureFile] = (),
        dialogue: ClientDialogue | None = None,
    ) -> AsyncGenerator[TurnEvent, None]: ...


class NewSession(BaseModel):
    """Body of a new session, which may be left out: it has no fields."""

    model_config = ConfigDict(extra="forbid")


class TypedPicture(BaseModel):
    """Picture of a typed turn."""

    model_config = ConfigDict(extra="forbid")

    media_type: Literal["image/jpeg", "image/png", "image/webp"]
    data: str = Field(min_length=1, max_length=MAX_PICTURE_CHARS)


class TypedMessage(BaseModel):
    """Body of a typed turn: a text, pictures, or both."""

    model_config = ConfigDict(extra="forbid")

    text: str = Field("", max_length=8_000)
    pictures: tuple[TypedPicture, ...] = Field((), max_length=MAX_PICTURES)


def known_id(session_id: str) -> str:
    """Return a path's session id after checking its form."""
    if not SESSION_ID.fullmatch(session_id):
        raise HTTPException(404, "no such session")
    return session_id


SessionId = Annotated[str, Depends(known_id)]
Chunks = AsyncGenerator[str, None]
# Counts bytes that were read, and returns when they may be sent.
Paced = Callable[[int], Awaitable[None]]
Limit = Annotated[int, Query(ge=1, le=MAX_PAGE)]


def typed_turn_limit(settings: ServerTuning) -> ConcurrencyLimit:
    """Return the limit of concurrent typed turns; its keys are sessions."""
    return ConcurrencyLimit(
        settings.max_typed_turns,
        f"{settings.max_typed_turns} typed turns are under way, try again in a moment",
        each=1 + settings.max_waiting_turns,
        each_full=f"{settings.max_waiting_turns} turns of this session wait already, try again in a moment",
    )


class SessionRoutes:
    """Routes of the sessions.

    Args:
        conversations: of this process, with their store.
        type_turn: answers typed turns.
        settings: of the server.
        usage: limits the sessions that each client may begin; ``type_turn`` counts the turns.
        access: checks that a client may create or use a session.
        operators: checks that a client may list and import.
        audit: records comments that are deleted, and links.
        turns: limits concurrent typed turns, in all and of each session (``typed_turn_limit``).
        eraser: deletes sessions.
        recordings: recordings of the calls of the sessions; None for none.
        replays: of recorded calls, for the operator; None for none.
    """

    def __init__(
        self,
        conversations: Conversations,
        type_turn: AnswerTyped,
        settings: ServerTuning,
        usage: UsageLimits,
        access: Access,
        operators: AdminAuth,
        audit: AuditLog,
        turns: ConcurrencyLimit,
        eraser: SessionEraser,
        recordings: SessionRecordings | None = None,
        replays: ReplayAccess | None = None,
    ) -> None:
        self._conversations, self._store = conversations, conversations.store
        self._type_turn, self._turns = type_turn, turns
        self._settings, self._usage = settings, usage
        self._access, self._operators, self._audit = access, operators, audit
        self._eraser, self._recordings, self._replays = eraser, recordings, replays
        self._followers = ConcurrencyLimit(
            settings.max_followers,
            f"{settings.max_followers} readers follow sessions here, try again later",
            each=settings.max_session_followers,
            each_full=f"{settings.max_session_followers} readers follow this session, try again later",
        )
        self._pace = ReadPace(settings)

    def router(self) -> APIRouter:
        """Return the routes, with those that other modules add to a session."""
        router = APIRouter(prefix=PATH, dependencies=[Depends(self._origin_allowed)])
        self._add_creation(router)
        self._add_operator_routes(router)
        self._add_readings(router)
        self._add_deletion(router)
        self._add_messages(router)
        shared = self._add_parts(router)
        whole = APIRouter()
        whole.include_router(router)
        whole.include_router(shared)
        return whole

    # Routes.

    def _add_creation(self, router: APIRouter) -> None:
        client = Annotated[ClientIdentity, Depends(self._beginning)]

        @router.post("", status_code=201)
        async def create(
            request: Request, response: Response, identity: client, _body: NewSession | None = None
        ) -> dict[str, object]:
            """Create a session of the client and return its id, which is unguessable."""
            return await self._created(request, response, identity)

    def _add_operator_routes(self, router: APIRouter) -> None:
        for_operator = [Depends(self._operators.check)]
        router.get("", dependencies=for_operator)(self.listed)
        router.get("/search", dependencies=for_operator)(self.searched)
        router.post("/import", status_code=201, dependencies=for_operator)(self.taken_in)

    def _add_readings(self, router: APIRouter) -> None:
        in_use = [Depends(self._used)]
        router.get("/{session_id}", dependencies=in_use)(self.shown)
        router.get("/{session_id}/timeline", dependencies=in_use)(self.timeline)
        router.get("/{session_id}/prompt", dependencies=in_use)(self.prompt)
        router.get("/{session_id}/events", dependencies=in_use)(self.events)
        router.get("/{session_id}/export", dependencies=in_use)(self.export)

    def _add_deletion(self, router: APIRouter) -> None:
        router.delete("/{session_id}")(self.delete)

    def _add_messages(self, router: APIRouter) -> None:
        writer = Annotated[ClientIdentity, Depends(self._typed_into)]

        @router.post("/{session_id}/messages")
        async def message(
            session_id: SessionId,
            body: TypedMessage,
            identity: writer,
            idempotency_key: Annotated[str | None, Header(pattern=CLIENT_KEY)] = None,
        ) -> EventStream:
            """Answer a typed turn: server-sent events ``turn``, ``delta``, ``done`` or ``error``."""
            return self._answered(session_id, body, identity, idempotency_key)

    def _add_parts(self, router: APIRouter) -> APIRouter:
        """Add the routes of other modules; return those of links, which have a path of their own."""
        in_use, recordings = [Depends(self._used)], self._recordings
        for_operator = Depends(self._operators.check)
        add_comment_routes(router, SessionComments(self._store), identity=self._used, audit=self._audit)
        add_tag_routes(router, SessionTags(self._store), for_operator=for_operator, known=Depends(known_id))
        folder, bucket = (None, None) if recordings is None else (recordings.folder, recordings.bucket)
        reading = ShareReading(self._store, self._settings, self._pace, self._audit, folder, bucket)
        add_share_routes(router, reading, in_use=in_use)
        add_evidence_route(router, reading, in_use=in_use)
        files = None
        if recordings is not None:
            summaries = RecordingSummaries(recordings.folder, recordings.bucket)
            self._eraser.add_memory(summaries)
            files = add_recording_routes(
                router,
                recordings.folder,
                recordings.bucket,
                summaries=summaries,
                in_use=in_use,
                pace=self._pace,
                client=self._client,
                stall_s=self._settings.reader_stall_s,
            )
            if self._replays is not None:
                replays = ReplayRoutes(self._replays, recordings.folder, recordings.bucket, files)
                replays.add_to(router, for_operator=[for_operator])
        MiniCpmSessions(reading, files, operates=self._used, in_use=in_use).add_to(router, recordings)
        return SharedSession(reading).router()

    # Checks of clients.

    def _client(self, request: Request) -> str:
        return client_of(request, trusted_proxies=self._settings.trusted_proxies)

    def _origin_allowed(self, request: Request) -> None:
        check_origin(request, allowed=self._settings.allowed_origins)

    async def _used(self, session_id: SessionId, request: Request) -> ClientIdentity:
        reads = request.method in ("GET", "HEAD")
        return await self._used_for(KeyScope.READ if reads else KeyScope.OPERATE, session_id, request)

    async def _typed_into(self, session_id: SessionId, request: Request) -> ClientIdentity:
        return await self._used_for(KeyScope.TALK, session_id, request)

    async def _used_for(self, scope: KeyScope, session_id: str, request: Request) -> ClientIdentity:
        identity = await self._access.identify(request, scope)
        if not self._access.is_open:
            self._access.check_use(identity, session_id, (await self._store.info(session_id)).owner)
        return identity

    async def _beginning(self, request: Request) -> ClientIdentity:
        identity = await self._access.check(request, APP)
        self._access.check_new_session(identity)
        return identity

    # Handlers.

    async def _created(
        self, request: Request, response: Response, identity: ClientIdentity
    ) -> dict[str, object]:
        with unless_refused(self._usage.take_session(identity)):
            admitted = await self._access.admit(request, APP)
            owner = identity.session_owner
            if owner is None and not identity.is_operator:
                owner = self._access.set_cookie(request, response)
            made = shown_info(await self._store.create(owner=owner))
        return made if admitted.next_token is None else {**made, "next_token": admitted.next_token}

    async def listed(self, limit: Limit = 50, before: str | None = None) -> dict[str, object]:
        """Return sessions, newest first."""
        found = await self._store.sessions(limit=limit, before=before)
        return {
            "sessions": [shown_info(info) for info in found],
            "before": found[-1].id if len(found) == limit else None,
        }

    async def searched(
        self,
        text: Annotated[str, Query(max_length=200)] = "",
        transport: Annotated[str, Query(max_length=40)] = "",
        since_us: Annotated[int, Query(ge=0, le=MAX_INT)] = 0,
        until_us: Annotated[int | None, Query(ge=0, le=MAX_INT)] = None,
        tag: Annotated[str, Query(max_length=MOST_GIVEN_CHARS)] = "",
        limit: Annotated[int, Query(ge=1, le=MAX_FOUND)] = 50,
        before: str | None = None,
    ) -> dict[str, object]:
        """Return sessions by words, transport, time and tag, newest first, with their first words."""
        sought = SessionSearch(
            text.strip(), transport, since_us, until_us, checked(tag) if tag.strip() else ""
        )
        found = await self._store.search(sought, limit=limit, before=before)
        return {
            "sessions": [
                {
                    **shown_info(each.info),
                    "turns": each.turns,
                    "transports": each.transports,
                    "first_words": each.first_words,
                    "tags": each.tags,
                }
                for each in found
            ],
            "before": found[-1].info.id if len(found) == limit else None,
        }

    async def taken_in(self, request: Request) -> dict[str, object]:
        """Store an export (JSON lines), all of it or nothing."""
        lines = read_lines(
            request,
            max_bytes=self._settings.max_import_bytes,
            max_line_bytes=self._settings.max_import_line_bytes,
            within_s=self._settings.body_s,
        )
        async with aclosing(lines):
            return shown_info(await self._store.import_(lines))

    async def shown(self, session_id: SessionId) -> dict[str, object]:
        """Return the state of a session."""
        # Read first: once it is false, the store has all that the last holder has recorded.
        is_live = self._conversations.is_live(session_id)
        return {**shown_info(await self._store.info(session_id)), "live": is_live}

    async def timeline(
        self,
        request: Request,
        session_id: SessionId,
        limit: Limit = 200,
        after: str | None = None,
        kind: Annotated[list[Kind] | None, Query()] = None,
        order: Literal["oldest", "newest"] = "oldest",
    ) -> Response:
        """Return a page of the events of a session, by event time."""
        client = self._client(request)
        with self._pace.take(client):
            page = await self._store.json_timeline(
                session_id,
                after=timeline_place(after),
                limit=limit,
                kinds=frozenset(kind) if kind else None,
                newest_first=order == "newest",
            )
            place = None if page.is_last or page.last is None else f"{page.last[0]}.{page.last[1]}"
            # The store's texts are ASCII.
            body = f'{{"events":[{",".join(page.texts)}],"after":{json.dumps(place)}}}'.encode("ascii")
            await self._pace.read(client, len(body))
        return Response(body, media_type="application/json")

    async def prompt(self, request: Request, session_id: SessionId) -> dict[str, object]:
        """Return the messages that the model would get now."""
        client = self._client(request)
        with self._pace.take(client):
            view = await self._conversations.view(session_id)
            await self._pace.read(client, VIEW_COST_BYTES)
        return {"messages": list(view.messages), "tokens": view.tokens}

    async def events(
        self,
        request: Request,
        session_id: SessionId,
        after_seq: Annotated[int, Query(ge=0)] = 0,
        last_event_id: Annotated[int | None, Header(ge=0)] = None,
    ) -> EventStream:
        """Stream every commit from ``after_seq`` on as server-sent events."""
        await self._store.info(session_id)
        # A browser that reconnects reports the last event that it has.
        after_seq = after_seq if last_event_id is None else max(after_seq, last_event_id)
        found = self._store.follow(session_id, after_seq=after_seq)
        paced = partial(self._pace.read, self._client(request))
        chunks = _followed(found, partial(self._followers.take, session_id), paced)
        return EventStream(chunks, stall_s=self._settings.reader_stall_s)

    async def export(self, request: Request, session_id: SessionId) -> EventStream:
        """Stream the whole session as JSON lines."""
        reader = self._client(request)
        place, paced = partial(self._pace.take, reader), partial(self._pace.read, reader)
        return EventStream(
            _exported(self._store.export(session_id), place, paced),
            stall_s=self._settings.reader_stall_s,
            media_type="application/x-ndjson",
            headers={"Content-Disposition": f'attachment; filename="{session_id}.jsonl"'},
        )

    async def delete(self, session_id: SessionId, request: Request) -> dict[str, object]:
        """Delete every trace of a session; return what was removed, by kind."""
        info = await self._store.info(session_id)
        identity = await self._access.check_deletion(request, info.owner)
        erased = await self._eraser.erase(session_id, by=identity)
        pending = [*erased.pending, *await self._eraser.scrub()]
        if erased.problem:
            raise HTTPException(500, erased.problem)
        return {"removed": erased.removed.as_message(), "pending": pending}

    def _answered(
        self, session_id: str, body: TypedMessage, identity: ClientIdentity, key: str | None
    ) -> EventStream:
        self._access.check_surface(identity, APP)
        text = body.text.strip()
        if not text and not body.pictures:
            raise HTTPException(422, "text: empty")
        pictures = [PictureFile(each.data, each.media_type) for each in body.pictures]
        turn = self._type_turn(session_id, text, key=key, identity=identity, pictures=pictures)
        chunks = _streamed(turn, partial(self._turns.take, session_id))
        return EventStream(chunks, stall_s=self._settings.reader_stall_s)


def shown_info(info: SessionInfo) -> dict[str, object]:
    """Return a session for programs, without its owner and its context, digests of no use to them."""
    facts = asdict(info)
    del facts["owner"], facts["kv_handle"]
    return facts


def as_json(event: Event) -> dict[str, object]:
    """Return an event for programs.

    Its payload is not copied, which would take several times as long as encoding it.
    """
    return {field.name: getattr(event, field.name) for field in fields(event)}


async def on_store_error(_request: Request, error: Exception) -> JSONResponse:
    """Return the answer for an error of the session store."""
    status = 409 if isinstance(error, FencedError | KeyReusedError | SessionExistsError) else 400
    headers = {}
    if isinstance(error, UnknownSessionError):
        status = 404
    elif isinstance(error, StoreUnavailableError):
        status, headers = 503, {"Retry-After": "5"}
    return JSONResponse({"error": str(error)}, status_code=status, headers=headers)


def _as_utf8(text: str) -> bytes:
    """Encode JSON text as UTF-8.

    Half of a surrogate pair, which JSON can hold and UTF-8 cannot, becomes an escape again.
    """
    return text.encode("utf-8", "backslashreplace")


def _chunk(name: str, data: dict[str, object], *, place: int | None = None) -> str:
    head = "" if place is None else f"id: {place}\n"
    text = _as_utf8(json.dumps(data, ensure_ascii=False)).decode()
    return f"{head}event: {name}\ndata: {text}\n\n"


async def _streamed(turn: AsyncGenerator[TurnEvent, None], place: Callable[[], Slot]) -> Chunks:
    with place():
        async with aclosing(turn):
            begun = False
            try:
                async for event in turn:
                    begun = True
                    yield _chunk(event.name, event.data)
            except Exception as error:
                # The first event confirms the commit: an error before it is a status, not a stream.
                if not begun:
                    raise
                yield _chunk("error", {"error": _error_text(error)})


def _error_text(error: Exception) -> str:
    """Return the error text for the reader of a typed turn."""
    if isinstance(error, AgentError):
        return str(error)
    log_failure("a typed turn failed", error)
    return "the server failed at this turn"


async def _exported(lines: AsyncIterator[str], place: Callable[[], Slot], paced: Paced) -> Chunks:
    with place():
        held: list[str] = []
        size = 0
        async for line in lines:
            held.append(line)
            size += len(line) + 1
            if size >= EXPORT_CHUNK_CHARS:
                await paced(size)
                yield "\n".join((*held, ""))
                held, size = [], 0
        await paced(size)
        yield "\n".join((*held, ""))


async def _followed(events: AsyncGenerator[Event, None], place: Callable[[], Slot], paced: Paced) -> Chunks:
    pending: asyncio.Future[Event] | None = None
    with place():
        try:
            # Sent at once: a reader waits for the status to know that it follows.
            yield ": here\n\n"
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
                chunk = _chunk("event", as_json(event), place=event.seq)
                await paced(len(chunk))
                yield chunk
        finally:
            if pending is not None:
                pending.cancel()
                await asyncio.gather(pending, return_exceptions=True)
            # Not left to the garbage collector: it counts as a follower until then.
            await events.aclose()
