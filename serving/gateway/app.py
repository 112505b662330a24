"""Application of one gateway process: middleware and routes.

Input: requests of browsers and Pipecat clients under a name of this server. A request under another name is
refused, because a page of another site may have made that name point here. Output: one conversation per
accepted call, run by ``run_call`` in a task that the app owns (``serving.gateway.calls``). A malformed
request gets a 4xx with the reason and affects no other request. The number of concurrent conversations is
capped (``limits``). A call beyond the cap waits in the queue for a line where its protocol has messages for
that. Any other gets 503, or 429 where one client or one session has used up its share. Routers:
``health``, ``webrtc.routes``, ``sockets``, ``session_api``, ``annotations_api``, ``phone``, ``admin``; pages:
``pages``.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from parley.core.errors import (
    CapacityError,
    MediaError,
    OversizedError,
    PeerError,
    StoreError,
)
from parley.core.grants import ANONYMOUS
from parley.core.tuning import tuned
from parley.runtime.shutdown import Shutdown
from parley.serving.gateway.admin.apps import AppDisabledError
from parley.serving.gateway.admin.operations import PRIVATE_PATHS, STREAMED_PATHS, Operations
from parley.serving.gateway.admin.tenants_api import tenants_api
from parley.serving.gateway.annotations_api import AnnotationEntries, annotations_api
from parley.serving.gateway.api_description import serve_description
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.auth_failures import AuthFailures
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.client_keys import ClientKeys
from parley.serving.gateway.auth.route_access import check_declared
from parley.serving.gateway.auth.usage import CallShares, UsageLimits
from parley.serving.gateway.call_bodies import CallBodies
from parley.serving.gateway.call_choices import CallChooser, CallOffers
from parley.serving.gateway.calls import CallTasks, RunCall
from parley.serving.gateway.desk.desk import Desk
from parley.serving.gateway.desk.desk_api import desk_api
from parley.serving.gateway.health import entrances, health_router
from parley.serving.gateway.http.middleware import (
    BodyLimit,
    Failures,
    KnownHosts,
    LongerBodies,
    PageHeaders,
    known_hosts,
)
from parley.serving.gateway.http.requests import BodyError
from parley.serving.gateway.limits import RETRY_S, ShareError
from parley.serving.gateway.metrics_api import MetricsPage, metrics_api
from parley.serving.gateway.openai_http.audio import (
    TRANSCRIPTIONS_PATH,
    OpenAiAudio,
    SpeakText,
    TranscribeRecording,
)
from parley.serving.gateway.openai_http.chat import SESSION_HEADER, TOKEN_HEADER, ChatCompletions
from parley.serving.gateway.openai_http.errors import OPENAI_PATHS, add_openai_errors
from parley.serving.gateway.openai_http.models import model_names, models_router
from parley.serving.gateway.pages import serve_page
from parley.serving.gateway.people_api import PATH as PEOPLE_PATH
from parley.serving.gateway.people_api import people_api
from parley.serving.gateway.person_erasure import PersonEraser
from parley.serving.gateway.phone.call_code_api import caller_api
from parley.serving.gateway.phone.call_links import CallLinks
from parley.serving.gateway.phone.call_manager import CallManager
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.phone.routes import PhoneRoutes
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.privacy_api import privacy_api
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.gateway.reference_voices.decoder import VoiceError
from parley.serving.gateway.replays.jobs import ReplayJobs
from parley.serving.gateway.replays.routes import ReplayAccess
from parley.serving.gateway.session_api import (
    IMPORT_PATH,
    MESSAGES_PATH,
    PATH,
    UPLOAD_PATH,
    AnswerTyped,
    SessionRoutes,
    on_store_error,
    typed_turn_limit,
)
from parley.serving.gateway.session_erasure import SessionEraser
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerSettings, ServerTuning
from parley.serving.gateway.share_routes import PAGE_PATH, SHARED_PATH
from parley.serving.gateway.sockets.chat_sockets import CHAT_PATH, ChatSockets
from parley.serving.gateway.sockets.eval_socket import EvalSocket
from parley.serving.gateway.sockets.realtime_sockets import RealtimeSockets
from parley.serving.gateway.sockets.unmute_routes import unmute_router
from parley.serving.gateway.vault_api import vault_api
from parley.serving.gateway.webrtc.browser_calls import BrowserCalls
from parley.serving.gateway.webrtc.held_calls import HeldRealtimeCalls
from parley.serving.gateway.webrtc.realtime_calls import APP as REALTIME_APP
from parley.serving.gateway.webrtc.realtime_calls import CLIENT_HEADERS, RealtimeCalls
from parley.serving.gateway.webrtc.routes import (
    Door,
    OnConnection,
    WebRtcRoutes,
)
from parley.serving.scheduler.admission import Admitted
from parley.serving.scheduler.call_queue import CallQueue
from parley.session_store.conversations import Conversations
from parley.session_store.used_tokens import UsedTokens
from parley.telemetry.metrics import ServerMetrics


def create_app(
    settings: ServerSettings,
    *,
    run_call: RunCall,
    describe: Callable[[], dict[str, object]],
    open_door: Callable[[OnConnection], Door],
    conversations: Conversations | None = None,
    type_turn: AnswerTyped | None = None,
    speak: SpeakText | None = None,
    transcribe: TranscribeRecording | None = None,
    language: str = "",
    annotations: AnnotationEntries | None = None,
    recordings: SessionRecordings | None = None,
    replays: ReplayJobs | None = None,
    modes: Sequence[str] = (),
    default_mode: str = "",
    served: Callable[[Iterable[str]], Sequence[str]] | None = None,
    operations: Operations | None = None,
    phone: PhoneRoutesSettings | None = None,
    desk: CallManager | None = None,
    human_desk: Desk | None = None,
    book: CallerDirectory | None = None,
    call_links: CallLinks | None = None,
    operator_token: str = "",
    usage: UsageLimits | None = None,
    audit: AuditLog | None = None,
    auth_failures: AuthFailures | None = None,
    readiness: Callable[[], Sequence[str]] | None = None,
    shutdown: Shutdown | None = None,
    admitted: Callable[[bool], Admitted] | None = None,
    uses_recogniser: Callable[[object], bool] | None = None,
    offers: CallOffers | None = None,
    metrics: ServerMetrics | None = None,
    send_traces: Callable[[], None] | None = None,
) -> FastAPI:
    """Return the application of one gateway process.

    Args:
        settings: bounds.
        run_call: runs one conversation to its end.
        describe: returns facts for ``/status`` (engines, versions).
        open_door: builds the WebRTC signalling around a callback (``transports.webrtc.signaling.Signaling``).
        conversations: of this process; without them there is no sessions API.
        type_turn: answers typed turns of the sessions API, and chat completions.
        speak: speaks texts for OpenAI's clients; without it and ``transcribe`` there are no such routes.
        transcribe: transcribes recordings for them.
        language: ISO code of the language that callers speak.
        annotations: live calls that outside specialists report about; without them there are no such routes.
        recordings: recordings of calls, played and removed with their session; None for none.
        replays: of recorded calls, which end with the application; None for none.
        modes: that a call may request (``mode`` of its body); without any there are no such sockets.
        default_mode: of a socket whose client requests none; the first one if empty.
        served: returns the names of the transports that an application with some paths serves, for
            ``/status``; None: none is named.
        operations: interface of the operators; without it there is no pool, and every app is open.
        phone: settings of phone calls; None: there are none.
        desk: controls phone calls.
        human_desk: desk at which humans take sessions over; None: there is none.
        book: links phone callers to sessions; without it no session continues by phone.
        call_links: sessions of phone calls that may lose their stream; None: such a call ends with it.
        operator_token: used where the environment has none.
        usage: model requests and sessions of each client, shared with the code that makes requests in calls.
        audit: records wrong tokens, deletions and actions of operators.
        auth_failures: counts wrong credentials; None: one of its own.
        readiness: returns reasons of the engines for which this process should get no new calls.
        shutdown: watched by conversations, which end after a goodbye.
        admitted: returns how many calls the machine can answer now (``CallTasks.admitted``); None:
            ``max_calls``.
        uses_recogniser: returns whether a call of a mode uses the recogniser; None: every call does.
        offers: from which callers choose; None: they choose nothing.
        metrics: of the process, filled by its calls; None: ones of its own.
        send_traces: sends the traces of the calls that have ended, in a thread; None: there are none.
    """
    settings = tuned(ServerTuning, settings)
    operations = operations or Operations()
    audit = audit or AuditLog()
    auth_failures = auth_failures or AuthFailures(clients=COUNTED_CLIENTS)
    keys = ClientKeys(settings)
    operators = AdminAuth(
        settings, token=operator_token, auth_failures=auth_failures, is_client=keys.is_credential, audit=audit
    )
    access = Access(
        settings,
        tokens=None if conversations is None else UsedTokens(conversations.store),
        operators=operators,
        keys=keys,
        auth_failures=auth_failures,
        audit=audit,
    )
    usage = usage or UsageLimits(settings)
    calls = CallTasks(
        run_call,
        max_calls=settings.max_calls,
        drain_s=settings.drain_s,
        hang_up_s=settings.hang_up_s,
        shares=CallShares(settings),
        shutdown=shutdown,
        goodbye_s=settings.goodbye_s,
        queue=None if settings.queue is None else CallQueue(settings.queue, _loop_s),
        tenants=usage.tenants,
    )
    if admitted is not None:
        calls.admitted = admitted
    if uses_recogniser is not None:
        calls.uses_recogniser = uses_recogniser

    default_mode = default_mode or next(iter(modes), "")
    chooser = CallChooser(
        offers, operations.presets, operations.voices, modes=modes, default_mode=default_mode
    )

    bodies = CallBodies(
        modes,
        conversations=conversations,
        usage=usage,
        access=access,
        chooser=chooser,
        apps=operations.apps,
        human_desk=human_desk,
    )

    eraser = None if conversations is None else SessionEraser(conversations, audit, recordings, replays)
    door = BrowserCalls(open_door, calls, bodies).door

    async def drain() -> None:
        await calls.close(door.close)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if human_desk is not None:
            human_desk.start()
        if conversations is not None:
            usage.start(conversations.store, keys.tenants)
        if replays is not None:
            await replays.open()
        yield
        if replays is not None:
            # Calls that say goodbye have the machine.
            await replays.close()
        await drain()
        if eraser is not None:
            await eraser.close()
        await usage.close()
        page.close()
        if human_desk is not None:
            await human_desk.close()
        await asyncio.to_thread(audit.close)
        if send_traces is not None:
            # Here and not after the server: a signal ends the process when the application has ended.
            await asyncio.to_thread(send_traces)

    app = FastAPI(title="Parley", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    # For the server: ``drain`` ends the calls before it closes their transports, and ``tenant_of`` lets it
    # keep connections for clients with a credential.
    state = {"calls": calls, "door": door, "drain": drain, "tenant_of": access.tenant_of}
    app.state = State(state)
    # Twilio uses this name, through a tunnel or a proxy.
    public_url = phone.public_url if phone is not None else None
    add_middleware(app, settings, called=[str(urlsplit(public_url).hostname)] if public_url else [])
    add_error_answers(app)
    add_openai_errors(app)
    app.include_router(access.router())
    app.include_router(
        health_router(
            calls,
            max_calls=settings.max_calls,
            describe=describe,
            served=partial(entrances, app, served or (lambda _paths: ())),
            pool=operations.pool,
            store=None if conversations is None else conversations.store,
            readiness=readiness,
        )
    )
    store = None if conversations is None else conversations.store
    page = MetricsPage(metrics or ServerMetrics(), calls, operations.pool, store, usage.tenants, recordings)
    app.include_router(metrics_api(page, operators))
    app.include_router(tenants_api(usage.tenants, operators))
    app.include_router(
        operations.router(operators, settings, calls, audit, store=store, recordings=recordings)
    )
    app.include_router(chooser.router(access, speaks=bool(modes) and speak is not None))
    routes = WebRtcRoutes(
        settings, door=door, calls=calls, check_body=bodies.check_browser, usage=usage, access=access
    )
    app.include_router(routes.router())
    gateway = _Gateway(settings, calls, bodies, usage, access, operators, audit, chooser, door)
    models = model_names(modes)
    sockets, held = _sockets_of(gateway, operations, default_mode)
    if modes:
        for router in _socket_routes(gateway, sockets, held, default_mode):
            app.include_router(router)
        app.include_router(unmute_router(describe, chooser, default_mode))
        app.include_router(models_router(models))
    if modes and speak is not None and transcribe is not None:
        audio = OpenAiAudio(
            models, speak, transcribe, language, calls, settings, usage, access, chooser.voices
        )
        app.include_router(audio.router())
    if phone is not None:
        app.include_router(
            PhoneRoutes(
                phone,
                settings,
                calls=calls,
                check_body=bodies.check,
                default_mode=default_mode,
                desk=desk,
                check=operators.check,
                audit=audit,
                links=call_links,
                check_tenant=partial(usage.tenants.check_call, ANONYMOUS),
                clock_s=_loop_s,
            ).router()
        )
    if settings.eval_socket:
        app.include_router(_eval_socket(gateway, sockets))
    if conversations is not None and eraser is not None and type_turn is not None:
        turns = typed_turn_limit(settings)
        app.include_router(
            SessionRoutes(
                *(conversations, type_turn, settings, usage, access, operators, audit, turns, eraser),
                recordings=recordings,
                replays=None if replays is None else ReplayAccess(replays, calls.has_room),
            ).router()
        )
        people = PersonEraser(conversations.store, eraser, keys, book)
        app.include_router(people_api(people, operators, audit, settings))
        if modes:
            completions = ChatCompletions(models, conversations, type_turn, settings, usage, access, turns)
            eraser.add_memory(completions)
            app.include_router(completions.router())
        for router in _session_routes(gateway, conversations, human_desk, annotations, book):
            app.include_router(router)
    serve_page(app, access)
    serve_description(app)
    check_declared(app)
    return app


def _loop_s() -> float:
    return asyncio.get_running_loop().time()


def add_middleware(app: FastAPI, settings: ServerTuning, *, called: Sequence[str] = ()) -> None:
    """Add the middleware; the one added last sees a request first.

    Args:
        app: of the gateway.
        settings: of the server.
        called: names of the server, in addition to those of the settings.
    """
    app.add_middleware(
        BodyLimit,
        max_bytes=settings.max_body_bytes,
        within_s=settings.body_s,
        streamed=(IMPORT_PATH, TRANSCRIPTIONS_PATH, *STREAMED_PATHS),
        streamed_below=UPLOAD_PATH,
        longer=LongerBodies(
            MESSAGES_PATH,
            max_bytes=settings.max_picture_body_bytes,
            at_once=settings.max_picture_bodies,
            trusted_proxies=settings.trusted_proxies,
        ),
    )
    names = known_hosts(settings)
    if names is not None:
        app.add_middleware(KnownHosts, names=names | {name.lower() for name in called})
    app.add_middleware(Failures)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST", "PUT", "PATCH", "DELETE"],
            allow_headers=[
                *("authorization", "content-type", "idempotency-key", SESSION_HEADER),
                *CLIENT_HEADERS,
            ],
            expose_headers=["retry-after", "location", SESSION_HEADER, TOKEN_HEADER],
        )
    shared = (PAGE_PATH, SHARED_PATH)
    private = (PATH, PEOPLE_PATH, CHAT_PATH, *shared, *PRIVATE_PATHS, *OPENAI_PATHS)
    app.add_middleware(PageHeaders, private=private, unlisted=shared)


def add_error_answers(app: FastAPI) -> None:
    """Add the answers to errors that routes raise: a status and ``{"error": "why"}``."""

    @app.exception_handler(HTTPException)
    async def on_http_error(_request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse(
            {"error": str(error.detail)}, status_code=error.status_code, headers=error.headers
        )

    @app.exception_handler(PeerError)
    @app.exception_handler(MediaError)
    async def on_peer_error(_request: Request, error: PeerError | MediaError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    @app.exception_handler(AppDisabledError)
    async def on_app_disabled(_request: Request, error: AppDisabledError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=403)

    @app.exception_handler(VoiceError)
    @app.exception_handler(BodyError)
    async def on_body_error(_request: Request, error: BodyError | VoiceError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=error.status)

    @app.exception_handler(CapacityError)
    async def on_capacity_error(_request: Request, error: CapacityError) -> JSONResponse:
        return JSONResponse(
            {"error": str(error)}, status_code=503, headers={"Retry-After": str(math.ceil(RETRY_S))}
        )

    @app.exception_handler(OversizedError)
    async def on_oversized_error(_request: Request, error: OversizedError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=413)

    @app.exception_handler(ShareError)
    async def on_share_error(_request: Request, error: ShareError) -> JSONResponse:
        headers = None if error.retry_s is None else {"Retry-After": str(math.ceil(error.retry_s))}
        return JSONResponse({"error": str(error)}, status_code=error.status, headers=headers)

    app.add_exception_handler(StoreError, on_store_error)

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ValidationError)
    async def on_validation_error(
        request: Request, error: ValidationError | RequestValidationError
    ) -> JSONResponse:
        faults = error.errors()[:5]
        body = error.body if isinstance(error, RequestValidationError) else None
        if isinstance(body, bytes) and any(fault["loc"] == ("body",) for fault in faults):
            # FastAPI leaves a body of another type as it is, and reports that bytes are no object.
            given = request.headers.get("content-type", "")[:100] or "none"
            return JSONResponse(
                {"error": f"body: expected JSON with the header Content-Type: application/json, not {given}"},
                status_code=422,
            )
        # Without the input: it may not be encodable, and it is private to the client.
        texts = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in faults]
        return JSONResponse({"error": "; ".join(texts)}, status_code=422)


@dataclass(frozen=True, slots=True)
class _Gateway:
    """Parts that the routes of a gateway share."""

    settings: ServerTuning
    calls: CallTasks
    bodies: CallBodies
    usage: UsageLimits
    access: Access
    operators: AdminAuth
    audit: AuditLog
    chooser: CallChooser
    door: Door


def _sockets_of(
    gateway: _Gateway, operations: Operations, default_mode: str
) -> tuple[RealtimeSockets, HeldRealtimeCalls]:
    """Return the sockets of clients with a protocol of their own, and their calls over WebRTC."""
    held = HeldRealtimeCalls()
    sockets = RealtimeSockets(
        gateway.settings,
        calls=gateway.calls,
        check_body=gateway.bodies.check_chosen,
        usage=gateway.usage,
        access=gateway.access,
        apps=operations.apps,
        held=held,
        default_mode=default_mode,
        chooser=gateway.chooser,
    )
    return sockets, held


def _socket_routes(
    gateway: _Gateway, sockets: RealtimeSockets, held: HeldRealtimeCalls, default_mode: str
) -> Iterator[APIRouter]:
    """Yield the routes of clients with a protocol of their own."""
    yield sockets.router()
    yield RealtimeCalls(
        gateway.settings,
        door=gateway.door,
        calls=gateway.calls,
        access=gateway.access,
        admitted=partial(sockets.admitted, app=REALTIME_APP),
        held=held,
        default_mode=default_mode,
        chooser=gateway.chooser,
    ).router()
    yield ChatSockets(
        gateway.settings,
        calls=gateway.calls,
        # Recordings are transcribed at once, and not in real time.
        admitted=partial(sockets.admitted, app="turnbased", uses_recogniser=False),
    ).router()


def _eval_socket(gateway: _Gateway, sockets: RealtimeSockets) -> APIRouter:
    """Return the route of Pipecat's own socket."""
    calls = gateway.calls
    return EvalSocket(
        gateway.settings,
        calls=calls,
        admitted=lambda websocket, body: sockets.admitted(
            websocket, body, app="browser", uses_recogniser=calls.uses_recogniser(None), may_wait=True
        ),
        choose=gateway.chooser.choose,
        is_counted=gateway.bodies.is_counted,
    ).router()


def _session_routes(
    gateway: _Gateway,
    conversations: Conversations,
    human_desk: Desk | None,
    annotations: AnnotationEntries | None,
    book: CallerDirectory | None,
) -> Iterator[APIRouter]:
    """Yield the routes about sessions other than their own (``session_api``)."""
    yield desk_api(human_desk, conversations, gateway.operators)
    yield privacy_api(conversations, gateway.operators, gateway.audit)
    yield vault_api(conversations, gateway.access, gateway.audit)
    if annotations is not None:
        yield annotations_api(annotations, conversations, gateway.settings, gateway.access)
    if book is not None:
        yield caller_api(book, conversations, gateway.settings, gateway.access, gateway.operators)
