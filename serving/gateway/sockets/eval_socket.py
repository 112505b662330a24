"""Socket ``/ws`` of Pipecat's evaluation tool (``pipecat eval run``), for that tool only.

Input: a handshake, admitted like all others (``TalkSockets.admit``). Output: one conversation over it.
The socket takes no line before it has identified itself, within ``socket_open_s``, and the number of sockets
that have not is bounded. From then on it waits for a line where there is none. A refused socket is closed
with a code and a reason.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, WebSocket
from loguru import logger
from pipecat.runner.types import WebSocketRunnerArguments
from pipecat.runner.utils import parse_telephony_websocket
from starlette.websockets import WebSocketDisconnect, WebSocketState

from parley.core.errors import AgentError, CapacityError, PeerError, StoreUnavailableError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.serving.gateway.auth.client_auth import AdmittedClient
from parley.serving.gateway.calls import ADDRESS_SHARE, LEAST_SILENT, CallTasks
from parley.serving.gateway.http.middleware import POLICY_VIOLATION
from parley.serving.gateway.limits import ConcurrencyLimit
from parley.serving.gateway.line_request import Queueing
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.replayable_socket import ReplayableSocket

Admit = Callable[[WebSocket, Mapping[str, object]], Awaitable[AdmittedClient]]
# Pipecat's type of the first message of such a socket, and its name in the queue.
EVAL = "eval"
# WebSocket close code (IANA registry).
TRY_AGAIN_LATER = 1013


@dataclass
class EvalArguments(Queueing, WebSocketRunnerArguments):
    """Arguments of a conversation of the evaluation tool.

    Attributes:
        websocket: accepted.
        identity: client that opened it, with its grants.
    """

    websocket: ReplayableSocket
    identity: ClientIdentity = ANONYMOUS


class EvalSocket:
    """Route of the evaluation socket.

    Args:
        settings: bounds.
        calls: starts conversations.
        admit: admits a handshake, or raises; every conversation here is a session of its own.
    """

    def __init__(self, settings: ServerTuning, *, calls: CallTasks, admit: Admit) -> None:
        self._settings = settings
        self._calls = calls
        self._admit = admit
        # Accepted sockets that have not identified themselves.
        self._opening = ConcurrencyLimit(
            settings.max_calls,
            "too many sockets are opening, try again later",
            each=max(LEAST_SILENT, int(settings.max_calls * ADDRESS_SHARE)),
            each_full="too many sockets of this address are opening: begin with one of them, or close it",
        )

    def router(self) -> APIRouter:
        """Return the route, to be included in an application."""
        router = APIRouter()
        router.add_api_websocket_route("/ws", self.serve)
        return router

    async def serve(self, websocket: WebSocket) -> None:
        """Serve Pipecat's evaluation tool (``pipecat eval run``): one conversation for each socket."""
        within_s = self._settings.hang_up_s
        try:
            identity = (await self._admit(websocket, {})).identity
            await websocket.accept()
            task = await self._open(ReplayableSocket(websocket), identity)
        except (CapacityError, StoreUnavailableError) as error:
            await close_socket(websocket, TRY_AGAIN_LATER, str(error), within_s=within_s)
        except (HTTPException, AgentError) as error:
            reason = error.detail if isinstance(error, HTTPException) else str(error)
            await close_socket(websocket, POLICY_VIOLATION, reason, within_s=within_s)
        else:
            await asyncio.wait({task})

    async def _open(self, websocket: ReplayableSocket, identity: ClientIdentity) -> asyncio.Task[None]:
        """Start the conversation of an accepted socket once it has identified itself."""
        settings = self._settings
        try:
            with self._opening.take(identity.address):
                async with asyncio.timeout(settings.socket_open_s):
                    # Kept on the socket: ``run_call`` parses it again without reading again.
                    kind, _ = await parse_telephony_websocket(websocket)
        except TimeoutError as error:
            raise PeerError(f"eval-connect did not arrive within {settings.socket_open_s} s") from error
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            raise PeerError("the first message is not eval-connect") from error
        if kind != EVAL:
            raise PeerError("this socket serves only eval-connect")
        return self._calls.start(
            EvalArguments(websocket=websocket, identity=identity),
            call_id=f"socket.{secrets.token_hex(4)}",
            hang_up=lambda: close_socket(websocket, within_s=settings.hang_up_s),
            says_goodbye=True,
            identity=identity,
            uses_recogniser=self._calls.uses_recogniser(None),
            may_wait=True,
            transport=EVAL,
        )


async def close_socket(websocket: WebSocket, code: int = 1000, reason: str = "", *, within_s: float) -> None:
    """Close a socket, accepted or not, that may be closed already."""
    if WebSocketState.DISCONNECTED in (websocket.application_state, websocket.client_state):
        return
    try:
        async with asyncio.timeout(within_s):
            # A close frame has room for 123 bytes of UTF-8.
            await websocket.close(code, reason[:100])
    except (TimeoutError, RuntimeError, WebSocketDisconnect) as error:
        logger.debug(f"the socket was already closed: {error!r}")
