"""Turn-based sockets of the MiniCPM-o server's clients: ``/ws/chat`` and ``/ws/streaming/{name}``.

In: a handshake, let pass where all others are (``TalkSockets.admit``). Out: one conversation that is held
like a call (``serving.gateway.calls``): counted with them, hung up when the server stops. The name is the
client's own; ``?session=`` goes on with a session.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from fastapi import APIRouter, HTTPException, WebSocket
from pipecat.runner.types import RunnerArguments

from core.errors import AgentError
from core.grants import ANONYMOUS, ClientIdentity
from protocols.client_name import check_name
from serving.gateway.calls import CallTasks
from serving.gateway.eval_socket import Admit, close_socket
from serving.gateway.settings import ServerTuning
from serving.gateway.talk_sockets import deny

Protocol = Literal["chat", "streaming"]


@dataclass(kw_only=True)
class ChatArguments(RunnerArguments):
    """One conversation over a turn-based socket.

    Attributes:
        websocket: accepted.
        protocol: that its client speaks.
        identity: who opened it, and what they may do.
        on_first_word: to be called when the first message of the client is taken.
    """

    websocket: WebSocket
    protocol: Protocol
    identity: ClientIdentity = ANONYMOUS
    on_first_word: Callable[[], None] | None = None


class ChatSockets:
    """The routes.

    Args:
        settings: bounds.
        calls: where conversations are started.
        admit: lets a handshake pass, or raises.
    """

    def __init__(
        self,
        settings: ServerTuning,
        *,
        calls: CallTasks,
        admit: Admit,
    ) -> None:
        self._settings = settings
        self._calls = calls
        self._admit = admit

    def router(self) -> APIRouter:
        """The routes, to be included in an application."""
        router = APIRouter()
        router.add_api_websocket_route("/ws/chat", self.chat)
        router.add_api_websocket_route("/ws/streaming/{name}", self.streaming)
        return router

    async def chat(self, websocket: WebSocket) -> None:
        """``/ws/chat``."""
        await self._serve(websocket, "chat")

    async def streaming(self, websocket: WebSocket, name: str) -> None:
        """``/ws/streaming/{name}``."""
        await self._serve(websocket, "streaming", name)

    async def _serve(self, websocket: WebSocket, protocol: Protocol, name: str | None = None) -> None:
        session_id = websocket.query_params.get("session")
        body: dict[str, object] = {"session": session_id} if session_id else {}
        try:
            if name is not None:
                check_name(name)
            admitted = await self._admit(websocket, body)
            identity = admitted.identity
            if admitted.next_token is not None:
                body["next_token"] = admitted.next_token
            silent = self._calls.take_silent(identity, hears=False)
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
            return
        try:
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
                hears=False,
            )
        except (HTTPException, AgentError) as error:
            await deny(websocket, error)
        else:
            await asyncio.wait({task})
        finally:
            silent.give_back()
