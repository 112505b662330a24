"""Pipecat's SmallWebRTC transport with seven changes that a live call needs.

1. Output goes through ``PacedAudioTrack``: late loops do not tear words, silence costs nothing, and an
   interruption drops what has not been sent (stock keeps up to one chunk).
2. The bot never believes it spoke to a peer that heard nothing: audio is written while the peer connection
   stands, not only while pings arrive (a throttled tab stops pinging and keeps listening).
3. A peer that vanishes is noticed after ``vanish_ms`` without media or messages, instead of when ICE consent
   expires half a minute later. The watch is a task of the input transport and ends with it.
4. What the peer reports about the line is read every ``REPORT_S`` and becomes an estimate of how long audio
   takes to the ear (``client_delay``), in another task of the input transport.
5. The caller is heard when packets arrive: nothing is kept back for an ear that is not there (``arrival``).
6. Of a camera some pictures a second go on, converted in a thread.
7. A call that has ended is freed at once: the transport lets go of its pipeline (``ReleasesCall``), and audio
   is read without a task for each packet. The last of those would hold the receiver in a reference cycle.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import numpy as np
from aiortc import RTCRemoteInboundRtpStreamStats
from aiortc.mediastreams import MediaStreamError
from av import AudioFrame, VideoFrame
from loguru import logger
from pipecat.frames.frames import (
    InputAudioRawFrame,
    OutputAudioRawFrame,
    StartFrame,
    UserImageRawFrame,
)
from pipecat.transports.base_transport import BaseTransport, TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import (
    CAM_VIDEO_SOURCE,
    SmallWebRTCCallbacks,
    SmallWebRTCClient,
    SmallWebRTCInputTransport,
    SmallWebRTCOutputTransport,
    SmallWebRTCTransport,
)

from transports.direct_input import DirectAudioInput
from transports.interruptible_output import InterruptibleOutput
from transports.webrtc.arrival import deliver_at_once
from transports.webrtc.audio_track import RTP_RATE_HZ, PacedAudioTrack
from transports.webrtc.client_delay import ClientDelay
from transports.webrtc.connection_state import is_over

# aiortc queues decoded frames of 20 ms without a bound.
MAX_BACKLOG_FRAMES = 25
# More of a camera nobody looks at: an engine sees one picture in each of its units.
PICTURES_PER_S = 2.0
# A picture is scaled down to this side before it goes on.
LONGEST_PX = 1_344
NO_VIDEO_S = 0.1
VIDEO_WAIT_S = 2.0
NO_AUDIO_S = 0.01
AUDIO_WAIT_S = 2.0
# aiortc's peers and browsers report once a second or so.
REPORT_S = 2.0


class PacedWebRTCClient(SmallWebRTCClient):
    """Media and messages of one peer."""

    def __init__(
        self,
        connection: SmallWebRTCConnection,
        callbacks: SmallWebRTCCallbacks,
        *,
        on_packet: Callable[[bytes], None] | None,
        jitter_buffer: bool,
        on_first_word: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(connection, callbacks)
        self._on_first_word = on_first_word
        self._jitter_buffer = jitter_buffer
        self._on_packet = on_packet
        self._paced: PacedAudioTrack | None = None
        self._last_media_s: float | None = None
        self._last_ping: float | None = None

    async def _handle_client_connected(self) -> None:
        if not self._params:
            return
        self._audio_input_track = self._webrtc_connection.audio_input_track()
        if self._audio_input_track is not None and not self._jitter_buffer:
            deliver_at_once(self._audio_input_track._receiver)
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
        while True:
            track = self._audio_input_track
            if track is None:
                await asyncio.sleep(NO_AUDIO_S)
                continue
            try:
                async with asyncio.timeout(AUDIO_WAIT_S):
                    decoded = await track.recv()
            except TimeoutError:
                continue
            except MediaStreamError:
                # The track is over; a negotiation may bring another.
                self._audio_input_track = None
                continue
            if not isinstance(decoded, AudioFrame):
                await asyncio.sleep(NO_AUDIO_S)
                continue
            self._note_word()
            for piece in self._at_input_rate(decoded):
                self._last_media_s = loop.time()
                frame = InputAudioRawFrame(
                    audio=piece.to_ndarray().astype(np.int16).tobytes(),
                    sample_rate=self._in_sample_rate,
                    num_channels=self._audio_in_channels,
                )
                frame.pts = decoded.pts
                yield frame
                await self._drop_backlog(level)
                level = "WARNING"

    def _at_input_rate(self, frame: AudioFrame) -> list[AudioFrame]:
        """A decoded frame at the rate and with the channels of the pipeline."""
        if frame.sample_rate == self._in_sample_rate and frame.layout.name == self._audio_in_layout:
            return [frame]
        assert self._audio_in_resampler is not None
        return self._audio_in_resampler.resample(frame)

    async def read_video_frame(self, video_source: str) -> AsyncGenerator[UserImageRawFrame, None]:
        """Some pictures of a track, the newest ones, converted in a thread.

        Pipecat's own converts each of thirty a second on the loop.
        """
        loop = asyncio.get_running_loop()
        due_s = 0.0
        while True:
            track = self._video_input_track if video_source == CAM_VIDEO_SOURCE else self._screen_video_track
            if track is None:
                await asyncio.sleep(NO_VIDEO_S)
                continue
            try:
                async with asyncio.timeout(VIDEO_WAIT_S):
                    frame = await track.recv()
            except TimeoutError:
                continue
            except MediaStreamError:
                # The track is over; a negotiation may bring another.
                if video_source == CAM_VIDEO_SOURCE:
                    self._video_input_track = None
                else:
                    self._screen_video_track = None
                continue
            if not isinstance(frame, VideoFrame):
                # A track that the peer has switched off gives nothing, and gives it at once.
                await asyncio.sleep(NO_VIDEO_S)
                continue
            now_s = loop.time()
            if now_s < due_s:
                continue
            due_s = now_s + 1 / PICTURES_PER_S
            size, image = await asyncio.to_thread(_as_rgb, frame)
            picture = UserImageRawFrame(
                user_id=self._webrtc_connection.pc_id, image=image, size=size, format="RGB"
            )
            picture.transport_source = video_source
            yield picture

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

    def set_gain_db(self, gain_db: float) -> None:
        """The bot's volume from the next packet on; nothing before the call is up."""
        if self._paced is not None:
            self._paced.gain.set_db(gain_db)

    def drop_unsent_audio(self) -> None:
        """Silence from the next packet on."""
        if self._paced is not None:
            self._paced.clear()

    def note_message(self) -> None:
        """A message is a sign of life too."""
        self._last_media_s = asyncio.get_running_loop().time()
        self._note_word()

    def _note_word(self) -> None:
        first, self._on_first_word = self._on_first_word, None
        if first is not None:
            first()

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

    async def receiver_report(self) -> RTCRemoteInboundRtpStreamStats | None:
        """The peer's newest RTCP report about the bot's audio; None before the first."""
        for sender in self._webrtc_connection.pc.getSenders():
            if sender.kind == "audio":
                for stats in (await sender.getStats()).values():
                    if isinstance(stats, RTCRemoteInboundRtpStreamStats):
                        return stats
        return None

    def release(self) -> None:
        """Drop the tracks and the callback of a call whose pipeline has ended."""
        self._stop_paced()
        # Without it a connection that comes up now starts no track.
        self._params = None
        self._on_packet = self._on_first_word = None
        self._audio_input_track = self._video_input_track = self._screen_video_track = None
        self._audio_in_resampler = None

    async def note_if_closed(self) -> None:
        """End the call of a peer that has hung up before its pipeline began."""
        if self._params and is_over(self._webrtc_connection):
            await self._handle_client_closed()

    async def close_peer(self) -> None:
        """Close the connection as if the peer had hung up."""
        await self._webrtc_connection.disconnect()


