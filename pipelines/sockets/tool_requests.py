"""Tools that the client of a socket runs: calls that wait for its answer, and outputs that wait for use."""

import asyncio
import uuid
from typing import Any

from parley.core.errors import EngineError
from parley.core.usage import Usage
from parley.models.tools import EffectUnknownError
from parley.pipelines.sockets.reply_usage import ReplyUsage
from parley.protocols.client_protocol import ProtocolError, ToolCalled
from parley.transports.websocket.transport import SocketTransport

# Calls of tools that may wait for the client at a time.
MOST_ASKED = 16
# Longest wait for the client's request to answer what its tools returned. Where the answer came before the
# request, it could not carry the request's metadata any more.
REQUESTED_S = 0.3


class ToolRequests:
    """Tools of one call that its client runs, and the calls that wait for its answer.

    Args:
        transport: sends the calls to the client.
        usage: tokens of the requests that call them.
    """

    def __init__(self, transport: SocketTransport, usage: ReplyUsage) -> None:
        self._transport, self._usage = transport, usage
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._outputs: list[tuple[asyncio.Future[str], str]] = []
        self._release: asyncio.TimerHandle | None = None

    def take_usage(self) -> Usage | None:
        """Return the tokens of the request that calls a tool, once; None where they are not known."""
        return self._usage.take_of_call()

    def answer(self, call_id: str, output: str) -> None:
        """Take the client's answer to a call of a tool. Raises Refusal when it is not awaited."""
        asked = self._asked.pop(call_id, None)
        if asked is None or asked.done():
            raise ProtocolError(
                "this call no longer expects the output",
                code="item_not_found",
                param="item.call_id",
            )
        self._hold(asked, output)

    async def until_requested(self) -> None:
        """Wait until the client requests the answer to what a tool has returned, for a moment at most."""
        returned: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._hold(returned, "")
        await returned

    def _hold(self, asked: asyncio.Future[str], output: str) -> None:
        self._outputs.append((asked, output))
        if self._release is None:
            self._release = asyncio.get_running_loop().call_later(REQUESTED_S, self.release)

    def release(self) -> None:
        """Return the outputs of tools to the model: the client has requested its answer."""
        release, self._release = self._release, None
        if release is not None:
            release.cancel()
        outputs, self._outputs = self._outputs, []
        for asked, output in outputs:
            if not asked.done():
                asked.set_result(output)

    async def run(self, key: str, name: str, arguments: str, timeout_s: float) -> str:
        """Have the client run a tool.

        Raises:
            EngineError: the client cannot be asked.
            EffectUnknownError: the client was asked, and did not answer.
        """
        session = self._transport.session
        if session.gone.is_set() or len(self._asked) >= MOST_ASKED:
            raise EngineError("the client cannot be reached", engine=name)
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[call_id] = asked
        gone = asyncio.create_task(session.gone.wait(), name="tool.gone")
        self._transport.report(ToolCalled(call_id, name, arguments, self.take_usage()))
        try:
            ends: set[asyncio.Future[Any]] = {asked, gone}
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            # The output may have come, and wait for the request to answer it.
            self.release()
            if asked.done():
                return asked.result()
            raise EffectUnknownError("the client did not answer", engine=name)
        finally:
            gone.cancel()
            self._asked.pop(call_id, None)
