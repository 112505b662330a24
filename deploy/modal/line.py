"""Server of one call: the part of a container that does not depend on Modal.

``Line`` runs ``parley serve`` on a port of this machine alone, passes one offer of a browser on to it, and
waits until its call is over. The call's media go between the browser and the server, past this module.
"""

import asyncio
import sys
from types import TracebackType
from typing import Any, Self

import aiohttp

HOST, PORT = "127.0.0.1", 7860
# Loading from the disk of a new container is slower than here.
START_S, REQUEST_S, STOP_S = 60.0, 15.0, 10.0
LOOK_S = 0.5
# A call that was answered and to which no media came is over.
CONNECT_S = 30.0


class LineError(Exception):
    """The server did not start, refused the offer, or died."""


class Line:
    """Server of one call, while the context lasts.

    Args:
        config: deployment, a name or a path.
        port: of the server.
    """

    def __init__(self, config: str = "embedded", port: int = PORT) -> None:
        self._arguments = ["serve", "--config", config, "--host", HOST, "--port", str(port)]
        self._url = f"http://{HOST}:{port}"
        self._server: asyncio.subprocess.Process | None = None
        self._http: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.create_subprocess_exec(sys.executable, "-m", "parley", *self._arguments)
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=REQUEST_S))
        try:
            async with asyncio.timeout(START_S):
                await self._until_ready()
        except BaseException as error:
            await self.close()
            if isinstance(error, TimeoutError):
                raise LineError(f"the server did not start within {START_S:g} s") from None
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop the server: what is being said is finished, within ``STOP_S``."""
        if self._http is not None:
            await self._http.close()
        if self._server is None or self._server.returncode is not None:
            return
        self._server.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await self._server.wait()
        except TimeoutError:
            self._server.kill()
            await self._server.wait()

    async def answer(self, offer: dict[str, Any]) -> dict[str, Any]:
        """Pass an offer on to the server, with the fields of its call (``requestData``); return the answer.

        Raises:
            LineError: it was refused.
        """
        assert self._http is not None
        async with self._http.post(f"{self._url}/api/offer", json=offer) as answer:
            found: dict[str, Any] = await answer.json()
            if answer.status != 200:
                raise LineError(str(found.get("error", answer.status)))
            return found

    async def until_over(self) -> None:
        """Wait until the call that was answered has ended.

        Raises:
            LineError: the server died.
        """
        began_s = asyncio.get_running_loop().time()
        was_connected = False
        while True:
            await asyncio.sleep(LOOK_S)
            calls = (await self._status())["calls"]
            was_connected = was_connected or calls > 0
            if not calls and (was_connected or asyncio.get_running_loop().time() - began_s > CONNECT_S):
                return

    async def _until_ready(self) -> None:
        while True:
            if await self._is_ready():
                return
            # Another process: only a request shows that it is ready.
            await asyncio.sleep(LOOK_S)

    async def _is_ready(self) -> bool:
        if self._server is not None and self._server.returncode is not None:
            raise LineError(f"the server ended with status {self._server.returncode}")
        try:
            await self._status()
        except aiohttp.ClientError:
            return False
        return True

    async def _status(self) -> dict[str, Any]:
        assert self._http is not None and self._server is not None
        if self._server.returncode is not None:
            raise LineError(f"the server ended with status {self._server.returncode}")
        async with self._http.get(f"{self._url}/status") as answer:
            found: dict[str, Any] = await answer.json()
            return found
