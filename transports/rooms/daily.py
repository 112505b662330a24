"""A room of Daily, through Pipecat's transport.

Inputs: the address of a room and a token, or the arguments of Pipecat's runner. Output: the transport that
joins the room. It ends its call when the caller leaves. Rooms and tokens are not created here: that takes an
API key, which a bot in a room does not need.
"""

from collections.abc import Mapping

# Imported first: when it is missing, Pipecat's module logs more than the one line that the user gets.
import daily  # noqa: F401
from pipecat.runner.types import DailyRunnerArguments
from pipecat.transports.base_transport import VideoInSourceParams
from pipecat.transports.daily.transport import DailyParams, DailyTransport

from parley.transports.request import TransportRequest

NAME = "Parley"


def daily_arguments(environment: Mapping[str, str]) -> DailyRunnerArguments:
    """Return the arguments of a conversation in the room that the environment names."""
    return DailyRunnerArguments(room_url=environment["DAILY_ROOM_URL"], token=environment["DAILY_TOKEN"])


async def open_daily(arguments: DailyRunnerArguments, request: TransportRequest) -> DailyTransport:
    """Open the transport of a room; it is joined when the pipeline starts."""
    return DailyTransport(
        arguments.room_url,
        arguments.token,
        NAME,
        DailyParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_out_end_silence_secs=0,
            video_in_enabled=request.sees,
            video_in_sources={"camera": VideoInSourceParams()} if request.sees else {},
        ),
    )
