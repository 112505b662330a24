"""A room of LiveKit, through Pipecat's transport.

Inputs: the address of a server, the name of a room and an API key with its secret, or the arguments of
Pipecat's runner, which bring a token. Output: the transport that joins the room. It ends its call when the
caller leaves.
"""

from collections.abc import Mapping

from livekit.api import AccessToken, VideoGrants
from pipecat.runner.types import LiveKitRunnerArguments
from pipecat.transports.base_transport import VideoInSourceParams
from pipecat.transports.livekit.transport import LiveKitParams, LiveKitTransport

from parley.transports.request import TransportRequest

IDENTITY = "parley"
# Audio that the room buffers. An interruption clears the buffer, and audio in it counts as played.
QUEUE_MS = 200


def livekit_arguments(environment: Mapping[str, str]) -> LiveKitRunnerArguments:
    """Return the arguments of a conversation in the room that the environment names, with a token for it."""
    room = environment["LIVEKIT_ROOM_NAME"]
    grants = VideoGrants(room_join=True, room=room, agent=True)
    token = AccessToken(environment["LIVEKIT_API_KEY"], environment["LIVEKIT_API_SECRET"])
    token = token.with_identity(IDENTITY).with_name(IDENTITY).with_grants(grants)
    return LiveKitRunnerArguments(room_name=room, url=environment["LIVEKIT_URL"], token=token.to_jwt())


async def open_livekit(arguments: LiveKitRunnerArguments, request: TransportRequest) -> LiveKitTransport:
    """Open the transport of a room; it is joined when the pipeline starts."""
    return LiveKitTransport(
        arguments.url,
        arguments.token,
        arguments.room_name,
        LiveKitParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_out_end_silence_secs=0,
            audio_out_queue_size_ms=QUEUE_MS,
            audio_in_user_tracks=False,
            video_in_enabled=request.sees,
            video_in_sources={"camera": VideoInSourceParams()} if request.sees else {},
        ),
    )
