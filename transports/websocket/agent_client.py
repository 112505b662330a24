"""A call to an agent elsewhere: this process opens the socket, and the agent's voice is the caller.

    the agent's frames -> heard (bounded) --+                  +-- buffer (bounded) <- the pipeline's output
                                            v   every 20 ms    v
                       the pipeline's input <---- the clock ----> the agent

The frames are Pipecat's Protocol Buffers, as ``/ws`` and other servers of Pipecat take them. Both directions
go by one clock, in pieces of 20 ms: the agent gets a microphone that is never silent on the wire, and its
audio, which servers send ahead of its time, is heard when it would be played. An interruption of the agent
drops what of its audio was not heard yet, as a page does. RTVI messages of the agent are read and have no
effect; it gets ``client-ready``, for which servers may wait.

The input side owns both tasks, the reader and the clock. An agent that sends more than ``MOST_HEARD_MS``
ahead, or what is no frame, ends the call, and so does the end of the socket. A slow socket holds back the
clock, and the buffer holds back the pipeline.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass

from google.protobuf.message import DecodeError
from loguru import logger
from pipecat.frames.frames import InputAudioRawFrame, OutputAudioRawFrame, StartFrame
from pipecat.frames.protobufs import frames_pb2
from pipecat.processors.frameworks.rtvi.models import MESSAGE_LABEL, PROTOCOL_VERSION
from pipecat.runner.types import RunnerArguments
from pipecat.transports.base_transport import BaseTransport, TransportParams
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidHandshake, InvalidURI, WebSocketException

from parley.core.errors import PeerError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.client_protocol import ProtocolError
from parley.transports.direct_input import DirectAudioInput
from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.local.sound_lines import LoudspeakerBuffer
from parley.transports.pipecat_internals import declare_events, emit
from parley.transports.request import TransportRequest
from parley.transports.websocket.pipecat_frames import CallSerializer, message_frame

RATE_HZ = 16_000
PIECE_MS = 20
PIECE_BYTES = RATE_HZ * PIECE_MS // 1_000 * PCM_BYTES_PER_SAMPLE
# How late the loop may be before a word has a gap.
LEAD_BYTES = 3 * PIECE_BYTES
# Servers send a reply ahead of its time, Pipecat's own twice as fast as it is spoken.
MOST_HEARD_MS = 120_000
# A loop that was held up for longer goes on from now: what was not sent meanwhile is not caught up.
MOST_LATE_S = 0.5
OPEN_S, SEND_S, CLOSE_S = 10.0, 5.0, 2.0
MOST_BYTES = 1_000_000
CLIENT_READY = {
    "label": MESSAGE_LABEL,
    "type": "client-ready",
    "id": "1",
    "data": {"version": PROTOCOL_VERSION, "about": {"library": "parley"}},
}


@dataclass
class AgentArguments(RunnerArguments):
    """Arguments of a call to an agent.

    Attributes:
        url: of its socket, ``ws`` or ``wss``; a token may stand in it.
    """

    url: str = ""


class AgentInput(DirectAudioInput):
    """Side of the agent's voice; owns the reader and the clock."""

    def __init__(self, transport: "AgentTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._agent = transport
        self._serializer = CallSerializer(RATE_HZ)
        self._heard = bytearray()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)
        await self._agent.send(message_frame(CLIENT_READY))
        self._tasks = [
            self.create_task(self._read(), name="agent_reader"),
            self.create_task(self._keep_time(), name="agent_clock"),
        ]
        await self._agent.connected()

    async def cleanup(self) -> None:
        await super().cleanup()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)
        await self._agent.close()

    async def _read(self) -> None:
        why = "the agent has ended the call"
        try:
            async for message in self._agent.socket:
                if isinstance(message, bytes):
                    await self._take(message)
        except (WebSocketException, OSError) as error:
            why = f"the line to the agent broke: {type(error).__name__}"
        except ProtocolError as error:
            why = f"the agent sent what cannot be used: {error}"
        await self._agent.disconnected(why)

    async def _take(self, message: bytes) -> None:
        kind = _kind_of(message)
        if kind == "interruption":
            self._heard.clear()
        elif kind == "audio":
            frame = await self._serializer.deserialize(message)
            self._heard += frame.audio if isinstance(frame, InputAudioRawFrame) else b""
            if len(self._heard) // PIECE_BYTES * PIECE_MS > MOST_HEARD_MS:
                raise ProtocolError(f"over {MOST_HEARD_MS // 1_000} s of audio ahead", code="too_fast")

    async def _keep_time(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            if not await self._agent.send_piece():
                return
            pcm = bytes(self._heard[:PIECE_BYTES]).ljust(PIECE_BYTES, b"\0")
            del self._heard[:PIECE_BYTES]
            await self.push_audio_frame(InputAudioRawFrame(pcm, RATE_HZ, 1))
            due_s += PIECE_MS / 1_000
            if loop.time() - due_s > MOST_LATE_S:
                due_s = loop.time()
            await asyncio.sleep(max(0.0, due_s - loop.time()))


class AgentOutput(InterruptibleOutput):
    """Side of the bot's voice, which the clock sends."""

    def __init__(self, transport: "AgentTransport", params: TransportParams) -> None:
        super().__init__(params)
        self._agent = transport

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        await self.set_transport_ready(frame)

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        return await self._agent.buffer.write(frame.audio)

    def drop_unsent(self) -> None:
        self._agent.buffer.clear()


class AgentTransport(BaseTransport):
    """A call to an agent over an open socket.

    Event handlers available: ``on_client_connected(transport, client)``,
    ``on_client_disconnected(transport, client)``.

    Args:
        socket: open; closed with the call.
        request: of the conversation.
    """

    def __init__(self, socket: ClientConnection, request: TransportRequest) -> None:
        super().__init__()
        self.socket = socket
        self.buffer = LoudspeakerBuffer(
            lead_bytes=LEAD_BYTES, on_packet=lambda pcm, _at_us: request.on_packet(pcm)
        )
        params = TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=RATE_HZ,
            audio_out_sample_rate=RATE_HZ,
            # The clock sends silence.
            audio_out_end_silence_secs=0,
        )
        self._agent_input = AgentInput(self, params)
        self._agent_output = AgentOutput(self, params)
        declare_events(self, "on_client_connected", "on_client_disconnected")

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain of the next piece (``SupportsGain``)."""
        self.buffer.set_gain_db(gain_db)

    def input(self) -> AgentInput:
        return self._agent_input

    def output(self) -> AgentOutput:
        return self._agent_output

    async def send_piece(self) -> bool:
        """Send the next piece of the bot's audio; return False when the agent takes nothing any more."""
        frame = frames_pb2.Frame()  # type: ignore[attr-defined]
        frame.audio.audio = self.buffer.take(PIECE_BYTES)
        frame.audio.sample_rate, frame.audio.num_channels = RATE_HZ, 1
        return await self.send(frame.SerializeToString())

    async def send(self, message: bytes) -> bool:
        """Send a message; return False when the agent takes nothing any more, which its reader reports."""
        try:
            async with asyncio.timeout(SEND_S):
                await self.socket.send(message)
        except (WebSocketException, OSError, TimeoutError) as error:
            logger.info(f"the agent takes nothing any more: {type(error).__name__}")
            # Ends the reader where the agent has only stopped reading.
            await self.close()
            return False
        return True

    async def connected(self) -> None:
        """Emit ``on_client_connected``."""
        await emit(self, "on_client_connected", self.socket)

    async def disconnected(self, why: str) -> None:
        """Emit ``on_client_disconnected``."""
        logger.info(why)
        await emit(self, "on_client_disconnected", self.socket)

    async def close(self) -> None:
        """Close the socket, within ``CLOSE_S``."""
        with suppress(WebSocketException, OSError, TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self.socket.close()


async def open_agent(arguments: AgentArguments, request: TransportRequest) -> AgentTransport:
    """Call the agent.

    Raises:
        PeerError: it cannot be reached, or refuses.
    """
    try:
        socket = await connect(arguments.url, open_timeout=OPEN_S, max_size=MOST_BYTES, compression=None)
    except InvalidURI as error:
        raise PeerError("the address is none of a socket: ws://host:port/path or wss://...") from error
    except (InvalidHandshake, OSError, TimeoutError) as error:
        # The address may hold a token.
        raise PeerError(f"the agent cannot be reached: {error or 'no answer'}") from error
    return AgentTransport(socket, request)


def _kind_of(message: bytes) -> str:
    """Return the kind of a frame.

    Raises:
        ProtocolError: not a frame.
    """
    try:
        frame = frames_pb2.Frame.FromString(message)  # type: ignore[attr-defined]
    except DecodeError as error:
        raise ProtocolError("a message is not a frame of Pipecat's", code="invalid_payload") from error
    kind = frame.WhichOneof("frame")
    if kind is None:
        raise ProtocolError("a frame is empty", code="invalid_payload")
    return str(kind)
