"""Turn-based routes of the MiniCPM-o server: ``/ws/chat``, ``/ws/streaming/{name}``, ``POST /api/chat``.

Input: a handshake or a request, admitted like all others (``RealtimeSockets.admitted``). Output: one
conversation that is treated like a call (``serving.gateway.calls``): counted with them, and hung up when the
server stops. The client chooses the name in the path; ``?session=`` continues a session.

``POST /api/chat`` is ``/ws/chat`` with one message and one answer (``chat_exchange``). Its client is watched
while the answer is made; one that leaves ends the model.
"""

import asyncio
import json
import math
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from fastapi import APIRouter, HTTPException, Request, Response, WebSocket
from fastapi.responses import JSONResponse
from pipecat.runner.types import RunnerArguments

from parley.core.errors import AgentError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.protocols.client_name import check_name
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.event_stream import EventStream
from parley.serving.gateway.http.requests import BodyError
from parley.serving.gateway.limits import Slot
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.chat_exchange import ChatExchange, refusal_body
from parley.serving.gateway.sockets.eval_socket import Admit, close_socket
from parley.serving.gateway.sockets.realtime_sockets import deny, status_of

Protocol = Literal["chat", "streaming"]
CHAT_PATH = "/api/chat"
LEFT = "the sender disconnected before the answer"


@dataclass(kw_only=True)
class ChatArguments(RunnerArguments):
    """Arguments of a conversation over a turn-based socket.

    Attributes:
        websocket: accepted.
        protocol: of its client.
        identity: client that opened it, with its grants.
        on_first_word: called when the first message of the client is accepted.
    """

    websocket: WebSocket
    protocol: Protocol
    identity: ClientIdentity = ANONYMOUS
    on_first_word: Callable[[], None] | None = None


@dataclass(kw_only=True)
class ChatRequestArguments(RunnerArguments):
    """Arguments of a conversation of one request over HTTP.

    Attributes:
        exchange: the request.
        identity: client that sent it, with its grants.
        on_first_word: called when the request is accepted.
    """

    exchange: ChatExchange
    identity: ClientIdentity = ANONYMOUS
    on_first_word: Callable[[], None] | None = None


class ChatSockets:
    """Turn-based routes.

    Args:
        settings: bounds.
        calls: starts conversations.
        admitted: admits a handshake, or raises; the conversation begins in its block.
    """

    def __init__(
        self,
        settings: ServerTuning,
        *,
        calls: CallTasks,
        admitted: Admit,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._admitted = admitted

    def router(self) -> APIRouter:
        """Return the routes, to be included in an application."""
        router = APIRouter()
        router.add_api_websocket_route("/ws/chat", self.chat)
        router.add_api_websocket_route("/ws/streaming/{name}", self.streaming)
        router.add_api_route(CHAT_PATH, self.request, methods=["POST"], response_model=None)
        return router

    async def chat(self, websocket: WebSocket) -> None:
        """Serve the MiniCPM-o server's protocol of single requests, each with its history."""
        await self._serve(websocket, "chat")

    async def streaming(self, websocket: WebSocket, name: str) -> None:
        """Serve the MiniCPM-o server's protocol of turns with a history that is kept here."""
        await self._serve(websocket, "streaming", name)

    async def request(self, request: Request, session: str | None = None) -> Response:
        """Answer a conversation of the MiniCPM-o server's turn-based protocol, whole."""
        body: dict[str, object] = {"session": session} if session else {}
        try:
            exchange = await self._exchange(request, body)
        except (HTTPException, AgentError) as error:
            status, message, retry_s = status_of(error)
            headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
            if retry_s:
                headers["Retry-After"] = str(math.ceil(retry_s))
            return JSONResponse(refusal_body(message), status_code=status, headers=headers)
        answer = exchange.answer()
        if answer is None:
            status, failure = exchange.failure()
            return JSONResponse(failure, status_code=status)
        # Half a minute of speech is 4 MB of JSON.
        return EventStream(
            _encoded(answer),
            stall_s=self._settings.reader_stall_s,
            media_type="application/json",
            headers={},
        )

    async def _exchange(self, request: Request, body: dict[str, object]) -> ChatExchange:
        """Hold the conversation of a request to its end.

        Raises:
            HTTPException, AgentError: it is refused, or its client has left.
        """
        silent = watch = exchange = None
        try:
            async with self._admitted(request, body) as admitted:
                identity = admitted.identity
                if admitted.next_token is not None:
                    body["next_token"] = admitted.next_token
                silent = self._calls.take_silent(identity, uses_recogniser=False)
                exchange = ChatExchange(_text_of(await request.body()))
                hang_up = _hang_up_of(exchange)
                task = self._calls.start(
                    ChatRequestArguments(
                        exchange=exchange,
                        body=body,
                        identity=identity,
                        on_first_word=partial(_begin, exchange, silent),
                    ),
                    call_id=f"request.{secrets.token_hex(4)}",
                    hang_up=hang_up,
                    says_goodbye=True,
                    identity=identity,
                    uses_recogniser=False,
                )
            watch = asyncio.create_task(_until_left(request), name="chat.watch")
            await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                exchange.leave()
                await asyncio.wait({task})
                raise BodyError(LEFT, status=400)
            return exchange
        finally:
            if exchange is not None:
                exchange.leave()
            if watch is not None:
                watch.cancel()
            if silent is not None:
                silent.give_back()

    async def _serve(self, websocket: WebSocket, protocol: Protocol, name: str | None = None) -> None:
        session_id = websocket.query_params.get("session")
        body: dict[str, object] = {"session": session_id} if session_id else {}
        silent = None
        try:
            if name is not None:
                check_name(name)
            async with self._admitted(websocket, body) as admitted:
                identity = admitted.identity
                if admitted.next_token is not None:
                    body["next_token"] = admitted.next_token
                silent = self._calls.take_silent(identity, uses_recogniser=False)
                await websocket.accept()
                task = self._calls.start(
                    ChatArguments(
                        websocket=websocket,
                        protocol=protocol,
                        body=body,
                        identity=identity,
                        on_first_word=silent.give_back,
                    ),
                    call_id=f"{protocol}.{secrets.token_hex(4)}",
                    hang_up=lambda: close_socket(websocket, within_s=self._settings.hang_up_s),
                    says_goodbye=True,
                    identity=identity,
                    uses_recogniser=False,
                )
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
        else:
            await asyncio.wait({task})
        finally:
            if silent is not None:
                silent.give_back()


def _text_of(body: bytes) -> str:
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BodyError("the body is not UTF-8", status=422) from error


async def _encoded(answer: dict[str, object]) -> AsyncGenerator[str, None]:
    yield await asyncio.to_thread(json.dumps, answer)


def _begin(exchange: ChatExchange, silent: Slot) -> None:
    exchange.begin()
    silent.give_back()


def _hang_up_of(exchange: ChatExchange) -> Callable[[], Awaitable[None]]:
    async def hang_up() -> None:
        exchange.leave()

    return hang_up


async def _until_left(request: Request) -> None:
    """Return when the client of a request, whose body was read, has left."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
