"""Sockets of clients with a protocol of their own: admission, and selection of the protocol.

Input: a handshake. Output: one conversation in the client's protocol (``protocols``), run like every other
call. A client is refused before the socket is accepted, with an HTTP status and the reason:

* 401: no token where one is needed;
* 403: a page of another origin, or a surface that is switched off;
* 404: an unknown session;
* 429: a client that begins too much;
* 503: a server that is full or has no store.

A client whose protocol has messages for it (``ClientProtocol.queues``) waits for a line when the server is
full; any other is refused.

``/ws/half_duplex/{name}`` is a call by turns in the MiniCPM-o server's protocol, under its client's name, and
``/ws/half_duplex_omni/{name}`` the same with pictures.
``/v1/realtime`` serves three protocols: OpenAI's for ``?model=``, the MiniCPM-o server's for ``?mode=``, and
Unmute's for the subprotocol ``realtime`` alone. Where none of these is given, the client's first message
decides between the first two (``first_message``). With ``?call_id=`` a socket follows a call over WebRTC.
"""

import asyncio
import math
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, HTTPException, WebSocket
from fastapi.responses import JSONResponse
from pipecat.runner.types import RunnerArguments
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketState

from parley.core.errors import AgentError, CapacityError, PeerError, StoreError, UnknownSessionError
from parley.core.grants import ANONYMOUS, ClientIdentity, KeyScope
from parley.models.tools.arguments import schema_faults
from parley.protocols.client_name import check_name
from parley.protocols.client_protocol import ClientProtocol
from parley.protocols.half_duplex import HalfDuplex
from parley.protocols.minicpm_duplex import MiniCpmDuplex
from parley.protocols.minicpm_realtime import MiniCpmRealtime
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.protocols.openai_realtime.shapes import TRANSCRIPTION
from parley.protocols.unmute import Unmute
from parley.serving.gateway.admin.apps import AppDisabledError, AppId, Apps
from parley.serving.gateway.auth.client_auth import SUBPROTOCOLS as TOKENS
from parley.serving.gateway.auth.client_auth import Access, AdmittedClient
from parley.serving.gateway.auth.usage import UsageLimits, unless_refused
from parley.serving.gateway.call_choices import CallChooser
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.requests import BodyError, check_origin
from parley.serving.gateway.limits import ShareError
from parley.serving.gateway.line_request import Queueing
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.eval_socket import IsCounted, close_socket
from parley.serving.gateway.sockets.first_message import FirstMessage, is_minicpm
from parley.serving.gateway.sockets.replayable_socket import ReplayableSocket
from parley.serving.gateway.webrtc.held_calls import MOST_FOLLOWING, HeldRealtimeCalls

CheckBody = Callable[[Mapping[str, object], ClientIdentity], Awaitable[None]]
Mode = Literal["cascade", "duplex"]
SUBPROTOCOL = "realtime"
# Subprotocols that may be selected; one that carries a token is never sent back.
SUBPROTOCOLS = (SUBPROTOCOL, "parley")
# The prefix of an id shows which app of that server the client is.
AUDIO_PREFIX = "adx_"
MOST_MODEL_CHARS = 100
DENY_S = 3.0


# Longest call of a client that names a length (``timeout_s`` of /ws/half_duplex).
LONGEST_NAMED_CALL_S = 1_800


@dataclass(kw_only=True)
class SocketArguments(Queueing, RunnerArguments):
    """Arguments of a call over a socket.

    Attributes:
        websocket: accepted.
        protocol: of its client.
        mode: of the pipeline.
        identity: client that opened it, with its grants.
        on_first_word: called when the first message of the client is accepted.
        chooser: has the reference voices that the client may choose; None: it may choose none.
    """

    websocket: WebSocket
    protocol: ClientProtocol
    mode: str
    identity: ClientIdentity = ANONYMOUS
    on_first_word: Callable[[], None] | None = None
    chooser: CallChooser | None = None


