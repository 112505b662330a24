"""Pipecat's SmallWebRTC with seven changes that a live call needs.

1. Output goes through ``PacedAudioTrack``: late loops put no gaps into words, silence costs nothing, and an
   interruption drops unsent audio (stock keeps up to one chunk).
2. Audio does not count as spoken when the peer received none. It is written while the peer connection is up,
   not only while pings arrive (a throttled tab stops pinging and keeps listening).
3. A peer that vanishes is detected after ``vanish_ms`` without media or messages, instead of when ICE consent
   expires half a minute later. The watch is a task of the input transport and ends with it.
4. The peer's reports about the line are read every ``REPORT_S``, in another task of the input transport. They
   give an estimate of the time that audio takes to the ear (``client_delay``).
5. The caller's packets are read where they arrive, and go on at once (``rtp``, ``caller_audio``): nothing is
   held back for a human listener, and no thread decodes.
6. Of a camera some pictures a second go on, converted in a thread.
7. A call that has ended is freed at once: the transport releases its pipeline (``ReleasesCall``), and audio
   is read without a task for each packet. The last of those would hold the receiver in a reference cycle.

The connection, the input and the output are Pipecat's or its subclasses. The client between them is ours
(``client``), and so is the transport: ``SmallWebRTCTransport`` builds a client of its own, which would handle
every message a second time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from aiortc import RTCRemoteInboundRtpStreamStats
from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    ClientConnectedFrame,
    EndFrame,
    InputTransportMessageFrame,
    OutputAudioRawFrame,
    StartFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import (
    CAM_VIDEO_SOURCE,
    MIC_AUDIO_SOURCE,
    SCREEN_VIDEO_SOURCE,
    SmallWebRTCCallbacks,
    SmallWebRTCClient,
    SmallWebRTCInputTransport,
    SmallWebRTCOutputTransport,
)

from parley.core.call_events import ClientDelayReported
from parley.runtime.event_stream import CallEvents
from parley.transports.direct_input import DirectAudioInput
from parley.transports.interruptible_output import InterruptibleOutput
from parley.transports.pipecat_internals import declare_events, emit
from parley.transports.request import LONGEST_PX, PICTURES_PER_S
from parley.transports.webrtc.audio_track import RTP_RATE_HZ
from parley.transports.webrtc.client import PacedWebRTCClient
from parley.transports.webrtc.client_delay import ClientDelay

# aiortc's peers and browsers report once a second or so.
REPORT_S = 2.0


@dataclass
class PeerMessageFrame(InputTransportMessageFrame):
    """Message of the peer with a short name: Pipecat formats every frame at every step, the base in full."""

    def __str__(self) -> str:
        return str(self.name)


class PacedWebRTCInput(DirectAudioInput, SmallWebRTCInputTransport):
    """Input side; owns the watch for a vanished peer and the reading of its reports."""

    def __init__(
        self,
        client: PacedWebRTCClient,
        params: TransportParams,
        *,
        vanish_ms: int,
        events: CallEvents,
        **kwargs: Any,
    ) -> None:
        super().__init__(as_pipecats(client), params, **kwargs)
        self._paced_client = client
        self._vanish_ms = vanish_ms
        self._events = events
        self._watch: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        # The connection may have ended before handlers were registered for that.
        await self._paced_client.note_if_closed()
        if self._watch is None:
            self._watch = self.create_task(self._watch_peer(), name="peer_watch")
        if self._measuring is None:
            measuring = report_delays(self._paced_client, self._events)
            self._measuring = self.create_task(measuring, name="client_delay")

    async def stop(self, frame: EndFrame) -> None:
        await self._stop_watching()
        await super().stop(frame)

    async def cancel(self, frame: CancelFrame) -> None:
        await self._stop_watching()
        await super().cancel(frame)

    async def cleanup(self) -> None:
        await self._stop_watching()
        await super().cleanup()

    async def push_app_message(self, message: Any) -> None:
        """Push a message to Pipecat's RTVI processor, upstream of the input; no processor below reads one."""
        await self.push_frame(PeerMessageFrame(message=message), FrameDirection.UPSTREAM)

    async def _stop_watching(self) -> None:
        tasks = (self._watch, self._measuring)
        self._watch = self._measuring = None
        for task in tasks:
            if task is not None and task is not asyncio.current_task():
                await self.cancel_task(task)

    async def _watch_peer(self) -> None:
        # A ping is noticed only here, so frequent checks date it well; the last wait ends with the deadline.
        often_ms = self._vanish_ms / 8
        while True:
            left_ms = self._vanish_ms - self._paced_client.quiet_ms()
            if left_ms < 0:
                logger.info(f"{self}: the peer has sent nothing for {self._vanish_ms} ms, closing")
                await self._paced_client.close_peer()
                return
            await asyncio.sleep(min(left_ms + 1, often_ms) / 1000)


class PacedWebRTCOutput(InterruptibleOutput, SmallWebRTCOutputTransport):
    """Output side; an interruption also drops audio queued in the track."""

    def __init__(self, client: PacedWebRTCClient, params: TransportParams, **kwargs: Any) -> None:
        super().__init__(as_pipecats(client), params, **kwargs)
        self._paced_client = client

    async def take_audio(self, frame: OutputAudioRawFrame) -> bool:
        return await self._paced_client.write_audio_frame(frame)

    def drop_unsent(self) -> None:
        self._paced_client.drop_unsent_audio()


