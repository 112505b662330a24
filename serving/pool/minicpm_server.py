"""Worker of an unmodified MiniCPM-o server: how it is polled, and how a conversation begins there.

Input: the address of its HTTP server. Outputs: its health (``HealthProbe``), and connected engines
(``minicpm_worker``). It has no leases and no tokens: the first client to connect holds it. An engine is
therefore connected before it is assigned, and after a refusal the health shows whether another client was
first.
"""

import asyncio
import ssl
from concurrent.futures import Executor
from contextlib import suppress
from urllib.parse import urlsplit

import aiohttp

from parley.core.errors import CapacityError, EngineError, PeerError
from parley.models.omni import OmniEngine
from parley.models.omni.minicpm_worker.engine import MiniCpmWorkerHost, MiniCpmWorkerSettings
from parley.models.omni.minicpm_worker.health import Health, parse_health
from parley.models.omni.minicpm_worker.settings import PooledSettings

ENGINE = "minicpm_worker"
# An answer is 250 bytes.
MOST_HEALTH_BYTES = 65_536
# The pool limits the number; an abandoned engine may still be ending when the next one begins.
MOST_ENGINES = 1_000


class ServerWorker:
    """Worker of a MiniCPM-o server.

    Args:
        url: http:// or https:// of the worker.
        settings: of the conversations with it.
        answer_ms: longest wait for its health before a conversation.

    Raises:
        ConfigError: the voice or the certificate cannot be read.
    """

    def __init__(self, url: str, settings: PooledSettings, *, answer_ms: int) -> None:
        self._url = url.rstrip("/")
        self._answer_s = answer_ms / 1000
        socket = self._url.replace("http", "ws", 1) + "/ws/duplex?session_id={session}"
        self._host = MiniCpmWorkerHost(
            MiniCpmWorkerSettings.model_validate(
                {"url": socket, "sessions": MOST_ENGINES, **settings.model_dump()}
            )
        )

    async def ask(self) -> Health:
        """Return the health of the worker (``HealthProbe.ask``)."""
        # A new connection for each poll: a kept one may belong to a process that has ended.
        connector = aiohttp.TCPConnector(force_close=True, ssl=self._tls or True)
        try:
            async with (
                aiohttp.ClientSession(connector=connector) as http,
                http.get(f"{self._url}/health", allow_redirects=False) as answer,
            ):
                if answer.status != 200:
                    raise PeerError(f"{ENGINE}: /health answered with HTTP {answer.status}")
                return parse_health(await _body(answer))
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, ConnectionRefusedError):
                raise ConnectionRefusedError(f"{ENGINE}: no server listens there") from error
            raise
        except aiohttp.ClientError as error:
            raise PeerError(f"{ENGINE}: the answer of /health broke off: {type(error).__name__}") from error

    async def attend(self) -> None:
        """Return when a connection to the worker has ended (``HealthProbe.attend``)."""
        parts = urlsplit(self._url)
        port = parts.port or (80 if self._tls is None else 443)
        with suppress(OSError):
            reader, writer = await asyncio.open_connection(parts.hostname, port, ssl=self._tls)
            try:
                while await reader.read(1_024):
                    pass
            finally:
                writer.transport.abort()

    async def opened(self, executor: Executor, *, sees: bool) -> OmniEngine:
        """Return an engine that holds the worker.

        Args:
            executor: of one thread, which connects.
            sees: true when there may be pictures.

        Raises:
            CapacityError: another client holds it.
            EngineError: it is not reached, does not answer, or does not accept the conversation.
        """
        # A worker that hangs still accepts connections, and one that is taken delays a handshake for 5 s.
        self._check(await self._health())
        engine = self._host.open_engine(sees=sees)
        reaching = executor.submit(engine.reach)
        try:
            await asyncio.wrap_future(reaching)
        except BaseException as error:
            # An engine that is connected too late is released there.
            executor.submit(engine.cleanup)
            if isinstance(error, EngineError):
                # The refusal is the same for a worker that is taken or not ready, and for another server.
                self._check(await self._health())
            raise
        return engine

    @property
    def _tls(self) -> ssl.SSLContext | None:
        return self._host.tls

    async def _health(self) -> Health:
        try:
            async with asyncio.timeout(self._answer_s):
                return await self.ask()
        except (OSError, PeerError) as error:
            raise EngineError(f"{ENGINE}: no health report: {type(error).__name__}", engine=ENGINE) from error

    @staticmethod
    def _check(health: Health) -> None:
        if not health.is_idle:
            raise CapacityError(f"{ENGINE}: the worker is {health.state}", limit=1)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    data = bytearray()
    async for piece in answer.content.iter_any():
        data += piece
        if len(data) > MOST_HEALTH_BYTES:
            raise PeerError(f"{ENGINE}: the health report has more than {MOST_HEALTH_BYTES} bytes")
    return bytes(data)