class RealtimeSockets:
    """Routes of the sockets.

    Args:
        settings: bounds.
        calls: starts conversations.
        check_body: raises when a call is not possible with the client's body.
        usage: limits what each client may begin; a call that names no session begins one.
        access: checks that a client may begin a call.
        apps: switches of the surfaces.
        held: calls over WebRTC, for further connections to them.
        default_mode: of clients that request none.
        is_counted: returns whether the client of a body goes on with a call that it has lost.
        end_lost: ends the call of a session whose client goes on over a new connection.
        chooser: has the voices that clients may choose.
    """

    def __init__(
        self,
        settings: ServerTuning,
        *,
        calls: CallTasks,
        check_body: CheckBody,
        usage: UsageLimits,
        access: Access,
        apps: Apps,
        held: HeldRealtimeCalls,
        default_mode: str,
        is_counted: IsCounted,
        end_lost: Callable[[str], Awaitable[None]] | None = None,
        chooser: CallChooser | None = None,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._check_body = check_body
        self._usage = usage
        self._access = access
        self._apps = apps
        self._held = held
        self._default_mode = default_mode
        self._is_counted = is_counted
        self._end_lost = end_lost
        self._chooser = chooser

    def router(self) -> APIRouter:
        """Return the routes, to be included in an application."""
        router = APIRouter()
        router.add_api_websocket_route("/v1/realtime", self.realtime)
        router.add_api_websocket_route("/ws/duplex/{client_id}", self.duplex)
        router.add_api_websocket_route("/ws/half_duplex/{name}", self.half_duplex)
        router.add_api_websocket_route("/ws/half_duplex_omni/{name}", self.half_duplex_omni)
        return router

    async def half_duplex(self, websocket: WebSocket, name: str) -> None:
        """Serve the half-duplex protocol of the MiniCPM-o server: both sides take turns."""
        await self._serve_half_duplex(websocket, name, sees=False)

    async def half_duplex_omni(self, websocket: WebSocket, name: str) -> None:
        """Serve the half-duplex protocol of the MiniCPM-o server with pictures of the caller."""
        await self._serve_half_duplex(websocket, name, sees=True)

    async def _serve_half_duplex(self, websocket: WebSocket, name: str, *, sees: bool) -> None:
        def make() -> ClientProtocol:
            check_name(name)
            return HalfDuplex(longest_s=LONGEST_NAMED_CALL_S, sees=sees)

        await self.serve(websocket, make, app="half_duplex_audio", mode="cascade")

    async def duplex(self, websocket: WebSocket, client_id: str) -> None:
        """Serve the full-duplex protocol of the MiniCPM-o server.

        The client chooses the id in the path, which opens nothing.
        """
        app: AppId = "audio_duplex" if client_id.startswith(AUDIO_PREFIX) else "omni"
        await self.serve(websocket, lambda: MiniCpmDuplex(time.time), app=app, mode="duplex")

    async def realtime(self, websocket: WebSocket) -> None:
        """Serve OpenAI's realtime protocol (``model``), MiniCPM-o's (``mode``) or Unmute's (subprotocol)."""
        if (call_id := websocket.query_params.get("call_id")) is not None:
            await self._follow(websocket, call_id)
            return
        kind = websocket.query_params.get("mode")
        if kind is not None and "model" not in websocket.query_params:
            await self.serve(
                websocket,
                lambda: MiniCpmRealtime(sees=kind == "video"),
                app="omni" if kind == "video" else "audio_duplex",
                mode="duplex",
                refuses="" if kind in ("audio", "video") else "mode: audio or video",
            )
            return
        if subprotocols_of(websocket) == [SUBPROTOCOL] and "model" not in websocket.query_params:
            await self.serve(websocket, Unmute, app="unmute")
            return
        if "model" not in websocket.query_params and not _is_transcription(websocket):
            await self._recognise(websocket)
            return
        await self._serve_openai(websocket)

    async def _serve_openai(self, websocket: WebSocket) -> None:
        model = websocket.query_params.get("model", "")[:MOST_MODEL_CHARS]
        await self.serve(
            websocket,
            lambda: OpenAIRealtime(
                model or "parley",
                schema_faults=schema_faults,
                is_transcription=_is_transcription(websocket),
            ),
            app="openai_realtime",
            mode=mode_of(model),
        )

    async def _follow(self, websocket: WebSocket, call_id: str) -> None:
        """Serve a further connection to a call over WebRTC: OpenAI's sideband."""
        try:
            check_origin(websocket, allowed=self._settings.allowed_origins)
            self._apps.check("openai_realtime")
            identity = await self._access.identify(websocket, KeyScope.TALK)
            self._access.check_surface(identity, "openai_realtime")
            held = self._held.find(call_id, identity, is_open=self._access.is_open)
            if held.following >= MOST_FOLLOWING:
                raise HTTPException(429, f"{MOST_FOLLOWING} connections follow this call")
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
            return
        await self._accept(websocket)
        await held.follow(websocket)

    async def _recognise(self, websocket: WebSocket) -> None:
        """Serve a client whose address does not tell its protocol, by its first message.

        A client that none of the protocols would admit is refused at the handshake, as any other.
        """
        mode = websocket.query_params.get("pipeline") or self._default_mode
        uses_recogniser = self._calls.uses_recogniser(mode)
        try:
            identity = await self._check(
                websocket,
                self._body_of(websocket, mode),
                app="openai_realtime",
                uses_recogniser=uses_recogniser,
            )
            silent = self._calls.take_silent(identity, uses_recogniser=uses_recogniser)
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
            return
        try:
            await self._accept(websocket)
            readable = ReplayableSocket(websocket)
            first = FirstMessage(readable)
            await first.read()
        finally:
            silent.give_back()
        if is_minicpm(first.text):
            await self.serve(
                readable,
                lambda: MiniCpmRealtime(sees=True, was_placed=first.was_placed),
                app="omni",
                mode="duplex",
            )
        else:
            await self._serve_openai(readable)

    @staticmethod
    async def _accept(websocket: WebSocket) -> None:
        """Accept a socket, unless it has been."""
        if websocket.application_state is WebSocketState.CONNECTING:
            # A browser that offers subprotocols rejects a socket that selects none.
            offered = [name for name in subprotocols_of(websocket) if name in SUBPROTOCOLS]
            await websocket.accept(offered[0] if offered else None)

    @staticmethod
    def _body_of(websocket: WebSocket, mode: str) -> dict[str, object]:
        """Return the request of a client: the mode, the session that it names, and if it lost its call."""
        body: dict[str, object] = {"mode": mode}
        if session_id := websocket.query_params.get("session"):
            body["session"] = session_id
        if websocket.query_params.get("reconnect") == "true":
            body["reconnect"] = True
        return body

    async def serve(
        self,
        websocket: WebSocket,
        make: Callable[[], ClientProtocol],
        *,
        app: AppId,
        mode: str | None = None,
        refuses: str = "",
    ) -> None:
        """Serve one socket from its handshake to the end of its conversation.

        Args:
            websocket: not accepted yet, or accepted to read its first message.
            make: returns the protocol of its client.
            app: switch of this surface.
            mode: of the pipeline; None: the client's choice, or the deployment's.
            refuses: reason for a refusal; empty: none.
        """
        wanted = mode or websocket.query_params.get("pipeline") or self._default_mode
        body = self._body_of(websocket, wanted)
        silent = None
        try:
            if refuses:
                raise PeerError(refuses)
            # First, so that no token is used up by a socket that its path refuses.
            protocol = make()
            uses_recogniser = self._calls.uses_recogniser(wanted)
            if body.get("reconnect"):
                await self._leave_lost(websocket, body, app)
            async with self.admitted(
                websocket, body, app=app, uses_recogniser=uses_recogniser, may_wait=protocol.queues
            ) as admitted:
                if admitted.next_token is not None:
                    body["next_token"] = admitted.next_token
                if self._calls.has_room(uses_recogniser=uses_recogniser):
                    silent = self._calls.take_silent(admitted.identity, uses_recogniser=uses_recogniser)
                await self._accept(websocket)
                arguments = SocketArguments(
                    websocket=websocket,
                    protocol=protocol,
                    mode=wanted,
                    body=body,
                    identity=admitted.identity,
                    on_first_word=None if silent is None else silent.give_back,
                    chooser=self._chooser,
                )
                task = self._calls.start(
                    arguments,
                    call_id=f"socket.{secrets.token_hex(4)}",
                    hang_up=lambda: close_socket(websocket, within_s=self._settings.hang_up_s),
                    says_goodbye=True,
                    identity=admitted.identity,
                    uses_recogniser=uses_recogniser,
                    may_wait=protocol.queues,
                    transport=protocol.name,
                    silent=silent,
                    counts_silence=silent is None,
                    is_counted=await self._is_counted(body),
                )
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
        else:
            await asyncio.wait({task})
        finally:
            if silent is not None:
                silent.give_back()

    async def _leave_lost(self, websocket: WebSocket, body: Mapping[str, object], app: AppId) -> None:
        """End the call that a client goes on with, before its line and its share are counted anew.

        The loss of a socket may be noticed minutes later. Raises as ``_check``.
        """
        check_origin(websocket, allowed=self._settings.allowed_origins)
        self._apps.check(app)
        await self._check_body(body, await self._access.check(websocket, app))
        if self._end_lost is not None:
            await self._end_lost(str(body["session"]))

    @asynccontextmanager
    async def admitted(
        self,
        connection: HTTPConnection,
        body: Mapping[str, object],
        *,
        app: AppId,
        uses_recogniser: bool,
        may_wait: bool = False,
    ) -> AsyncIterator[AdmittedClient]:
        """Admit a handshake of any surface of sockets, an offer or a request; decided here alone.

        Its conversation begins in the block: one that is refused there is no session of its client.

        Args:
            connection: request, or a socket that is not accepted yet.
            body: request of the client: ``mode``, ``session``.
            app: switch of the surface.
            uses_recogniser: true when the call would use the recogniser.
            may_wait: a place in the queue for a line is enough.

        Yields:
            Identity of the client, and a token for another beginning, as ``Access.admit``.

        Raises:
            HTTPException, AgentError: it is refused; see ``deny``.
        """
        identity = await self._check(
            connection, body, app=app, uses_recogniser=uses_recogniser, may_wait=may_wait
        )
        counted = None if "session" in body else self._usage.take_session(identity)
        with unless_refused(counted):
            # Last, so that a token is used up only by a conversation that begins.
            yield await self._access.admit(connection, app)

    async def _check(
        self,
        connection: HTTPConnection,
        body: Mapping[str, object],
        *,
        app: AppId,
        uses_recogniser: bool,
        may_wait: bool = False,
    ) -> ClientIdentity:
        """Check a handshake as ``admit`` does; nothing is used up by it."""
        check_origin(connection, allowed=self._settings.allowed_origins)
        self._apps.check(app)
        self._calls.check_room(uses_recogniser=uses_recogniser, may_wait=may_wait)
        identity = await self._access.check(connection, app)
        self._calls.check_room(identity=identity, uses_recogniser=uses_recogniser, may_wait=may_wait)
        await self._check_body(body, identity)
        return identity


def subprotocols_of(websocket: WebSocket) -> list[str]:
    """Return the subprotocols that a client offers, without the one that carries its token."""
    offered = websocket.scope.get("subprotocols") or []
    return [name for name in offered if not name.startswith(TOKENS)]


def mode_of(model: str) -> str | None:
    """Return the mode that a model's name selects; None for any other name: the deployment decides."""
    return {"parley-cascade": "cascade", "parley-duplex": "duplex"}.get(model)


async def deny(websocket: WebSocket, error: Exception) -> None:
    """Refuse a handshake, with the reason where the server can send one."""
    status, message, retry_s = status_of(error)
    if websocket.application_state is not WebSocketState.CONNECTING:
        # It was accepted, and another client has taken the last line meanwhile.
        await close_socket(websocket, 1013 if status in (429, 503) else 1008, message, within_s=DENY_S)
        return
    headers = {"Retry-After": str(math.ceil(retry_s))} if retry_s else None
    try:
        await websocket.send_denial_response(
            JSONResponse({"error": message}, status_code=status, headers=headers)
        )
    except RuntimeError:
        # The client has left.
        return


def status_of(error: Exception) -> tuple[int, str, float]:
    """Return the HTTP status of a refusal, its reason, and the seconds to wait; 0 where none helps."""
    match error:
        case HTTPException():
            return error.status_code, str(error.detail), 0
        case AppDisabledError():
            return 403, str(error), 0
        case ShareError():
            return error.status, str(error), error.retry_s or 0
        case CapacityError():
            return 503, str(error), 5
        case UnknownSessionError():
            return 404, str(error), 0
        case StoreError():
            return 503, str(error), 5
        case BodyError():
            return error.status, str(error), 0
        case PeerError():
            return 400, str(error), 0
        case _:
            return 500, "the call could not be started", 0


def _is_transcription(websocket: WebSocket) -> bool:
    """Return whether a client of OpenAI's protocol asks for transcription alone by its address."""
    return websocket.query_params.get("intent") == TRANSCRIPTION
