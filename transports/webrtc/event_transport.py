"""A call over WebRTC with a client that speaks a protocol of its own: sound by tracks, events by the channel.

The events, the actions and the order of replies are those of a socket (``websocket.transport``). What differs
is the sound. The caller's is read from the packets of the track; from ``open`` on it waits for the pipeline.
The bot's leaves by the paced track, so nothing is sent ahead, the server's own clock knows what was played,
an interruption is silent from the next packet on, and the volume may be lowered.

A client that sends no sound, such as one whose microphone is off, still reports what it receives. One of
which no packet comes for ``VANISH_MS`` has gone; its connection is closed as if it had hung up.

The input owns three tasks more than that of a socket: the track, the watch over the client, and the reading
of its reports.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, cast

from loguru import logger
from pipecat.frames.frames import OutputAudioRawFrame, StartFrame
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.transport import SmallWebRTCCallbacks

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.client_protocol import ClientProtocol, ReplyAudio
from parley.runtime.event_stream import CallEvents
from parley.transports.webrtc.client import PacedWebRTCClient
from parley.transports.webrtc.event_channel import EventConnection
from parley.transports.webrtc.transport import report_delays
from parley.transports.websocket.session import SocketCall
from parley.transports.websocket.transport import SocketInput, SocketOutput, SocketTransport

# Browsers report what they receive every five seconds, or up to half later (RFC 3550, 6.2).
VANISH_MS, LOOK_S = 12_000, 1.0


class TrackProtocol(ClientProtocol, Protocol):
    """Protocol of a client whose sound goes by tracks."""

    def hear(self, pcm: bytes, rate_hz: int) -> bool:
        """Take audio of the caller's track; return whether the call is to hear it now."""
        ...

    def speaks(self, reply_id: str) -> bool:
        """Return whether a reply is to be heard, and not only read."""
        ...


class EventInput(SocketInput):
    """Client's side: the sound of its track, and its actions."""

    def __init__(self, transport: "EventTransport", params: TransportParams) -> None:
        super().__init__(transport, params)
        self._events_transport = transport
        self._tasks: list[asyncio.Task[Any]] = []

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        transport = self._events_transport
        self._tasks = [
            self.create_task(self._read_track(), name="track"),
            self.create_task(self._watch_client(), name="client_watch"),
            self.create_task(report_delays(transport.client, transport.events), name="client_delay"),
        ]

    async def cleanup(self) -> None:
        await super().cleanup()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task)

    async def _read_track(self) -> None:
        transport = self._events_transport
        async for frame in transport.client.read_audio_frame():
            transport.channel.note_packet()
            transport.session.note_words()
            if transport.protocol.hear(frame.audio, frame.sample_rate):
                await self.hear(frame)

    async def _watch_client(self) -> None:
        client, channel, seen = self._events_transport.client, self._events_transport.channel, -1
        while True:
            packets = await client.packets_received()
            if packets != seen:
                seen = packets
                channel.note_packet()
            elif channel.quiet_ms() > VANISH_MS:
                logger.info(f"{self}: the client has sent nothing for {VANISH_MS} ms, closing")
                await client.close_peer()
                return
            await asyncio.sleep(LOOK_S)


class EventOutput(SocketOutput):
    """Bot's side: audio by the track, events by the channel."""

    def __init__(self, transport: "EventTransport", params: TransportParams) -> None:
        super().__init__(transport, params)
        self._events_transport = transport

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        transport = self._events_transport
        if transport.session.gone.is_set():
            return False
        self._begin_if_needed()
        reply_id = self._reply_id
        if reply_id is not None:
            samples = len(frame.audio) // PCM_BYTES_PER_SAMPLE
            self._order.add(reply_id, ReplyAudio(b"", samples * 1000 / frame.sample_rate))
            if not transport.protocol.speaks(reply_id):
                # It is read at the pace of the voice, and counts as heard.
                frame = _silence(frame)
        was_taken = await transport.client.write_audio_frame(frame)
        # The end of a reply is reported when its last audio has left.
        self._next_us = self._clock.now_us() + transport.client.unsent_us
        return was_taken

    def drop_unsent(self) -> None:
        super().drop_unsent()
        self._events_transport.client.drop_unsent_audio()


class EventTransport(SocketTransport):
    """Both sides of the call.

    Args:
        session: session of the client, open.
        params: parameters of Pipecat, with the rates of both directions.
        connection: of the client.
        events: of the call.
        on_packet: called with the PCM of each packet of the bot's audio when it leaves; must not block.
        more: as ``SocketTransport``.

    Attributes:
        client: media of the client.
        channel: its data channel.
        events: of the call.
        protocol: of the client.
    """

    def __init__(
        self,
        session: SocketCall,
        params: TransportParams,
        *,
        connection: EventConnection,
        events: CallEvents,
        on_packet: Callable[[bytes], None],
        **more: Any,
    ) -> None:
        self.channel = connection.events
        self.events = events
        self.protocol = cast(TrackProtocol, session.protocol)
        self.client = PacedWebRTCClient(
            connection,
            SmallWebRTCCallbacks(
                on_app_message=_ignore,
                on_client_connected=_ignore,
                on_client_disconnected=_ignore,
                on_track_status=_ignore,
            ),
            on_packet=on_packet,
            events=events,
        )
        self.client.prepare(
            params,
            input_rate_hz=params.audio_in_sample_rate or 0,
            output_rate_hz=params.audio_out_sample_rate or 0,
        )
        super().__init__(session, params, on_packet=on_packet, **more)

    def made_sides(self, params: TransportParams) -> tuple[SocketInput, SocketOutput]:
        return EventInput(self, params), EventOutput(self, params)

    async def open(self) -> None:
        await self.client.connect()

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain of the next packet (``SupportsGain``)."""
        self.client.set_gain_db(gain_db)

    def release(self) -> None:
        """Release the pipeline (``ReleasesCall``)."""
        self.client.release()


def _silence(frame: OutputAudioRawFrame) -> OutputAudioRawFrame:
    """Return silence of the length of a frame."""
    return OutputAudioRawFrame(bytes(len(frame.audio)), frame.sample_rate, frame.num_channels)


async def _ignore(*_arguments: object) -> None:
    """Do nothing: the channel of the client has its messages, and reports its end."""
