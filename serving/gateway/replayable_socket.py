"""A socket that can be read before its conversation is there.

Starlette has no way to put a message back, and Pipecat keeps what it has read of a socket's beginning on the
socket: so this one takes the place of the accepted socket from the start.
"""

from collections import deque
from collections.abc import Iterable, MutableMapping
from typing import Any

from starlette.websockets import WebSocket

Message = MutableMapping[str, Any]


class ReplayableSocket(WebSocket):
    """A socket that gives messages again which were put back.

    Args:
        websocket: accepted; used by nothing else from here on.
    """

    def __init__(self, websocket: WebSocket) -> None:
        early: deque[Message] = deque()

        async def receive() -> Message:
            return early.popleft() if early else await websocket.receive()

        super().__init__(websocket.scope, receive, websocket.send)
        self.client_state = websocket.client_state
        self.application_state = websocket.application_state
        self._early = early

    def put_back(self, messages: Iterable[Message]) -> None:
        """Have messages received again, before those that have not been read."""
        self._early.extend(messages)
