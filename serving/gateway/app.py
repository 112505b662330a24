"""HTTP routes: the page, WebRTC signalling, the evaluation socket, health.

In: requests of browsers and Pipecat clients, by a name that is this server's (a page that made its own name
point here is refused). Out: one conversation per accepted call, run by ``run_call`` in a task that the app
owns. However a conversation ends, its peer is hung up; a failure is logged once and ends that call only.
Bodies are bounded in size and in time before they are parsed; whatever is malformed is a 4xx that says why
and disturbs nobody else. The number of conversations is capped: the one too many gets 503. A socket on
``/ws`` takes no line before it has said what it is. A server that stops refuses new calls, lets running ones
go on for ``drain_s``, then hangs all of them up at once and cancels what does not end.
"""

import asyncio
import gc
import ipaddress
import json
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from loguru import logger
from pipecat.runner.types import RunnerArguments, SmallWebRTCRunnerArguments, WebSocketRunnerArguments
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pydantic import ValidationError
from starlette.middleware.cors import CORSMiddleware
from starlette.websockets import WebSocketDisconnect, WebSocketState

from core.errors import CapacityError, ConfigError, PeerError
from serving.gateway.sessions import StartedSession, StartedSessions
from serving.gateway.settings import ServerSettings

RunCall = Callable[[RunnerArguments], Awaitable[None]]
OnConnection = Callable[[SmallWebRTCConnection, dict[str, object]], Awaitable[None]]
# Started sessions that wait for their offer; with the default start_body_bytes they hold some 4 MB.
MAX_STARTED_SESSIONS = 1_000
# WebSocket close codes (RFC 6455, 7.4.1, and the IANA registry).
POLICY_VIOLATION, TRY_AGAIN_LATER = 1008, 1013
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
# A Host header: a name or an address, IPv6 in brackets, and perhaps a port.
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:@/\s]+)(?::\d+)?")
# The page works without the internet and stays so: a browser refuses whatever is not served here.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; connect-src 'self'; media-src 'self' blob:; style-src 'self'; script-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Door(Protocol):
    """What the app needs of the WebRTC signalling (``transports.webrtc.signaling.Signaling``)."""

    def is_open(self, pc_id: str) -> bool: ...
    async def offer_json(self, body: dict[str, object]) -> dict[str, str]: ...
    async def candidates_json(self, body: dict[str, object]) -> None: ...
    async def hang_up(self, connection: SmallWebRTCConnection) -> None: ...
    async def close(self) -> None: ...


