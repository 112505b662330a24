"""What holds a conversation over a transport: a cascade, full duplex, a realtime service."""

import asyncio
from typing import Protocol

from pipecat.transports.base_transport import BaseTransport

from pipelines.call import Call
from pipelines.engines import Engines


class Pipeline(Protocol):
    """Holds one conversation over a transport until it ends."""

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
