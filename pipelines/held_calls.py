"""Calls of one process by session, so that a client can go on over a new connection.

A client that has lost its connection begins a call of the same session before its old call has noticed the
loss. The old call is ended first, as if its client had left: it records what was heard, and the new call says
the rest (``session_store.owed``). It would lose the session without those records otherwise, as to any second
call (``session_store.conversations``).
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from loguru import logger
from pipecat.runner.types import RunnerArguments, SmallWebRTCRunnerArguments, WebSocketRunnerArguments
from starlette.websockets import WebSocketDisconnect

# Longest wait for the old call; the client waits for its new one meanwhile.
RECORDED_S = 3.0

HangUp = Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True, eq=False)
class _HeldCall:
    """Call that its client may continue.

    Attributes:
        hang_up: ends it as if its client had left.
        task: of the call.
        over: set when it is recorded.
    """

    hang_up: HangUp
    task: asyncio.Task[Any] | None
    over: asyncio.Event = field(default_factory=asyncio.Event)


class HeldCalls:
    """Calls that a client may continue over a new connection. One instance per process.

    Args:
        recorded_s: longest wait for an old call.
    """

    def __init__(self, *, recorded_s: float = RECORDED_S) -> None:
        self._recorded_s = recorded_s
        self._held: dict[str, _HeldCall] = {}

    @contextmanager
    def holding(self, session_id: str, hang_up: HangUp) -> Iterator[None]:
        """Register the call of a session until the block ends. It ends with the present task."""
        held = self._held[session_id] = _HeldCall(hang_up, asyncio.current_task())
        try:
            yield
        finally:
            held.over.set()
            if self._held.get(session_id) is held:
                del self._held[session_id]

    async def end(self, session_id: str, *, with_task: bool = False) -> None:
        """End the call that holds a session here; return when it is recorded, or after ``recorded_s``.

        Args:
            session_id: of the call.
            with_task: wait for the end of its task too, which gives its line back.
        """
        held = self._held.get(session_id)
        if held is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._recorded_s):
                # A socket whose client is gone may be closed already.
                with suppress(RuntimeError, WebSocketDisconnect):
                    await held.hang_up()
                await held.over.wait()
                if with_task and held.task is not None:
                    await asyncio.wait({held.task})
                return
        logger.warning("a call does not end whose client goes on over a new connection; it loses its session")


def hang_up_of(arguments: RunnerArguments) -> HangUp:
    """Return a function that closes the connection of a call."""
    if isinstance(arguments, SmallWebRTCRunnerArguments):
        return partial(arguments.webrtc_connection.disconnect)
    if isinstance(arguments, WebSocketRunnerArguments):
        return partial(arguments.websocket.close)
    return _nothing


async def _nothing() -> None:
    """Leave a call open whose connection is not ours to close (a meeting room)."""
