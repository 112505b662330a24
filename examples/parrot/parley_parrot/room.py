"""Room of an aviary: a WebSocket of another server, on which both sides speak Pipecat's frames.

The environment names its address in ``PARROT_ROOM_URL``. A row opens any transport: this one is Parley's
client of such sockets, and could be one of Pipecat's or of the package itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pipecat.runner.types import RunnerArguments
from pipecat.transports.base_transport import BaseTransport

from parley.transports.registry import Capabilities, Command, TransportRow
from parley.transports.request import TransportRequest
from parley.transports.websocket.agent_client import AgentArguments, open_agent

URL_ENV = "PARROT_ROOM_URL"


@dataclass
class AviaryArguments(RunnerArguments):
    """Arguments of a conversation in the room.

    Attributes:
        url: of its socket.
    """

    url: str = ""


def aviary_arguments(environment: Mapping[str, str]) -> AviaryArguments:
    """Return the arguments of a conversation in the room that the environment names."""
    return AviaryArguments(url=environment[URL_ENV])


async def open_aviary(arguments: AviaryArguments, request: TransportRequest) -> BaseTransport:
    """Join the room; return its transport."""
    return await open_agent(AgentArguments(url=arguments.url), request)


def aviary() -> TransportRow:
    """Return the row of the room."""
    return TransportRow(
        name="aviary",
        summary="a room of parrots",
        target="parley_parrot.room:open_aviary",
        env=(URL_ENV,),
        capabilities=Capabilities(reports_playout=True, has_room=False),
        command=Command.ROOM,
        arguments=("AviaryArguments",),
        from_environment="parley_parrot.room:aviary_arguments",
    )
