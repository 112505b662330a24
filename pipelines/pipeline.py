"""What holds a conversation over a transport: a cascade, full duplex, a realtime service."""

import asyncio
from typing import Protocol

from pipecat.transports.base_transport import BaseTransport

from pipelines.call import Call
from pipelines.engines import Engines


class Pipeline(Protocol):
    """Holds one conversation over a transport until it ends.

    Args:
        engines: of the process.
        transport: Pipecat's or ours.
        call: the session that it is a part of, and its records.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handle_sigint: end the conversation on Ctrl-C.
        finished: set to end the conversation in good order, after what is being said.
    """

    async def __call__(
        self,
        engines: Engines,
        transport: BaseTransport,
        call: Call,
        *,
        rtvi: bool = True,
        handle_sigint: bool = False,
        finished: asyncio.Event | None = None,
    ) -> None: ...
