"""Watch one worker by its own reports, for the pool. The caller's task runs ``run``.

Inputs: the ``state`` messages of the worker link, at every change and a few times a second. Outputs:
``on_state`` with each; ``on_silent`` when none has come for ``silent_ms``, or the socket ended, so that the
worker is assigned to no conversation; ``on_dead`` when none has come for ``patience_ms``, over any number of
sockets. The connection is restored for as long as the worker is watched: a broken link does not mean that the
worker died, and ends no call.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from loguru import logger
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from parley.core.errors import PeerError
from parley.protocols.worker_tokens import Claim, sign
from parley.runtime.engine_hosting.codec import decode, encode
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.serving.pool.settings import PoolTuning

MOST_STATE_BYTES = 1_048_576


def first_watch(worker: str, secret: bytes, token_s: int) -> EngineMessage:
    """Return the first message of a watch of a worker, valid for ``token_s`` from now."""
    claim = Claim(worker, "", "", 0, int(time.time()) + token_s)
    return EngineMessage(MessageType.WATCH, facts=claim.facts(sign(secret, claim)))


class Watch:
    """Watch of one worker.

    Args:
        settings: of the pool.
        first: returns the first message, with a token that is valid now.
        on_state: called with each report.
        on_silent: called when the worker is late, or not reached.
        on_dead: called when it has stopped running, once each time.
        patience_ms: returns how long it may send no report in its present state.
    """

    def __init__(
        self,
        settings: PoolTuning,
        *,
        first: Callable[[], EngineMessage],
        on_state: Callable[[Mapping[str, Any]], None],
        on_silent: Callable[[], None],
        on_dead: Callable[[], None],
        patience_ms: Callable[[], int],
    ) -> None:
        self._settings = settings
        self._first = first
        self._on_state, self._on_silent, self._on_dead = on_state, on_silent, on_dead
        self._patience_ms = patience_ms
        # Time of its last report; None while it is dead, or has never run.
        self._heard_s: float | None = None
        self._socket: ClientConnection | None = None

    async def drain(self) -> None:
        """Make it take no more conversations, and end."""
        if self._socket is not None:
            with suppress(ConnectionClosed):
                await self._socket.send(encode(EngineMessage(MessageType.DRAIN)))

    async def run(self, url: str) -> None:
        """Watch the worker until cancelled."""
        loop = asyncio.get_running_loop()
        self._heard_s = loop.time()
        while True:
            try:
                await self._listen(url)
            except (OSError, TimeoutError, ConnectionClosed, InvalidHandshake):
                # It is not running, or not any more.
                pass
            except Exception as error:  # the outermost level of a watch: it continues after any error
                logger.error(f"{url} is not watched: {type(error).__name__}: {error}")
            self._on_silent()
            if self._heard_s is not None and (loop.time() - self._heard_s) * 1000 >= self._patience_ms():
                self._heard_s = None
                self._on_dead()
            await asyncio.sleep(self._settings.retry_ms / 1000)

    async def _listen(self, url: str) -> None:
        settings = self._settings
        async with connect(
            url,
            open_timeout=settings.connect_ms / 1000,
            close_timeout=0.1,
            # Its reports reveal a silent worker.
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
                    if message.type is MessageType.REFUSED:
                        raise PeerError(str(message.facts.get("message")))
                    if message.type is MessageType.STATE:
                        self._heard_s = asyncio.get_running_loop().time()
                        self._on_state(message.facts)
            finally:
                self._socket = None

    async def _next(self, socket: ClientConnection) -> str | bytes:
        silent_ms, patience_ms = self._settings.silent_ms, self._patience_ms()
        receiving = asyncio.ensure_future(socket.recv())
        try:
            done, _ = await asyncio.wait({receiving}, timeout=silent_ms / 1000)
            if not done:
                self._on_silent()
                done, _ = await asyncio.wait({receiving}, timeout=max(0, patience_ms - silent_ms) / 1000)
            if not done:
                raise TimeoutError
            return receiving.result()
        finally:
            receiving.cancel()
