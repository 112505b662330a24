"""Calls of browsers: a connection that comes up with an offer begins a conversation, or waits for a line."""

from collections.abc import Callable
from functools import partial

from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.core.errors import PeerError
from parley.serving.gateway.call_bodies import CallBodies
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.webrtc.first_media import FirstWord
from parley.serving.gateway.webrtc.routes import (
    OFFERING,
    TRANSPORT,
    BrowserArguments,
    Door,
    OnConnection,
)


class BrowserCalls:
    """Calls of browsers, begun by their connections.

    Args:
        open_door: builds the signalling around a callback.
        calls: starts conversations.
        bodies: checks what the client requests.

    Attributes:
        door: the signalling.
    """

    def __init__(
        self, open_door: Callable[[OnConnection], Door], calls: CallTasks, bodies: CallBodies
    ) -> None:
        self._calls, self._bodies = calls, bodies
        self.door = open_door(self._begin)

    async def _begin(self, connection: SmallWebRTCConnection, body: dict[str, object]) -> None:
        offering = OFFERING.get(None)
        if offering is None:
            raise PeerError("the call has ended")
        if offering.begin is not None:
            await offering.begin(connection, body)
            return
        calls, identity = self._calls, offering.identity
        choices = await self._bodies.choices(body, identity)

        def speak() -> None:
            if arguments.line is not None:
                arguments.line.spoke()
                # Another call may have its place.
                calls.wake()

        first_word = FirstWord(speak)
        arguments = BrowserArguments(
            webrtc_connection=connection,
            body=body,
            identity=identity,
            on_first_word=first_word.came,
            choices=choices,
        )
        call = calls.start(
            arguments,
            call_id=connection.pc_id,
            hang_up=lambda: self.door.hang_up(connection),
            identity=identity,
            uses_recogniser=calls.uses_recogniser(body.get("mode")),
            may_wait=True,
            transport=TRANSPORT,
            counts_silence=True,
            is_counted=await self._bodies.is_counted(body),
        )
        call.add_done_callback(lambda _call: first_word.close())
        if arguments.line is not None:
            # In the queue nothing of the browser is read, and it holds no line.
            arguments.line.when_granted(partial(first_word.watch, call))
