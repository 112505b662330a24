"""Pipecat's SmallWebRTC transport with three changes that a live call needs.

1. Output goes through ``PacedAudioTrack``: late loops do not tear words, silence costs nothing, and an
   interruption drops what has not been sent (stock keeps up to one chunk).
2. The bot never believes it spoke to a peer that heard nothing: audio is written while the peer connection
   stands, not only while pings arrive (a throttled tab stops pinging and keeps listening).
3. A peer that vanishes is noticed after ``vanish_ms`` without media or messages, instead of when ICE consent
   expires half a minute later. The watch is a task of the input transport and ends with it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    InputAudioRawFrame,
    OutputAudioRawFrame,
    StartFrame,
)
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import (
    SmallWebRTCCallbacks,
    SmallWebRTCClient,
    SmallWebRTCInputTransport,
    SmallWebRTCOutputTransport,
    SmallWebRTCTransport,
)

from transports.direct_input import DirectAudioInput
from transports.interruptible_output import InterruptibleOutput
from transports.webrtc.audio_track import PacedAudioTrack

# aiortc queues decoded frames of 20 ms without a bound.
MAX_BACKLOG_FRAMES = 25


class PacedWebRTCClient(SmallWebRTCClient):
    """Media and messages of one peer."""

    def __init__(
        self,
        connection: SmallWebRTCConnection,
        callbacks: SmallWebRTCCallbacks,
        *,
        on_packet: Callable[[bytes], None] | None,
    ) -> None:
        super().__init__(connection, callbacks)
        self._on_packet = on_packet
        self._paced: PacedAudioTrack | None = None
        self._last_media_s: float | None = None
        self._last_ping: float | None = None

    async def _handle_client_connected(self) -> None:
        if not self._params:
            return
        self._audio_input_track = self._webrtc_connection.audio_input_track()
        self._video_input_track = self._webrtc_connection.video_input_track()
        self._screen_video_track = self._webrtc_connection.screen_video_input_track()
        if self._params.audio_out_enabled and self._paced is None:
            self._paced = PacedAudioTrack(self._out_sample_rate, on_packet=self._on_packet)
            self._webrtc_connection.replace_audio_track(self._paced)
        self._last_media_s = asyncio.get_running_loop().time()
        await self._callbacks.on_client_connected(self._webrtc_connection)

    async def _handle_peer_disconnected(self) -> None:
        self._stop_paced()
        await super()._handle_peer_disconnected()

    async def _handle_client_closed(self) -> None:
        self._stop_paced()
        await super()._handle_client_closed()

    def _stop_paced(self) -> None:
        if self._paced is not None:
            self._paced.stop()
            self._paced = None

    def _can_send(self) -> bool:
        return self._webrtc_connection.pc.connectionState == "connected" and not self.is_closing

    async def read_audio_frame(self) -> AsyncGenerator[InputAudioRawFrame, None]:
        loop = asyncio.get_running_loop()
        # What came in while the pipeline was being built is no sign of overload.
        level = "DEBUG"
        async for frame in super().read_audio_frame():
            self._last_media_s = loop.time()
            yield frame
            await self._drop_backlog(level)
            level = "WARNING"

    async def _drop_backlog(self, level: str) -> None:
        """A process that is late hears the present with a gap, not the past in full."""
        track = self._audio_input_track
        waiting = getattr(track, "_queue", None)
        if track is None or waiting is None or waiting.qsize() <= MAX_BACKLOG_FRAMES:
            return
        logger.log(level, f"dropping {waiting.qsize() * 20} ms of input audio: this process is late")
        await track.discard_old_frames()

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        if not self._can_send() or self._paced is None:
            return False
        return await self._paced.write(frame.audio)

    def drop_unsent_audio(self) -> None:
        """Silence from the next packet on."""
        if self._paced is not None:
            self._paced.clear()

    def note_message(self) -> None:
        """A message is a sign of life too."""
        self._last_media_s = asyncio.get_running_loop().time()

    def quiet_ms(self) -> int:
        """How long nothing came from the peer: no audio, no message, no ping. 0 before the call is up."""
        if self._last_media_s is None:
            return 0
        now_s = asyncio.get_running_loop().time()
        # Pings end in the connection, which keeps the wall-clock time of the last one and offers no event.
        # Only whether it changed counts: the wall clock may be set.
        pinged = self._webrtc_connection._last_received_time
        if pinged != self._last_ping:
            self._last_ping = pinged
            self._last_media_s = now_s
        return int((now_s - self._last_media_s) * 1000)

    async def close_peer(self) -> None:
        """Close the connection as if the peer had hung up."""
        await self._webrtc_connection.disconnect()


class PacedWebRTCInput(DirectAudioInput, SmallWebRTCInputTransport):
    """Input side; owns the watch for a vanished peer."""

    def __init__(
        self, client: PacedWebRTCClient, params: TransportParams, *, vanish_ms: int, **kwargs: Any
    ) -> None:
        super().__init__(client, params, **kwargs)
        self._paced_client = client
        self._vanish_ms = vanish_ms
        self._watch: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        if self._watch is None:
            self._watch = self.create_task(self._watch_peer(), name="peer_watch")

    async def _stop_tasks(self) -> None:
        await super()._stop_tasks()
        watch, self._watch = self._watch, None
        if watch is not None and watch is not asyncio.current_task():
            await self.cancel_task(watch)

    async def _watch_peer(self) -> None:
        while True:
            await asyncio.sleep(self._vanish_ms / 1000 / 8)
            if self._paced_client.quiet_ms() > self._vanish_ms:
                logger.info(f"{self}: nothing from the peer for {self._vanish_ms} ms, closing")
                await self._paced_client.close_peer()
                return


class PacedWebRTCOutput(InterruptibleOutput, SmallWebRTCOutputTransport):
    """Output side; an interruption also drops what waits in the track."""

    def __init__(self, client: PacedWebRTCClient, params: TransportParams, **kwargs: Any) -> None:
        super().__init__(client, params, **kwargs)
        self._paced_client = client

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        return await self._paced_client.write_audio_frame(frame)

    def drop_unsent(self) -> None:
        self._paced_client.drop_unsent_audio()


class PacedWebRTCTransport(SmallWebRTCTransport):
    """SmallWebRTC with paced output and peer liveness.

    Args:
        connection: the negotiated connection.
        params: Pipecat's transport parameters.
        vanish_ms: quiet time after which the peer counts as gone.
        on_packet: told the PCM of every packet of bot audio as it leaves; must not block.
    """

    def __init__(
        self,
        connection: SmallWebRTCConnection,
        params: TransportParams,
        *,
        vanish_ms: int = 3_500,
        on_packet: Callable[[bytes], None] | None = None,
    ) -> None:
        # Not SmallWebRTCTransport's: it would build a second client, and every message would be handled
        # twice.
        BaseTransport.__init__(self)
        self._params = params
        self._callbacks = SmallWebRTCCallbacks(
            on_app_message=self._on_app_message,
            on_client_connected=self._on_client_connected,
            on_client_disconnected=self._on_client_disconnected,
            on_track_status=self._on_track_status,
        )
        self._paced_client = PacedWebRTCClient(connection, self._callbacks, on_packet=on_packet)
        self._client = self._paced_client
        self._input = None
        self._output = None
        self._vanish_ms = vanish_ms
        for event in ("on_app_message", "on_client_connected", "on_client_disconnected"):
            self._register_event_handler(event)

        @connection.event_handler("app-message")
        async def on_message(_connection: SmallWebRTCConnection, _message: Any) -> None:
            self._paced_client.note_message()

    def quiet_ms(self) -> int:
        """How long nothing came from the peer; 0 before the call is up."""
        return self._paced_client.quiet_ms()

    def input(self) -> SmallWebRTCInputTransport:
        if not self._input:
            self._input = PacedWebRTCInput(self._paced_client, self._params, vanish_ms=self._vanish_ms)
        return self._input

    def output(self) -> SmallWebRTCOutputTransport:
        if not self._output:
            self._output = PacedWebRTCOutput(self._paced_client, self._params)
        return self._output
