"""Interface of the functions that hold a conversation: a cascade, full duplex, a realtime service."""

from collections.abc import Awaitable, Callable

from pipecat.transports.base_transport import BaseTransport

from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines

# Holds one call of a client over a transport, Pipecat's or ours, until it ends.
Pipeline = Callable[[Engines, BaseTransport, Call], Awaitable[None]]
