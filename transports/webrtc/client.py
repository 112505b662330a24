"""Media and messages of one browser, between Pipecat's connection and its input and output.

Decides when audio is written, which pictures go on, and when the peer last gave a sign of life. It has
the methods that Pipecat's ``SmallWebRTCInputTransport`` and ``SmallWebRTCOutputTransport`` call on their
client. It does not extend ``SmallWebRTCClient``: everything but the sending of messages works differently
here, and that class's tracks, rates and handlers are private.

Handlers of the connection stay until it is closed, which is later than the end of a call: ``release`` leaves
them without effect.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from aiortc import RTCRemoteInboundRtpStreamStats, RTCRtpCodecParameters
from aiortc.mediastreams import MediaStreamError
from av import VideoFrame
from pipecat.frames.frames import (
    InputAudioRawFrame,
    OutputAudioRawFrame,
    OutputImageRawFrame,
    OutputTransportMessageFrame,
    OutputTransportMessageUrgentFrame,
    UserImageRawFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import (
    AUDIO_TRANSCEIVER_INDEX,
    SCREEN_VIDEO_TRANSCEIVER_INDEX,
    VIDEO_TRANSCEIVER_INDEX,
    SmallWebRTCConnection,
    SmallWebRTCTrack,
)
from pipecat.transports.smallwebrtc.transport import (
    CAM_VIDEO_SOURCE,
    MIC_AUDIO_SOURCE,
    SCREEN_VIDEO_SOURCE,
    SmallWebRTCCallbacks,
)
from pipecat.utils.shared import acquires, releases

from parley.core.frame_facts import CAPTURED_S
from parley.core.pictures import SCREEN
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.transports.pipecat_internals import last_ping_s, receiver_of
from parley.transports.request import LONGEST_PX, PICTURES_PER_S
from parley.transports.webrtc.audio_track import PacedAudioTrack
from parley.transports.webrtc.caller_audio import CallerAudio
from parley.transports.webrtc.connection_state import is_over, packets_received
from parley.transports.webrtc.rtp import RtpAudio, RtpReader

NO_VIDEO_S = 0.1
VIDEO_WAIT_S = 2.0
# In the order in which both peers have made them.
SOURCES = {
    AUDIO_TRANSCEIVER_INDEX: MIC_AUDIO_SOURCE,
    VIDEO_TRANSCEIVER_INDEX: CAM_VIDEO_SOURCE,
    SCREEN_VIDEO_TRANSCEIVER_INDEX: SCREEN_VIDEO_SOURCE,
}


class PacedWebRTCClient:
    """Client of one call.

    Args:
        connection: connection of the peer.
        callbacks: callbacks of the transport.
        on_packet: receives the PCM of every packet of bot audio as it leaves; must not block.
        on_first_word: called when the first audio or message of the peer has come; must not block.
        pictures_per_s: of a camera; further ones are dropped before they are converted.
        longest_px: side to which a picture is scaled down before it goes on.
        events: events of the call, for packets that are late.
    """

    def __init__(
        self,
        connection: SmallWebRTCConnection,
        callbacks: SmallWebRTCCallbacks,
        *,
        on_packet: Callable[[bytes], None] | None,
        on_first_word: Callable[[], None] | None = None,
        pictures_per_s: float = PICTURES_PER_S,
        longest_px: int = LONGEST_PX,
        events: CallEvents | None = None,
    ) -> None:
        self._connection = connection
        self._picture_s, self._longest_px = 1 / pictures_per_s, longest_px
        self._callbacks: SmallWebRTCCallbacks | None = callbacks
        self._on_first_word = on_first_word
        self._on_packet = on_packet
        self._events = events
        self._is_closing = False
        # Kept until it has ended; the signaling waits for the connection too, with a deadline.
        self._hanging_up: asyncio.Task[None] | None = None
        # None before the pipeline is built, and after it has ended.
        self._params: TransportParams | None = None
        self._input_rate_hz = self._output_rate_hz = self._channels = 0
        self._audio: CallerAudio | None = None
        self._microphone: RtpReader | None = None
        self._cameras: dict[str, SmallWebRTCTrack | None] = {}
        self._paced: PacedAudioTrack | None = None
        self._last_media_us: int | None = None
        self._clock = LoopClock()
        self._last_ping: float | None = None
        connection.add_event_handler("connected", self._on_connected)
        connection.add_event_handler("disconnected", self._on_disconnected)
        connection.add_event_handler("closed", self._on_closed)
        connection.add_event_handler("app-message", self._on_message)
        connection.add_event_handler("track-status", self._on_track_status)

    async def setup(self, params: TransportParams, setup: FrameProcessorSetup) -> None:
        """Set the rates of the pipeline; called by the input and by the output."""
        self.prepare(
            params,
            input_rate_hz=params.audio_in_sample_rate or setup.audio_in_sample_rate,
            output_rate_hz=params.audio_out_sample_rate or setup.audio_out_sample_rate,
        )

    def prepare(self, params: TransportParams, *, input_rate_hz: int, output_rate_hz: int) -> None:
        """Set the rates; from then on the caller's sound is kept, also before there is a pipeline."""
        self._params = params
        self._channels = params.audio_in_channels
        self._input_rate_hz, self._output_rate_hz = input_rate_hz, output_rate_hz
        if self._audio is None:
            self._audio = CallerAudio(self._input_rate_hz, self._channels)

    @acquires("connection")
    async def connect(self) -> None:
        """Connect to the peer, once for the input and the output."""
        if not self._connection.is_connected():
            await self._connection.connect()

    @releases("connection")
    async def disconnect(self) -> None:
        """Hang up, when both the input and the output have released the peer."""
        if self.is_connected and not self._is_closing:
            self._is_closing = True
            # A pipeline that has ended cancels the processor that hangs up. A peer connection that is half
            # closed cannot be closed any more, and its peer waits half a minute for signs of life.
            self._hanging_up = asyncio.create_task(self._connection.disconnect(), name="webrtc.hang_up")
            await asyncio.shield(self._hanging_up)
            await self._on_disconnected(self._connection)

    @property
    def is_connected(self) -> bool:
        """True when the peer is present by its pings, or by its connection where it sends none."""
        return self._connection.is_connected()

    @property
    def can_send(self) -> bool:
        """True when the peer connection is up; pings do not count."""
        return self._connection.pc.connectionState == "connected" and not self._is_closing

    async def _on_connected(self, connection: SmallWebRTCConnection) -> None:
        if not self._params or self._callbacks is None:
            return
        self._read_microphone(connection.audio_input_track())
        self._cameras = {
            CAM_VIDEO_SOURCE: connection.video_input_track(),
            SCREEN_VIDEO_SOURCE: connection.screen_video_input_track(),
        }
        if self._params.audio_out_enabled and self._paced is None:
            transceivers = connection.pc.getTransceivers()
            self._paced = PacedAudioTrack(
                self._output_rate_hz,
                on_packet=self._on_packet,
                events=self._events,
                # The one whose track the connection replaces; a peer may have data alone.
                sender=transceivers[AUDIO_TRANSCEIVER_INDEX].sender if transceivers else None,
            )
            connection.replace_audio_track(self._paced)
        self._last_media_us = self._clock.now_us()
        await self._callbacks.on_client_connected(connection)

    def _read_microphone(self, track: SmallWebRTCTrack | None) -> None:
        """Read the packets of a track, in place of an earlier one's."""
        if self._microphone is not None:
            self._microphone.detach()
        self._microphone = None if track is None else RtpReader(receiver_of(track), self._take_packet)

    def _take_packet(self, packet: RtpAudio, codec: RTCRtpCodecParameters) -> None:
        if self._audio is not None:
            self._last_media_us = self._clock.now_us()
            self._audio.take(packet, codec)

    async def _on_disconnected(self, _connection: SmallWebRTCConnection) -> None:
        self._stop_paced()
        self._forget_tracks()

    async def _on_closed(self, connection: SmallWebRTCConnection) -> None:
        self._stop_paced()
        self._forget_tracks()
        # Not when this side has hung up.
        if not self._is_closing and self._callbacks is not None:
            await self._callbacks.on_client_disconnected(connection)

    async def _on_message(self, connection: SmallWebRTCConnection, message: Any) -> None:
        self.note_message()
        if self._callbacks is not None:
            await self._callbacks.on_app_message(message, connection.pc_id)

    async def _on_track_status(
        self, _connection: SmallWebRTCConnection, receiver_index: int, enabled: bool
    ) -> None:
        source = SOURCES.get(receiver_index)
        if source and self._callbacks is not None:
            await self._callbacks.on_track_status(source, enabled)

    def _forget_tracks(self) -> None:
        self._read_microphone(None)
        self._cameras = {}

    def _stop_paced(self) -> None:
        if self._paced is not None:
            self._paced.stop()
            self._paced = None

    async def send_message(
        self, frame: OutputTransportMessageFrame | OutputTransportMessageUrgentFrame
    ) -> None:
        """Send a message; the connection keeps it until its channel is open."""
        if not self._is_closing:
            self._connection.send_app_message(frame.message)

    def video_source_enabled(self, video_source: str) -> bool:
        """Return whether the peer sends pictures of a source."""
        track = self._cameras.get(video_source)
        return track is not None and track.is_enabled()

    async def write_video_frame(self, frame: OutputImageRawFrame) -> bool:
        """Return False without sending: the bot has no pictures."""
        return False

    async def read_audio_frame(self) -> AsyncGenerator[InputAudioRawFrame, None]:
        """Yield the caller's sound, piece by piece."""
        audio, channels = self._audio, self._channels
        while audio is not None:
            pcm = await audio.read()
            self._note_word()
            frame = InputAudioRawFrame(audio=pcm, sample_rate=self._input_rate_hz, num_channels=channels)
            left_us = self._clock.now_us()
            # The pipeline has processed the piece when it takes the next one.
            yield frame
            audio.pieces.took((self._clock.now_us() - left_us) / 1000, frame.num_frames)

    async def read_video_frame(self, video_source: str) -> AsyncGenerator[UserImageRawFrame, None]:
        """Yield pictures of a track, ``pictures_per_s``, converted in a thread, with their arrival.

        Pipecat's own client converts each of thirty a second on the loop.
        """
        loop = asyncio.get_running_loop()
        due_s = 0.0
        while True:
            track = self._cameras.get(video_source)
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
                self._cameras.pop(video_source, None)
                continue
            if not isinstance(frame, VideoFrame):
                # A track that the peer has switched off returns at once without a picture.
                await asyncio.sleep(NO_VIDEO_S)
                continue
            now_s = loop.time()
            if now_s < due_s:
                continue
            # On a grid: a camera's own interval would be added to each of these otherwise.
            due_s = max(due_s + self._picture_s, now_s + self._picture_s / 2)
            size, image = await asyncio.to_thread(_as_rgb, frame, self._longest_px)
            picture = UserImageRawFrame(user_id=self._connection.pc_id, image=image, size=size, format="RGB")
            CAPTURED_S.put(picture, now_s)
            picture.transport_source = SCREEN if video_source == SCREEN_VIDEO_SOURCE else video_source
            yield picture

    async def write_audio_frame(self, frame: OutputAudioRawFrame) -> bool:
        if not self.can_send or self._paced is None:
            return False
        return await self._paced.write(frame.audio)

    @property
    def unsent_us(self) -> int:
        """Length of the bot's audio that was accepted and has not left."""
        return 0 if self._paced is None else self._paced.unsent_us

    def set_gain_db(self, gain_db: float) -> None:
        """Set the bot's volume from the next packet on; no effect before the call is up."""
        if self._paced is not None:
            self._paced.gain.set_db(gain_db)

    def drop_unsent_audio(self) -> None:
        """Drop unsent audio: silence from the next packet on."""
        if self._paced is not None:
            self._paced.clear()

    def note_message(self) -> None:
        """Count a message as a sign of life."""
        self._last_media_us = self._clock.now_us()
        self._note_word()

    def _note_word(self) -> None:
        first, self._on_first_word = self._on_first_word, None
        if first is not None:
            first()

    def quiet_ms(self) -> int:
        """Return milliseconds since the peer's last audio, message or ping; 0 before the call is up."""
        if self._last_media_us is None:
            return 0
        now_us = self._clock.now_us()
        # Only a change counts, as the wall clock may be set.
        pinged = last_ping_s(self._connection)
        if pinged != self._last_ping:
            self._last_ping = pinged
            self._last_media_us = now_us
        return (now_us - self._last_media_us) // 1000

    async def packets_received(self) -> int:
        """Return how many packets have come from the peer, also those about its reception."""
        return await packets_received(self._connection)

    async def receiver_report(self) -> RTCRemoteInboundRtpStreamStats | None:
        """Return the peer's newest RTCP report about the bot's audio; None before the first."""
        for sender in self._connection.pc.getSenders():
            if sender.kind == "audio":
                for stats in (await sender.getStats()).values():
                    if isinstance(stats, RTCRemoteInboundRtpStreamStats):
                        return stats
        return None

    def release(self) -> None:
        """Drop the tracks and the callbacks of a call whose pipeline has ended."""
        self._stop_paced()
        # Without parameters, a connection that comes up now starts no track.
        self._params = self._callbacks = None
        self._on_packet = self._on_first_word = self._events = None
        self._forget_tracks()
        self._audio = None

    async def note_if_closed(self) -> None:
        """End the call of a peer that has hung up before its pipeline began."""
        if self._params and is_over(self._connection):
            await self._on_closed(self._connection)

    async def close_peer(self) -> None:
        """Close the connection as if the peer had hung up."""
        await self._connection.disconnect()


def _as_rgb(frame: VideoFrame, longest_px: int) -> tuple[tuple[int, int], bytes]:
    """Return (width, height) and raw RGB of a picture, no side longer than ``longest_px``. Blocks."""
    scale = min(1.0, longest_px / max(frame.width, frame.height))
    width, height = (max(1, round(side * scale)) for side in (frame.width, frame.height))
    return (width, height), frame.to_ndarray(format="rgb24", width=width, height=height).tobytes()