class CallTasks:
    """The conversations of this process, each a named task.

    Args:
        run_call: runs one conversation to its end.
        max_calls: conversations at a time.
        drain_s: how long running conversations may go on when the server stops.
        hang_up_s: how long one may take to end after its peer was hung up.
    """

    def __init__(self, run_call: RunCall, *, max_calls: int, drain_s: float, hang_up_s: float) -> None:
        self._run_call = run_call
        self._max_calls = max_calls
        self._drain_s = drain_s
        self._hang_up_s = hang_up_s
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._stopping = False

    @property
    def active(self) -> int:
        """Conversations that are running."""
        return len(self._tasks)

    def get(self, call_id: str) -> asyncio.Task[None] | None:
        """The running conversation that was started under this id."""
        return self._tasks.get(call_id)

    def check_room(self) -> None:
        """Raises CapacityError when no further conversation may start."""
        if self._stopping:
            raise CapacityError("the server is stopping, try another or later", limit=0)
        if self.active >= self._max_calls:
            raise CapacityError(
                f"every line is taken ({self._max_calls} in all), try again later", limit=self._max_calls
            )

    def start(
        self, arguments: RunnerArguments, *, call_id: str, hang_up: Callable[[], Awaitable[None]]
    ) -> asyncio.Task[None]:
        """Run a conversation in its own task.

        Args:
            arguments: for ``run_call``.
            call_id: names the task; not one of a running conversation.
            hang_up: called however the conversation ends; must have a deadline and not raise.

        Raises:
            CapacityError: every line is taken, or the server is stopping.
        """
        self.check_room()
        task = asyncio.create_task(self._run(arguments, hang_up), name=f"call.{call_id}")
        self._tasks[call_id] = task
        task.add_done_callback(lambda _task: self._ended(call_id))
        return task

    def _ended(self, call_id: str) -> None:
        del self._tasks[call_id]
        if not self._tasks:
            # A call leaves cycles that hold codecs with their threads. Nobody is listening now: a pause is
            # free.
            gc.collect()

    async def _run(self, arguments: RunnerArguments, hang_up: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._run_call(arguments)
        except Exception:
            # The edge of one conversation: it ends, the others go on.
            logger.exception("conversation failed")
        finally:
            # A peer whose conversation is over would stay connected in silence and hold its line.
            await hang_up()

    async def close(self, hang_up_all: Callable[[], Awaitable[None]]) -> None:
        """Refuse new conversations, give running ones ``drain_s`` to end, hang up the rest, then cancel.

        Args:
            hang_up_all: hangs up every peer; must have a deadline and not raise.
        """
        self._stopping = True
        await self._wait(self._drain_s)
        await hang_up_all()
        await self._wait(self._hang_up_s)
        for task in self._tasks.values():
            task.cancel()
        await self._wait(self._hang_up_s)

    async def _wait(self, timeout_s: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks.values(), timeout=timeout_s)


class BodyLimit:
    """ASGI middleware: refuses bodies over a size with 413, and those that take too long to arrive with 408,
    before anything parses them.
    """

    def __init__(self, app: Any, *, max_bytes: int, within_s: float) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._within_s = within_s

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 12 or int(declared) > self._max_bytes:
            await self._refuse(413, f"body over {self._max_bytes} bytes", scope, receive, send)
            return
        try:
            async with asyncio.timeout(self._within_s):
                body = await self._read(receive)
        except TimeoutError:
            await self._refuse(
                408, f"the body did not arrive within {self._within_s} s", scope, receive, send
            )
            return
        if body is None:
            return
        if len(body) > self._max_bytes:
            await self._refuse(413, f"body over {self._max_bytes} bytes", scope, receive, send)
            return
        sent = False

        async def replay() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _read(self, receive: Any) -> bytes | None:
        """The body, or its beginning once it is too long; None when the client went away.

        A chunked body declares no length: it is taken in here, up to the limit.
        """
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False) or len(body) > self._max_bytes:
                return bytes(body)

    async def _refuse(self, status: int, why: str, scope: Any, receive: Any, send: Any) -> None:
        # What is left of the body is not read: it would be taken for the next request.
        response = JSONResponse({"error": why}, status_code=status, headers={"Connection": "close"})
        await response(scope, receive, send)


class KnownHosts:
    """ASGI middleware: refuses requests that call this server by a name that is not its own.

    A name of somebody else's may be made to point at this machine (DNS rebinding). To the browser their page
    is then of this origin: it may read every answer and open calls, and only the Host header tells.
    """

    def __init__(self, app: Any, *, names: frozenset[str]) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        host = dict(scope["headers"]).get(b"host", b"").decode("latin-1").lower()
        match = HOST.fullmatch(host)
        if match and match.group(1) in self._names:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            # Before the handshake is accepted: the client gets 403.
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            why = f"this server is not called {host[:100]!r}: see allowed_hosts in the server settings"
            response = JSONResponse({"error": why}, status_code=403, headers={"Connection": "close"})
            await response(scope, receive, send)


def known_hosts(settings: ServerSettings) -> frozenset[str] | None:
    """Names this server may be called by, in lower case; None for any."""
    try:
        local = settings.host == "localhost" or ipaddress.ip_address(settings.host).is_loopback
    except ValueError:
        local = False
    if not local and not settings.allowed_hosts:
        return None
    return LOOPBACK_NAMES | {name.lower() for name in settings.allowed_hosts}


class PageHeaders:
    """ASGI middleware: answers tell browsers to load nothing that this server does not serve."""

    _HEADERS = (
        (b"content-security-policy", CONTENT_SECURITY_POLICY.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"no-referrer"),
        # A page must not meet scripts of the release before it; unchanged files still answer 304.
        (b"cache-control", b"no-cache"),
    )

    def __init__(self, app: Any) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *self._HEADERS]}
            await send(message)

        await self._app(scope, receive, send_with_headers)


