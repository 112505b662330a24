"""Client of a socket that records when each message came, at the output of a call on virtual time."""

import asyncio
import json
from typing import Any

from pipecat.tests.utils import run_test
from pipecat.transports.base_transport import TransportParams

from parley.protocols.client_protocol import Began
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.transports.websocket.session import SocketCall
from parley.transports.websocket.transport import SocketTransport
from tests import virtual_time
from tests.unit.pipelines.test_chat_sockets import Client

RATE_HZ = 24_000


class TimedClient(Client):
    """Client that records the time of each message, in seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[float, str]] = []

    async def send(self, text: str) -> bool:
        self.read.append((asyncio.get_running_loop().time(), json.loads(text)["type"]))
        return await super().send(text)


def messages_for(*frames: object, protocol: Any = None, **params: Any) -> list[tuple[float, str]]:
    """Return a client's messages, with their times, for ``client_after``."""
    return client_after(*frames, protocol=protocol, **params).read


def client_after(*frames: object, protocol: Any = None, **params: Any) -> TimedClient:
    """Return a client with all that it receives when these frames reach the output.

    Args:
        frames: frames, and pauses between them.
        protocol: of the client; None: OpenAI's.
        params: more parameters of the transport.
    """

    async def scenario() -> TimedClient:
        client = TimedClient()
        session = SocketCall(client, protocol or OpenAIRealtime("parley"), rate_hz=16_000)
        session.open()
        session.happen(Began("session-1"))
        transport = SocketTransport(
            session,
            TransportParams(audio_out_enabled=True, audio_out_sample_rate=RATE_HZ, **params),
            input_rate_hz=16_000,
            on_packet=lambda _pcm: None,
            receiver=lambda: None,
            reply_of=lambda _context: None,
            reply_named=lambda _frame: None,
        )
        await run_test(transport.output(), frames_to_send=frames)
        await session.close("over")
        return client

    return virtual_time.run(scenario())
