"""Response that is generated while it is read (server-sent events, an export, a recording).

Decides when it ends: with its last chunk, when the reader has left, or when the reader receives nothing any
more. However it ends, the generator of its chunks is closed first, so that its resources (a place, a turn)
are free when the request is over. An error before the first chunk is a status, not a stream.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

from loguru import logger
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send


class SlowReaderError(Exception):
    """The reader receives nothing any more, or less than its answer permits: the stream breaks off.

    Raised by the chunks too. The text is for the log.
    """


class EventStream(StreamingResponse):
    """Streaming response.

    Args:
        chunks: complete events or lines, as text, or parts of a file; none of them empty.
        stall_s: longest wait for a reader to receive a chunk.
        media_type: of the answer.
        status: of the answer.
        headers: of the answer; None for those of events, which no proxy may buffer.
        on_end: called once when the request is over, also where no chunk was requested of it.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[str, None] | AsyncGenerator[bytes, None],
        *,
        stall_s: float,
        media_type: str = "text/event-stream",
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        on_end: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        headers = {"X-Accel-Buffering": "no"} if headers is None else headers
        super().__init__(chunks, status_code=status, media_type=media_type, headers=headers)
        self._chunks = chunks
        self._stall_s = stall_s
        self._on_end = on_end

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request.

        Raises:
            Exception: as the chunks raise; before the first one, nothing was sent yet.
        """
        # Starlette's own does not notice a reader that leaves before the first chunk. It ends a stream by
        # cancelling it repeatedly, so that nothing in it can be awaited any more.
        streaming = asyncio.create_task(self._stream(send), name="gateway.event_stream")
        leaving = asyncio.create_task(_gone(receive), name="gateway.event_stream.reader")
        try:
            await asyncio.wait({streaming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            streaming.cancel()
            leaving.cancel()
            await asyncio.wait({streaming, leaving})
            if self._on_end is not None:
                await self._on_end()
        for task in (streaming, leaving):
            if not task.cancelled():
                task.result()

    async def _stream(self, send: Send) -> None:
        try:
            async with aclosing(self._chunks) as chunks:
                chunk: str | bytes = await anext(chunks, "")
                start = {
                    "type": "http.response.start",
                    "status": self.status_code,
                    "headers": self.raw_headers,
                }
                await self._give(send, start)
                while chunk:
                    body = chunk.encode() if isinstance(chunk, str) else chunk
                    await self._give(send, {"type": "http.response.body", "body": body, "more_body": True})
                    chunk = await anext(chunks, "")
            await self._give(send, {"type": "http.response.body", "body": b"", "more_body": False})
        except SlowReaderError as slow:
            # The server closes the connection of an answer without an end: its reader notices the cut.
            logger.info(f"closing an event stream: {slow}")

    async def _give(self, send: Send, message: Message) -> None:
        try:
            async with asyncio.timeout(self._stall_s):
                await send(message)
        except TimeoutError as error:
            raise SlowReaderError(f"its reader took nothing for {self._stall_s:g} s") from error


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