def web_dir() -> Path:
    """Folder of the browser pages: ``web/`` of the checkout.

    Raises ConfigError when it is missing.
    """
    folder = Path(__file__).parents[2] / "web"
    if not (folder / "pages" / "index.html").is_file():
        raise ConfigError(f"the browser page is missing: no pages/index.html in {folder}")
    return folder


def create_app(
    settings: ServerSettings,
    *,
    run_call: RunCall,
    describe: Callable[[], dict[str, object]],
    open_door: Callable[[OnConnection], Door],
) -> FastAPI:
    """The application of one gateway process.

    Args:
        settings: bounds.
        run_call: runs one conversation to its end.
        describe: facts for ``/status`` (engines, versions).
        open_door: builds the WebRTC signalling around a callback (``transports.webrtc.signaling.Signaling``).
    """
    calls = CallTasks(
        run_call, max_calls=settings.max_calls, drain_s=settings.drain_s, hang_up_s=settings.hang_up_s
    )
    sessions = StartedSessions(max_sessions=MAX_STARTED_SESSIONS, expire_s=settings.start_expire_s)

    async def on_connection(connection: SmallWebRTCConnection, body: dict[str, object]) -> None:
        arguments = SmallWebRTCRunnerArguments(webrtc_connection=connection, body=body)
        calls.start(arguments, call_id=connection.pc_id, hang_up=lambda: door.hang_up(connection))

    door = open_door(on_connection)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await calls.close(door.close)

    app = FastAPI(title="Parley", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.calls = calls
    app.state.door = door
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes, within_s=settings.body_s)
    names = known_hosts(settings)
    if names is not None:
        app.add_middleware(KnownHosts, names=names)
    app.add_middleware(PageHeaders)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST", "PATCH"],
            allow_headers=["content-type"],
        )

    @app.exception_handler(PeerError)
    async def on_peer_error(_request: Request, error: PeerError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    @app.exception_handler(CapacityError)
    async def on_capacity_error(_request: Request, error: CapacityError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=503, headers={"Retry-After": "5"})

    @app.exception_handler(ValidationError)
    async def on_validation_error(_request: Request, error: ValidationError) -> JSONResponse:
        faults = [f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors()[:5]]
        return JSONResponse({"error": "; ".join(faults)}, status_code=422)

    def check_origin(origin: str | None, host: str | None) -> None:
        # No Origin header: not a browser page. A page of our own host (KnownHosts has looked at the name), or
        # of the list, may call.
        if not origin or origin in settings.allowed_origins:
            return
        try:
            netloc = urlsplit(origin).netloc
        except ValueError:
            netloc = ""
        if netloc and netloc == host:
            return
        raise HTTPException(403, f"origin {origin} is not allowed")

    async def read_json(request: Request) -> dict[str, Any]:
        check_origin(request.headers.get("origin"), request.headers.get("host"))
        try:
            body = json.loads(await request.body() or b"{}")
        except (ValueError, RecursionError) as error:
            # Not only JSONDecodeError: bytes that are not UTF-8, and numbers too long for Python.
            raise PeerError(f"the body is not JSON: {error}") from error
        if not isinstance(body, dict):
            raise PeerError("the body must be a JSON object")
        return body

    @app.get("/health")
    async def health() -> dict[str, object]:
        return {"status": "ok", "calls": calls.active, "max_calls": settings.max_calls}

    @app.get("/status")
    async def status() -> dict[str, object]:
        return {
            "status": "ready",
            "transports": ["webrtc"],
            "calls": calls.active,
            "tasks": len(asyncio.all_tasks()),
            **describe(),
        }

    @app.post("/start")
    async def start(request: Request) -> dict[str, object]:
        body = await read_json(request)
        transport = body.get("transport", "webrtc")
        if transport != "webrtc":
            raise PeerError(f"transport {str(transport)[:40]!r} is not served here (known: webrtc)")
        calls.check_room()
        given = body.get("body")
        # As text: parsed, a body of empty objects takes twenty times as much.
        text = json.dumps(given if isinstance(given, dict) else {}, ensure_ascii=False)
        kept = text.encode("utf-8", "surrogatepass")
        if len(kept) > settings.start_body_bytes:
            raise HTTPException(413, f"body: over {settings.start_body_bytes} bytes as JSON")
        session_id = sessions.open(kept, client=request.client.host if request.client else "")
        answer: dict[str, object] = {"sessionId": session_id}
        if settings.ice_servers:
            answer["iceConfig"] = {"iceServers": [{"urls": [url]} for url in settings.ice_servers]}
        return answer

    @app.post("/api/offer")
    async def offer(request: Request) -> dict[str, str]:
        return await door.offer_json(await read_json(request))

    @app.patch("/api/offer")
    async def candidates(request: Request) -> dict[str, str]:
        await door.candidates_json(await read_json(request))
        return {"status": "success"}

    def session_of(session_id: str) -> StartedSession:
        session = sessions.get(session_id)
        if session is None:
            raise HTTPException(404, "no such session: POST /start first")
        return session

    @app.post("/sessions/{session_id}/api/offer")
    async def session_offer(session_id: str, request: Request) -> dict[str, str]:
        body = await read_json(request)
        session = session_of(session_id)
        renegotiates = body.get("pc_id") == session.pc_id
        if session.opening or (door.is_open(session.pc_id) and not renegotiates):
            raise HTTPException(409, "this session is in a call: end it, or POST /start for another")
        body.setdefault("requestData", session.body())
        session.opening = True
        try:
            answer = await door.offer_json(body)
        finally:
            session.opening = False
        session.pc_id = answer["pc_id"]
        call = calls.get(session.pc_id)
        if call is not None and call is not session.call:
            sessions.called(session, call)
        return answer

    @app.patch("/sessions/{session_id}/api/offer")
    async def session_candidates(session_id: str, request: Request) -> dict[str, str]:
        body = await read_json(request)
        session_of(session_id)
        await door.candidates_json(body)
        return {"status": "success"}

    opening_sockets = 0

    async def open_socket(websocket: WebSocket) -> asyncio.Task[None]:
        """Start the conversation of an accepted socket once it has said what it is."""
        nonlocal opening_sockets
        if opening_sockets >= settings.max_calls:
            raise CapacityError("too many sockets are opening, try again later", limit=settings.max_calls)
        opening_sockets += 1
        try:
            async with asyncio.timeout(settings.socket_open_s):
                # Kept on the socket: ``run_call`` parses it again without reading again.
                kind, _ = await parse_telephony_websocket(websocket)
        except TimeoutError as error:
            raise PeerError(f"no eval-connect within {settings.socket_open_s} s") from error
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            raise PeerError("the first message is not an eval-connect") from error
        finally:
            opening_sockets -= 1
        if kind != "eval":
            raise PeerError("only eval-connect is served on this socket")
        return calls.start(
            WebSocketRunnerArguments(websocket=websocket),
            call_id=f"socket.{secrets.token_hex(4)}",
            hang_up=lambda: close_socket(websocket, within_s=settings.hang_up_s),
        )

    async def socket(websocket: WebSocket) -> None:
        """The evaluation tool of Pipecat (``pipecat eval run``) connects here, and nothing else can."""
        try:
            check_origin(websocket.headers.get("origin"), websocket.headers.get("host"))
            calls.check_room()
            await websocket.accept()
            task = await open_socket(websocket)
        except (HTTPException, PeerError) as error:
            reason = error.detail if isinstance(error, HTTPException) else str(error)
            await close_socket(websocket, POLICY_VIOLATION, reason, within_s=settings.hang_up_s)
        except CapacityError as error:
            await close_socket(websocket, TRY_AGAIN_LATER, str(error), within_s=settings.hang_up_s)
        else:
            await asyncio.wait({task})

    if settings.eval_socket:
        app.add_api_websocket_route("/ws", socket)

    web = web_dir()

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(web / "pages" / "index.html")

    app.mount("/shared", StaticFiles(directory=web / "shared"), name="shared")
    return app


async def close_socket(websocket: WebSocket, code: int = 1000, reason: str = "", *, within_s: float) -> None:
    """Close a socket, accepted or not, that may be closed already."""
    if WebSocketState.DISCONNECTED in (websocket.application_state, websocket.client_state):
        return
    try:
        async with asyncio.timeout(within_s):
            # A close frame has room for 123 bytes of UTF-8.
            await websocket.close(code, reason[:100])
    except (TimeoutError, RuntimeError, WebSocketDisconnect) as error:
        logger.debug(f"the socket was gone: {error!r}")
