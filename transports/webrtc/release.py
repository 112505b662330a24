"""Break the reference cycles of a closed WebRTC connection, so that reference counting frees it.

In: a connection that has been closed, in whatever order. Out: a connection without handlers, and peer
connections whose parts do not refer to each other in a circle. Codecs, decoder threads, packet histories
and SSL state are then freed at once, and not by a full garbage collection, for which every call has to stop.

The only place that knows which private attributes of aiortc, aioice, pyOpenSSL and Pipecat form the cycles.
An attribute that a newer version has renamed is skipped; tests/unit/serving/test_call_release.py finds it.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from aiortc import RTCPeerConnection
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from transports.release import forget_handlers

# A handler of the last event may still run: closing does not wait longer for it.
HANDLERS_S = 1.0
# Of aiortc's RTCPeerConnection: the sets of its transports. Those of ICE hold the sockets.
ICE_TRANSPORTS = "_RTCPeerConnection__iceTransports"
DTLS_TRANSPORTS = "_RTCPeerConnection__dtlsTransports"


async def release_connection(connection: SmallWebRTCConnection) -> None:
    """Let a closed connection go. Waits for handlers of its last events, ``HANDLERS_S`` at most."""
    with suppress(TimeoutError):
        async with asyncio.timeout(HANDLERS_S):
            # The peer connection has said that it is closed, and the connection passes it on in a task.
            await _ended(getattr(connection.pc, "_waiting", ()))
            await _ended(task for _, task in connection._event_tasks)
    forget_handlers(connection)
    connection._track_map.clear()
    # Bound methods of the connection itself.
    connection._track_getters.clear()
    release_peer_connection(connection.pc)


async def _ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    running = set(tasks) - {asyncio.current_task()}
    if running:
        await asyncio.wait(running)


def release_peer_connection(peer: RTCPeerConnection) -> None:
    """Let a closed peer connection go."""
    peer.remove_all_listeners()
    for dtls in list(getattr(peer, DTLS_TRANSPORTS, ())):
        dtls.remove_all_listeners()
        _release_verification(dtls)
    for ice in list(getattr(peer, ICE_TRANSPORTS, ())):
        ice.remove_all_listeners()
        ice.iceGatherer.remove_all_listeners()
        _release_agent(ice._connection)


def _release_verification(dtls: object) -> None:
    """Cut the callback of pyOpenSSL that refers to itself. No handshake follows: the transport is closed."""
    ssl = getattr(dtls, "_ssl", None)
    helper = getattr(getattr(ssl, "_context", None), "_verify_helper", None)
    if helper is not None and getattr(dtls, "state", None) in ("closed", "failed"):
        helper.callback = None


def _release_agent(agent: object) -> None:
    """Cut the pairs of an ICE agent, which refer to it by their sockets and the tasks of their checks."""
    pairs = getattr(agent, "_check_list", [])
    for pair in pairs:
        pair.task = None
    pairs.clear()
    getattr(agent, "_nominated", {}).clear()
