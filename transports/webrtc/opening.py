"""Factory of the transport of a browser's call, from the arguments that bring its connection."""

from pipecat.runner.types import SmallWebRTCRunnerArguments
from pipecat.transports.base_transport import TransportParams, VideoInSourceParams
from pipecat.transports.smallwebrtc.transport import CAM_VIDEO_SOURCE, SCREEN_VIDEO_SOURCE

from parley.transports.request import TransportRequest
from parley.transports.webrtc.transport import PacedWebRTCTransport

# Pipecat's names of the camera and the shared screen.
SOURCES = (CAM_VIDEO_SOURCE, SCREEN_VIDEO_SOURCE)


async def open_browser(
    arguments: SmallWebRTCRunnerArguments, request: TransportRequest
) -> PacedWebRTCTransport:
    """Open the transport of one connection."""
    return PacedWebRTCTransport(
        arguments.webrtc_connection,
        TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_out_end_silence_secs=0,
            video_in_enabled=request.sees,
            video_in_sources=dict.fromkeys(SOURCES, VideoInSourceParams()) if request.sees else {},
        ),
        vanish_ms=request.vanish_ms,
        on_packet=request.on_packet,
        events=request.events,
        pictures_per_s=request.pictures_per_s,
        longest_px=request.longest_px,
        # Only the gateway's arguments have this callback.
        on_first_word=getattr(arguments, "on_first_word", None),
    )
