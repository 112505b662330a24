"""Socket ``/ws`` of Pipecat's clients (Protocol Buffers) and of its evaluation tool (``pipecat eval run``).

Input: a handshake, admitted like all others (``RealtimeSockets.admitted``). ``?session=`` goes on with a
session, ``?mode=`` chooses the pipeline, and ``?voice=``, ``?preset=`` and ``?reference_voice=`` are choices
of the caller (``call_choices``). Output: one conversation over it. The first message shows the kind of
client: text of the tool, or bytes. The socket takes no line before that message, which has to come within
``socket_open_s``, and the number of sockets without one is bounded. From then on it waits for a line where
there is none. A refused socket is closed with a code and a reason.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from fastapi import APIRouter, HTTPException, WebSocket
from loguru import logger
from pipecat.evals.serializer import parse_eval_connect
from pipecat.runner.types import WebSocketRunnerArguments
from pipecat.runner.utils import parse_telephony_websocket
from pydantic import ValidationError
from starlette.requests import HTTPConnection
from starlette.websockets import WebSocketDisconnect, WebSocketState

from parley.core.call_choices import CallChoices, ChoiceField
from parley.core.errors import AgentError, CapacityError, PeerError, StoreUnavailableError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.protocols.client_protocol import ProtocolError, json_object
from parley.serving.gateway.auth.client_auth import AdmittedClient
from parley.serving.gateway.calls import ADDRESS_SHARE, LEAST_SILENT, CallTasks
from parley.serving.gateway.http.middleware import POLICY_VIOLATION
from parley.serving.gateway.limits import ConcurrencyLimit
from parley.serving.gateway.line_request import Queueing
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.replayable_socket import ReplayableSocket

Admit = Callable[[HTTPConnection, Mapping[str, object]], AbstractAsyncContextManager[AdmittedClient]]
Choose = Callable[[Mapping[str, object], ClientIdentity], Awaitable[CallChoices]]
IsCounted = Callable[[Mapping[str, object]], Awaitable[bool]]
# Pipecat's type of the first message of such a socket, and its name in the queue.
EVAL = "eval"
# Name of Pipecat's other clients in the queue.
PIPECAT = "pipecat"
# Fields of the query that begin a call.
QUERY = ("session", "mode", ChoiceField.VOICE, ChoiceField.PRESET, ChoiceField.REFERENCE_VOICE)
WRONG_FIRST = "the first message is neither a frame of Pipecat's nor eval-connect"
# WebSocket close code (IANA registry).
TRY_AGAIN_LATER = 1013


@dataclass
class EvalArguments(Queueing, WebSocketRunnerArguments):
    """Arguments of a conversation of the evaluation tool.

    Attributes:
        websocket: accepted.
        identity: client that opened it, with its grants.
        choices: of the caller.
    """

    websocket: ReplayableSocket
    identity: ClientIdentity = ANONYMOUS
    choices: CallChoices = CallChoices()


@dataclass
class PipecatSocketArguments(EvalArguments):
    """Arguments of a conversation of a client of Pipecat's.

    Attributes:
        websocket: accepted; its first message is a frame.
    """


class EvalSocket:
    """Route of the socket.

    Args:
        settings: bounds.
        calls: starts conversations.
        admitted: admits a handshake, or raises; the conversation begins in its block.
        choose: returns the choices of a caller, from the fields of the query.
        is_counted: returns whether the client of a body goes on with a call that it has lost.
    """

    def __init__(
        self,
        settings: ServerTuning,
        *,
        calls: CallTasks,
        admitted: Admit,
        choose: Choose,
        is_counted: IsCounted,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._admitted = admitted
        self._choose = choose
        self._is_counted = is_counted
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
        """Serve Pipecat's clients (Protocol Buffers and RTVI), and its evaluation tool."""
        within_s = self._settings.hang_up_s
        body: dict[str, object] = {
            str(name): value for name in QUERY if (value := websocket.query_params.get(name))
        }
        if websocket.query_params.get("reconnect") == "true":
            body["reconnect"] = True
        try:
            async with self._admitted(websocket, body) as admitted:
                choices = await self._choose(body, admitted.identity)
                await websocket.accept()
                task = await self._open(ReplayableSocket(websocket), admitted.identity, body, choices)
        except (CapacityError, StoreUnavailableError) as error:
            await close_socket(websocket, TRY_AGAIN_LATER, str(error), within_s=within_s)
        except (HTTPException, AgentError) as error:
            reason = error.detail if isinstance(error, HTTPException) else str(error)
            await close_socket(websocket, POLICY_VIOLATION, reason, within_s=within_s)
        else:
            await asyncio.wait({task})

    async def _open(
        self,
        websocket: ReplayableSocket,
        identity: ClientIdentity,
        body: Mapping[str, object],
        choices: CallChoices,
    ) -> asyncio.Task[None]:
        """Start the conversation of an accepted socket once its first message has come."""
        settings = self._settings
        try:
            with self._opening.take(identity.address):
                async with asyncio.timeout(settings.socket_open_s):
                    first = await websocket.receive()
                    if first["type"] == "websocket.disconnect":
                        raise PeerError("the client left before its first message")
                    websocket.put_back([first])
                    kind = PIPECAT
                    if first.get("bytes") is None:
                        if not is_eval(first.get("text") or ""):
                            raise PeerError(WRONG_FIRST)
                        # Kept on the socket: ``run_call`` parses it again without reading again.
                        kind, _ = await parse_telephony_websocket(websocket)
                # While the socket still counts among those that open.
                is_counted = await self._is_counted(body)
        except TimeoutError as error:
            raise PeerError(f"no first message arrived within {settings.socket_open_s} s") from error
        except (ValueError, LookupError, AttributeError, TypeError, RecursionError) as error:
            raise PeerError(WRONG_FIRST) from error
        if kind not in (EVAL, PIPECAT):
            raise PeerError(WRONG_FIRST)
        made = PipecatSocketArguments if kind == PIPECAT else EvalArguments
        return self._calls.start(
            made(websocket=websocket, identity=identity, body=dict(body), choices=choices),
            call_id=f"socket.{secrets.token_hex(4)}",
            hang_up=lambda: close_socket(websocket, within_s=settings.hang_up_s),
            says_goodbye=True,
            identity=identity,
            uses_recogniser=self._calls.uses_recogniser(body.get("mode")),
            may_wait=True,
            transport=kind,
            is_counted=is_counted,
        )


def is_eval(text: str) -> bool:
    """Return whether a text begins a run of Pipecat's evaluation tool.

    Pipecat's own check reads a second message when the first one is none of it, and writes what it cannot
    read to the log.
    """
    try:
        return parse_eval_connect(json_object(text)) is not None
    except (ProtocolError, ValidationError):
        return False


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
