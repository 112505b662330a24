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
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import NoneType
from urllib.parse import urlsplit

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
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
    StoreUnavailableError,
)
from parley.core.grants import ANONYMOUS, ClientIdentity
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
from parley.serving.gateway.call_choices import CallChooser, CallOffers
from parley.serving.gateway.calls import CallTasks, RunCall
from parley.serving.gateway.desk.desk import DESK_CALL, Desk, DeskError
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
    on_store_error,
    session_api,
    typed_turn_limit,
)
from parley.serving.gateway.settings import COUNTED_CLIENTS, ServerSettings, ServerTuning
from parley.serving.gateway.share_routes import PAGE_PATH, SHARED_PATH
from parley.serving.gateway.sockets.chat_sockets import CHAT_PATH, ChatSockets
from parley.serving.gateway.sockets.eval_socket import EvalSocket
from parley.serving.gateway.sockets.realtime_sockets import RealtimeSockets
from parley.serving.gateway.sockets.unmute_routes import unmute_router
from parley.serving.gateway.vault_api import vault_api
from parley.serving.gateway.webrtc.first_media import FirstWord
from parley.serving.gateway.webrtc.held_calls import HeldRealtimeCalls
from parley.serving.gateway.webrtc.realtime_calls import APP as REALTIME_APP
from parley.serving.gateway.webrtc.realtime_calls import CLIENT_HEADERS, RealtimeCalls
from parley.serving.gateway.webrtc.routes import (
    OFFERING,
    TRANSPORT,
    BrowserArguments,
    Door,
    OnConnection,
    WebRtcRoutes,
)
from parley.serving.scheduler.admission import Admitted
from parley.serving.scheduler.call_queue import CallQueue
from parley.session_store.conversations import Conversations
from parley.session_store.lost_calls import lost_call
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

    async def check_browser(body: Mapping[str, object], identity: ClientIdentity) -> None:
        operations.apps.check("browser")
        if body.get("mode") == DESK_CALL:
            check_desk_call(body, identity)
            return
        await check_chosen(body, identity)

    async def check_chosen(body: Mapping[str, object], identity: ClientIdentity) -> None:
        await check_call(body, identity)
        await chooser.choose(body, identity)

    def check_desk_call(body: Mapping[str, object], identity: ClientIdentity) -> None:
        if human_desk is None or not identity.is_operator:
            raise PeerError("mode: a call of the desk is for the operator of a server that has a desk")
        try:
            human_desk.check_speaker(str(body.get("session")), str(body.get("desk")))
        except DeskError as error:
            raise PeerError(str(error)) from error

    async def check_call(body: Mapping[str, object], identity: ClientIdentity) -> None:
        await check_body(body, identity)
        if body.get("session") is None:
            usage.tenants.check_session(identity)
        await usage.tenants.check_call(identity, is_counted=await is_counted(body))

    async def is_counted(body: Mapping[str, object]) -> bool:
        """Return whether a client goes on with a call that it has lost, and that is counted already."""
        if not body.get("reconnect") or conversations is None or not usage.tenants.names():
            return False
        session_id, now_us = str(body.get("session")), time.time_ns() // 1_000
        return await lost_call(conversations.store, session_id, now_us=now_us) is not None

    async def check_body(body: Mapping[str, object], identity: ClientIdentity) -> None:
        if not isinstance(body.get("echo_cancellation"), (bool, NoneType)):
            raise PeerError("echo_cancellation: expected true, false or nothing")
        if not isinstance(body.get("reconnect"), (bool, NoneType)):
            raise PeerError("reconnect: expected true, false or nothing")
        if body.get("reconnect") and body.get("session") is None:
            raise PeerError("reconnect: expected with the session that goes on")
        if not isinstance(body.get("held"), (bool, NoneType)):
            raise PeerError("held: expected true, false or nothing")
        if body.get("held") and not body.get("reconnect"):
            raise PeerError("held: expected with the reconnection of a call that was on hold")
        if body.get("mode") is not None and body["mode"] not in modes:
            raise PeerError(f"mode: expected {' or '.join(modes) or 'none is offered here'}, or nothing")
        if conversations is not None and not conversations.store.available:
            # Otherwise a call would be picked up and stay silent until its session can be claimed.
            raise StoreUnavailableError("the session store is unavailable, try again in a moment")
        session_id = body.get("session")
        if session_id is None:
            access.check_new_session(identity)
            return
        if conversations is None or not isinstance(session_id, str):
            raise PeerError("session: not a session id")
        info = await conversations.store.info(session_id)
        access.check_use(identity, session_id, info.owner)

    async def on_connection(connection: SmallWebRTCConnection, body: dict[str, object]) -> None:
        offering = OFFERING.get(None)
        if offering is None:
            raise PeerError("the call has ended")
        if offering.begin is not None:
            await offering.begin(connection, body)
            return
        identity = offering.identity
        await check_browser(body, identity)
        choices = await chooser.choose(body, identity)
        uses_recogniser = calls.uses_recogniser(body.get("mode"))

        def speak() -> None:
            if arguments.line is not None:
                arguments.line.spoke()
                # Another call may have its place.
                calls.wake()

        first_word = FirstWord(speak)
        arguments = BrowserArguments(
            webrtc_connection=connection,
            body=body,
            identity=identity,
            on_first_word=first_word.came,
            choices=choices,
        )
        call = calls.start(
            arguments,
            call_id=connection.pc_id,
            hang_up=lambda: door.hang_up(connection),
            identity=identity,
            uses_recogniser=uses_recogniser,
            may_wait=True,
            transport=TRANSPORT,
            counts_silence=True,
            is_counted=await is_counted(body),
        )
        call.add_done_callback(lambda _call: first_word.close())
        if arguments.line is not None:
            # In the queue nothing of the browser is read, and it holds no line.
            arguments.line.when_granted(partial(first_word.watch, call))

    door = open_door(on_connection)

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
        settings, door=door, calls=calls, check_body=check_browser, usage=usage, access=access
    )
    app.include_router(routes.router())
    held = HeldRealtimeCalls()
    sockets = RealtimeSockets(
        settings,
        calls=calls,
        check_body=check_chosen,
        usage=usage,
        access=access,
        apps=operations.apps,
        held=held,
        default_mode=default_mode,
        chooser=chooser,
    )
    models = model_names(modes)
    if modes:
        app.include_router(sockets.router())
        app.include_router(
            RealtimeCalls(
                settings,
                door=door,
                calls=calls,
                access=access,
                admitted=partial(sockets.admitted, app=REALTIME_APP),
                held=held,
                default_mode=default_mode,
                chooser=chooser,
            ).router()
        )
        app.include_router(unmute_router(describe, chooser, default_mode))
        app.include_router(models_router(models))
        app.include_router(
            ChatSockets(
                settings,
                calls=calls,
                # Recordings are transcribed at once, and not in real time.
                admitted=partial(sockets.admitted, app="turnbased", uses_recogniser=False),
            ).router()
        )
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
                check_body=check_body,
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
        app.include_router(
            EvalSocket(
                settings,
                calls=calls,
                admitted=lambda websocket, body: sockets.admitted(
                    websocket, body, app="browser", uses_recogniser=calls.uses_recogniser(None), may_wait=True
                ),
                choose=chooser.choose,
                is_counted=is_counted,
            ).router()
        )
    if conversations is not None and type_turn is not None:
        turns = typed_turn_limit(settings)
        app.include_router(
            session_api(
                conversations,
                type_turn,
                settings,
                usage,
                access,
                operators,
                audit,
                turns,
                recordings=recordings,
                replays=None if replays is None else ReplayAccess(replays, calls.has_room),
            )
        )
        if modes:
            completions = ChatCompletions(models, conversations, type_turn, settings, usage, access, turns)
            app.include_router(completions.router())
        app.include_router(desk_api(human_desk, conversations, operators))
        app.include_router(privacy_api(conversations, operators, audit))
        app.include_router(vault_api(conversations, access, audit))
        if annotations is not None:
            app.include_router(annotations_api(annotations, conversations, settings, access))
        if book is not None:
            app.include_router(caller_api(book, conversations, settings, access, operators))
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
    app.add_middleware(
        PageHeaders, private=(PATH, CHAT_PATH, *shared, *PRIVATE_PATHS, *OPENAI_PATHS), unlisted=shared
    )


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
