"""Turn-based sockets for clients of the MiniCPM-o server: ``/ws/chat`` and ``/ws/streaming/{name}``.

Input: a handshake, admitted like all others (``TalkSockets.admitted``). Output: one conversation that is
treated like a call (``serving.gateway.calls``): counted with them, and hung up when the server stops. The
client chooses the name in the path; ``?session=`` continues a session.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, HTTPException, WebSocket
from pipecat.runner.types import RunnerArguments

from parley.core.errors import AgentError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.protocols.client_name import check_name
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.settings import ServerTuning
from parley.serving.gateway.sockets.eval_socket import Admit, close_socket
from parley.serving.gateway.sockets.realtime_sockets import deny

Protocol = Literal["chat", "streaming"]


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


class ChatSockets:
    """Routes of the turn-based sockets.

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
        return router

    async def chat(self, websocket: WebSocket) -> None:
        """Serve the MiniCPM-o server's protocol of single requests, each with its history."""
        await self._serve(websocket, "chat")

    async def streaming(self, websocket: WebSocket, name: str) -> None:
        """Serve the MiniCPM-o server's protocol of turns with a history that is kept here."""
        await self._serve(websocket, "streaming", name)

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