def _as_rgb(frame: VideoFrame) -> tuple[tuple[int, int], bytes]:
    """(width, height) and raw RGB of a picture, no side longer than ``LONGEST_PX``. Blocks."""
    scale = min(1.0, LONGEST_PX / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    return (width, height), frame.to_ndarray(format="rgb24", width=width, height=height).tobytes()


class PacedWebRTCInput(DirectAudioInput, SmallWebRTCInputTransport):
    """Input side; owns the watch for a vanished peer and the one over its reports."""

    def __init__(
        self,
        client: PacedWebRTCClient,
        params: TransportParams,
        *,
        vanish_ms: int,
        on_delay: Callable[[int], None],
        **kwargs: Any,
    ) -> None:
        super().__init__(client, params, **kwargs)
        self._paced_client = client
        self._vanish_ms = vanish_ms
        self._on_delay = on_delay
        self._watch: asyncio.Task[None] | None = None
        self._measuring: asyncio.Task[None] | None = None

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        # The connection may have ended before handlers were registered for that.
        await self._paced_client.note_if_closed()
        if self._watch is None:
            self._watch = self.create_task(self._watch_peer(), name="peer_watch")
        if self._measuring is None:
            self._measuring = self.create_task(self._measure_delay(), name="client_delay")

    async def _stop_tasks(self) -> None:
        await super()._stop_tasks()
        tasks = (self._watch, self._measuring)
        self._watch = self._measuring = None
        for task in tasks:
            if task is not None and task is not asyncio.current_task():
                await self.cancel_task(task)

    async def _watch_peer(self) -> None:
        # A ping is noticed only here, so looking often dates it well; the last wait ends with the time.
        often_ms = self._vanish_ms / 8
        while True:
            left_ms = self._vanish_ms - self._paced_client.quiet_ms()
            if left_ms < 0:
                logger.info(f"{self}: nothing from the peer for {self._vanish_ms} ms, closing")
                await self._paced_client.close_peer()
                return
            await asyncio.sleep(min(left_ms + 1, often_ms) / 1000)

    async def _measure_delay(self) -> None:
        estimate = ClientDelay()
        seen: RTCRemoteInboundRtpStreamStats | None = None
        while True:
            await asyncio.sleep(REPORT_S)
            report = await self._paced_client.receiver_report()
            # aiortc keeps the newest report for ever: one that was seen before is no news.
            if report is None or report is seen:
                continue
            seen = report
            # aiortc gives the jitter as it was reported, in ticks of the RTP clock.
            delay_ms = estimate.report(
                round_trip_s=report.roundTripTime, jitter_s=report.jitter / RTP_RATE_HZ
            )
            if delay_ms is not None:
                self._on_delay(delay_ms)


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
    """SmallWebRTC with paced output, peer liveness and a measured delay.

    Args:
        connection: the negotiated connection.
        params: Pipecat's transport parameters.
        vanish_ms: quiet time after which the peer counts as gone.
        on_packet: told the PCM of every packet of bot audio as it leaves; must not block.
        on_first_word: called when the first audio or message of the peer has come; must not block.
        jitter_buffer: leave the caller's packets in aiortc's.
    """

    def __init__(
        self,
        connection: SmallWebRTCConnection,
        params: TransportParams,
        *,
        vanish_ms: int = 3_500,
        on_packet: Callable[[bytes], None] | None = None,
        on_first_word: Callable[[], None] | None = None,
        jitter_buffer: bool = False,
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
        self._paced_client = PacedWebRTCClient(
            connection,
            self._callbacks,
            on_packet=on_packet,
            on_first_word=on_first_word,
            jitter_buffer=jitter_buffer,
        )
        self._client = self._paced_client
        self._input = None
        self._output = None
        self._vanish_ms = vanish_ms
        self._delay_told: Callable[[int], None] | None = None
        for event in ("on_app_message", "on_client_connected", "on_client_disconnected"):
            self._register_event_handler(event)

        client = self._paced_client

        # Until the connection is closed, which is later than the end of the call.
        @connection.event_handler("app-message")
        async def on_message(_connection: SmallWebRTCConnection, _message: Any) -> None:
            client.note_message()

    def quiet_ms(self) -> int:
        """How long nothing came from the peer; 0 before the call is up."""
        return self._paced_client.quiet_ms()

    def tell_client_delay(self, told: Callable[[int], None]) -> None:
        """See ``TellsClientDelay``: whenever the peer has reported."""
        self._delay_told = told

    def set_gain_db(self, gain_db: float) -> None:
        """See ``SetsGain``."""
        self._paced_client.set_gain_db(gain_db)

    def _on_delay(self, delay_ms: int) -> None:
        if self._delay_told is not None:
            self._delay_told(delay_ms)

    def release(self) -> None:
        """See ``ReleasesCall``. The client goes on until the connection is closed, without effect."""
        self._paced_client.release()
        self._delay_told = None
        self._input = self._output = None
        del self._paced_client, self._client, self._callbacks

    def input(self) -> SmallWebRTCInputTransport:
        if not self._input:
            self._input = PacedWebRTCInput(
                self._paced_client, self._params, vanish_ms=self._vanish_ms, on_delay=self._on_delay
            )
        return self._input

    def output(self) -> SmallWebRTCOutputTransport:
        if not self._output:
            self._output = PacedWebRTCOutput(self._paced_client, self._params)
        return self._output
