"""HTTP routes: the page, WebRTC signalling, the evaluation socket, health.

In: requests of browsers and Pipecat clients. Out: one conversation per accepted call, run by ``run_call`` in
a task that the app owns: it ends with the call, is cancelled after ``drain_s`` when the server stops, and its
failure is logged once and ends that call only. Bodies are bounded before they are parsed; whatever is
malformed is a 4xx that says why and disturbs nobody else. The number of conversations is capped: the one too
many gets 503.
"""

import asyncio
import gc
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import FileResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from loguru import logger
from pipecat.runner.types import RunnerArguments, SmallWebRTCRunnerArguments, WebSocketRunnerArguments
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pydantic import ValidationError
from starlette.middleware.cors import CORSMiddleware

from core.errors import CapacityError, ConfigError, PeerError
from serving.gateway.settings import ServerSettings

RunCall = Callable[[RunnerArguments], Awaitable[None]]
# Started sessions whose offer never came are forgotten oldest first.
MAX_STARTED_SESSIONS = 1_000
# The page works without the internet and stays so: a browser refuses whatever is not served here.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; connect-src 'self'; media-src 'self' blob:; style-src 'self'; script-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class CallTasks:
    """The conversations of this process, each a named task."""

    def __init__(self, run_call: RunCall, *, max_calls: int, drain_s: float) -> None:
        self._run_call = run_call
        self._max_calls = max_calls
        self._drain_s = drain_s
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def active(self) -> int:
        """Conversations that are running."""
        return len(self._tasks)

    def check_room(self) -> None:
        """Raises CapacityError when no further conversation may start."""
        if self.active >= self._max_calls:
            raise CapacityError(
                f"every line is taken ({self._max_calls} in all), try again later", limit=self._max_calls
            )

    def start(self, arguments: RunnerArguments, *, name: str) -> asyncio.Task[None]:
        """Run a conversation in its own task."""
        self.check_room()
        task = asyncio.create_task(self._run(arguments), name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            # A call leaves cycles that hold codecs with their threads. Nobody is listening now: a pause is
            # free.
            gc.collect()

    async def _run(self, arguments: RunnerArguments) -> None:
        try:
            await self._run_call(arguments)
        except Exception:
            # The edge of one conversation: it ends, the others go on.
            logger.exception("conversation failed")

    async def close(self) -> None:
        """Give conversations ``drain_s`` to end, then cancel them."""
        if not self._tasks:
            return
        _, running = await asyncio.wait(self._tasks, timeout=self._drain_s)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=self._drain_s)


class BodyLimit:
    """ASGI middleware: refuses bodies over a size with 413 before anything parses them."""

    def __init__(self, app: Any, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or int(declared) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        # A chunked body declares no length: take it in here, up to the limit.
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > self._max_bytes:
                await self._refuse(scope, receive, send)
                return
        sent = False

        async def replay() -> Any:
            nonlocal sent
            if sent:
                return await receive()
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self._app(scope, replay, send)

    async def _refuse(self, scope: Any, receive: Any, send: Any) -> None:
        response = JSONResponse({"error": f"body over {self._max_bytes} bytes"}, status_code=413)
        await response(scope, receive, send)


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
    open_door: Callable[[Callable[[SmallWebRTCConnection, dict[str, object]], Awaitable[None]]], Any],
) -> FastAPI:
    """The application of one gateway process.

    Args:
        settings: bounds.
        run_call: runs one conversation to its end.
        describe: facts for ``/status`` (engines, versions).
        open_door: builds the WebRTC signalling around a callback (``transports.webrtc.signaling.Signaling``).
    """
    calls = CallTasks(run_call, max_calls=settings.max_calls, drain_s=settings.drain_s)
    started: dict[str, dict[str, object]] = {}

    async def on_connection(connection: SmallWebRTCConnection, body: dict[str, object]) -> None:
        arguments = SmallWebRTCRunnerArguments(webrtc_connection=connection, body=body)
        calls.start(arguments, name=f"call.{connection.pc_id}")

    door = open_door(on_connection)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await door.close()
        await calls.close()

    app = FastAPI(title="Parley", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    app.state.calls = calls
    app.state.door = door
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
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
        # No Origin header: not a browser page. A page of our own host, or of the list, may call.
        if not origin or urlsplit(origin).netloc == host or origin in settings.allowed_origins:
            return
        raise HTTPException(403, f"origin {origin} is not allowed")

    async def read_json(request: Request) -> dict[str, Any]:
        check_origin(request.headers.get("origin"), request.headers.get("host"))
        try:
            body = json.loads(await request.body() or b"{}")
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
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
        session_id = secrets.token_urlsafe(16)
        given = body.get("body")
        started[session_id] = given if isinstance(given, dict) else {}
        while len(started) > MAX_STARTED_SESSIONS:
            started.pop(next(iter(started)))
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

    @app.post("/sessions/{session_id}/api/offer")
    async def session_offer(session_id: str, request: Request) -> dict[str, str]:
        body = await read_json(request)
        if session_id not in started:
            raise HTTPException(404, "no such session: POST /start first")
        body.setdefault("requestData", started[session_id])
        return await door.offer_json(body)

    @app.patch("/sessions/{session_id}/api/offer")
    async def session_candidates(session_id: str, request: Request) -> dict[str, str]:
        if session_id not in started:
            raise HTTPException(404, "no such session: POST /start first")
        await door.candidates_json(await read_json(request))
        return {"status": "success"}

    @app.websocket("/ws")
    async def socket(websocket: WebSocket) -> None:
        """The evaluation harness of Pipecat (``pipecat eval run``) connects here."""
        try:
            check_origin(websocket.headers.get("origin"), websocket.headers.get("host"))
            calls.check_room()
        except (HTTPException, CapacityError) as error:
            await websocket.close(
                code=1013 if isinstance(error, CapacityError) else 1008, reason=str(error)[:100]
            )
            return
        await websocket.accept()
        await asyncio.wait({calls.start(WebSocketRunnerArguments(websocket=websocket), name="call.socket")})

    web = web_dir()

    @app.get("/")
    async def page() -> FileResponse:
        return FileResponse(web / "pages" / "index.html")

    app.mount("/shared", StaticFiles(directory=web / "shared"), name="shared")
    return app
