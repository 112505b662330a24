"""How one worker stands, by its own word, for the pool. ``run`` is its caller's task.

In: the ``state`` messages of the worker link, at every change and a few times a second. Out: ``on_state``
with each; ``on_silent`` when none has come for ``silent_ms``, ``on_gone`` when the socket ended or none has
come for ``dead_ms``. Then it is connected again, for as long as it is watched.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from core.errors import PeerError
from protocols.worker_link import LinkMessage, Type, decode, encode
from serving.pool.settings import PoolSettings

MOST_STATE_BYTES = 1_048_576


class Watch:
    """See the module.

    Args:
        settings: of the pool.
        first: the first message, with a token that is valid now.
        on_state: told how it stands.
        on_silent: told that it is late.
        on_gone: told that it is not there, once behind each time that it was.
    """

    def __init__(
        self,
        settings: PoolSettings,
        *,
        first: Callable[[], LinkMessage],
        on_state: Callable[[Mapping[str, Any]], None],
        on_silent: Callable[[], None],
        on_gone: Callable[[], None],
    ) -> None:
        self._settings = settings
        self._first = first
        self._on_state, self._on_silent, self._on_gone = on_state, on_silent, on_gone
        self._socket: ClientConnection | None = None

    async def drain(self) -> None:
        """Have it take no more conversations, and end."""
        if self._socket is not None:
            with suppress(ConnectionClosed):
                await self._socket.send(encode(LinkMessage(Type.DRAIN)))

    async def run(self, url: str) -> None:
        """Watch it until cancelled."""
        while True:
            with suppress(OSError, TimeoutError, ConnectionClosed, InvalidHandshake, PeerError):
                await self._listen(url)
            await asyncio.sleep(self._settings.retry_ms / 1000)

    async def _listen(self, url: str) -> None:
        settings = self._settings
        async with connect(
            url,
            open_timeout=settings.connect_ms / 1000,
            close_timeout=0.1,
            # A worker that is silent is found out by its states.
            ping_interval=None,
            max_size=MOST_STATE_BYTES,
            compression=None,
            proxy=None,
        ) as socket:
            self._socket = socket
            try:
                await socket.send(encode(self._first()))
                while True:
                    message = decode(await self._next(socket))
                    if message.type is Type.REFUSED:
                        raise PeerError(str(message.facts.get("message")))
                    if message.type is Type.STATE:
                        self._on_state(message.facts)
            finally:
                self._socket = None
                self._on_gone()

    async def _next(self, socket: ClientConnection) -> str | bytes:
        settings = self._settings
        receiving = asyncio.ensure_future(socket.recv())
        try:
            done, _ = await asyncio.wait({receiving}, timeout=settings.silent_ms / 1000)
            if not done:
                self._on_silent()
                left_s = (settings.dead_ms - settings.silent_ms) / 1000
                done, _ = await asyncio.wait({receiving}, timeout=left_s)
            if not done:
                raise TimeoutError
            return receiving.result()
        finally:
            receiving.cancel()
