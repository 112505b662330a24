"""Factories of transports that Pipecat opens itself: its evaluation tool.

They do not report when a packet of the bot's audio leaves, so the audio that the caller heard is estimated by
the clock.
"""

from typing import Any

from pipecat.runner.utils import create_transport
from pipecat.transports.base_transport import BaseTransport, TransportParams

from parley.transports.request import TransportRequest


async def open_eval(arguments: Any, _request: TransportRequest) -> BaseTransport:
    """Open the transport of Pipecat's evaluation tool, which is parsed from the socket's first message."""

    def params() -> TransportParams:
        from pipecat.evals.transport import EvalTransportParams

        return EvalTransportParams(audio_in_enabled=True, audio_out_enabled=True)

    return await create_transport(arguments, {"eval": params})
