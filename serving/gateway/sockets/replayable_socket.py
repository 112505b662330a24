"""Socket that can be read before its conversation begins.

Starlette cannot put a message back, and Pipecat stores the messages from the beginning of a socket on the
socket object. This one therefore replaces the accepted socket from the start.
"""

from collections import deque
from collections.abc import Iterable, MutableMapping
from typing import Any

from starlette.websockets import WebSocket

Message = MutableMapping[str, Any]


class ReplayableSocket(WebSocket):
    """Socket that delivers messages again which were put back.

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
        """Put messages back, before those that have not been read."""
        self._early.extend(messages)