class PacedWebRTCTransport(BaseTransport):
    """SmallWebRTC with paced output, peer liveness and a measured delay.

    Event handlers available: ``on_client_connected(transport, connection)``, ``on_client_disconnected``,
    ``on_app_message(transport, message, sender)``.

    Args:
        connection: the negotiated connection.
        params: Pipecat's transport parameters.
        events: of the call.
        vanish_ms: quiet time after which the peer counts as gone.
        on_packet: receives the PCM of every packet of bot audio as it leaves; must not block.
        on_first_word: called when the first audio or message of the peer has come; must not block.
    """

    def __init__(
        self,
        connection: SmallWebRTCConnection,
        params: TransportParams,
        *,
        events: CallEvents,
        vanish_ms: int = 3_500,
        on_packet: Callable[[bytes], None] | None = None,
        on_first_word: Callable[[], None] | None = None,
        pictures_per_s: float = PICTURES_PER_S,
        longest_px: int = LONGEST_PX,
    ) -> None:
        super().__init__()
        self._params = params
        self._client = PacedWebRTCClient(
            connection,
            SmallWebRTCCallbacks(
                on_app_message=self._on_app_message,
                on_client_connected=self._on_connected,
                on_client_disconnected=self._on_disconnected,
                on_track_status=self._on_track_status,
            ),
            on_packet=on_packet,
            events=events,
            on_first_word=on_first_word,
            pictures_per_s=pictures_per_s,
            longest_px=longest_px,
        )
        self._input: PacedWebRTCInput | None = None
        self._output: PacedWebRTCOutput | None = None
        self._vanish_ms = vanish_ms
        self._events = events
        declare_events(self, "on_app_message", "on_client_connected", "on_client_disconnected")

    def quiet_ms(self) -> int:
        """Return for how many milliseconds nothing came from the peer; 0 before the call is up."""
        return self._client.quiet_ms()

    def set_gain_db(self, gain_db: float) -> None:
        """Set the gain of the next packet (``SupportsGain``)."""
        self._client.set_gain_db(gain_db)

    def release(self) -> None:
        """Release the pipeline (``ReleasesCall``). Until the connection closes, the client has no effect."""
        self._client.release()
        self._input = self._output = None
        del self._client

    def input(self) -> PacedWebRTCInput:
        if self._input is None:
            self._input = PacedWebRTCInput(
                self._client, self._params, vanish_ms=self._vanish_ms, events=self._events
            )
        return self._input

    def output(self) -> PacedWebRTCOutput:
        if self._output is None:
            self._output = PacedWebRTCOutput(self._client, self._params)
        return self._output

    def get_client_id(self, client: SmallWebRTCConnection) -> str:
        """Return the name of a peer connection."""
        return client.pc_id

    async def _on_app_message(self, message: Any, sender: str) -> None:
        if self._input is not None:
            await self._input.push_app_message(message)
        await emit(self, "on_app_message", message, sender)

    async def _on_connected(self, connection: SmallWebRTCConnection) -> None:
        # Ahead of the handlers, so that a handler that chooses a source itself prevails.
        for source, wanted in self._params.video_in_sources.items():
            if self._input is not None and source in (CAM_VIDEO_SOURCE, SCREEN_VIDEO_SOURCE):
                framerate = 0 if wanted.on_request_only else wanted.framerate
                await self._input.capture_participant_media(source, framerate)
        await emit(self, "on_client_connected", connection)
        if self._input is not None:
            await self._input.push_frame(ClientConnectedFrame())

    async def _on_disconnected(self, connection: SmallWebRTCConnection) -> None:
        if self._input is not None:
            await self._input.remove_all_video()
        await emit(self, "on_client_disconnected", connection)

    async def _on_track_status(self, source: str, enabled: bool) -> None:
        if self._input is not None and source != MIC_AUDIO_SOURCE and not enabled:
            await self._input.stop_video(source)


async def report_delays(client: PacedWebRTCClient, events: CallEvents) -> None:
    """Publish the time that audio takes to the ear of a client, from its reports; ends by cancellation."""
    estimate = ClientDelay()
    seen: RTCRemoteInboundRtpStreamStats | None = None
    while True:
        await asyncio.sleep(REPORT_S)
        report = await client.receiver_report()
        # aiortc keeps the newest report for ever: one that was read before is not new.
        if report is None or report is seen:
            continue
        seen = report
        # aiortc gives the jitter as it was reported, in ticks of the RTP clock.
        delay_ms = estimate.report(round_trip_s=report.roundTripTime, jitter_s=report.jitter / RTP_RATE_HZ)
        if delay_ms is not None:
            events.publish(ClientDelayReported(events.now_ms(), delay_ms))


def as_pipecats(client: PacedWebRTCClient) -> SmallWebRTCClient:
    """Return a client typed as Pipecat's, whose input and output call its public methods and no others."""
    return cast(SmallWebRTCClient, client)
