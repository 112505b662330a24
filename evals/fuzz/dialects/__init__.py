"""Protocols of the fuzzer, by name.

A dialect is a coroutine function that holds one conversation. It sends at the pace of the conversation, and
returns when the conversation is over; errors of a peer that is gone are no findings.
"""

from collections.abc import Awaitable, Callable
from functools import partial

from parley.core.errors import ConfigError
from parley.evals.abuse.protocols import PROTOCOLS
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.dialects import frames, http, phone, sockets, webrtc, worker

Dialect = Callable[[FuzzConversation], Awaitable[None]]

_DIALECTS: dict[str, Dialect] = {
    **{protocol.name: partial(sockets.converse, protocol=protocol) for protocol in PROTOCOLS},
    "annotations": sockets.annotations,
    "pipecat": sockets.pipecat,
    **{name: partial(phone.stream, carrier=name) for name in phone.CARRIERS},
    "phone-webhooks": phone.webhooks,
    "http": http.routes,
    "openai-http": http.openai,
    "http-bytes": frames.requests,
    "socket-frames": frames.sockets,
    "offers": webrtc.offers,
    "udp": webrtc.datagrams,
    "rtvi": webrtc.channel,
    worker.NAME: worker.link,
}
NAMES = tuple(_DIALECTS)


def dialect(name: str) -> Dialect:
    """Return the dialect of this name.

    Raises:
        ConfigError: there is none.
    """
    if name not in _DIALECTS:
        raise ConfigError(f"there is no protocol {name!r} (known: {', '.join(NAMES)})")
    return _DIALECTS[name]
