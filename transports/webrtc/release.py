"""Break the reference cycles of a closed WebRTC connection, so that reference counting frees it.

Input: a closed connection; the order of closing does not matter. Output: a connection without handlers, and
peer connections whose parts form no reference cycle. Codecs, decoder threads, packet histories and SSL state
are then freed at once. A full garbage collection, which pauses every call, is not needed for them.

Decides the order. ``pipecat_internals`` lists the members that form the cycles; when a newer version has
renamed one, tests/unit/transports/test_webrtc_release.py fails.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from aiortc import RTCPeerConnection
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from parley.transports.pipecat_internals import (
    closing_handlers,
    cut_connection,
    cut_peer_connection,
    forget_handlers,
    running_handlers,
    stop_connecting,
)


async def release_connection(connection: SmallWebRTCConnection, *, within_s: float) -> None:
    """Release a closed connection.

    Args:
        connection: a connection that is closed, or as far closed as it could be.
        within_s: longest wait for handlers of its last events, and the same for its media.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            # The peer connection has reported that it is closed, and the connection passes it on in a task.
            await _ended(closing_handlers(connection.pc))
            await _ended(running_handlers(connection))
    forget_handlers(connection)
    cut_connection(connection)
    await release_peer_connection(connection.pc, within_s=within_s)


async def _ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    running = set(tasks) - {asyncio.current_task()}
    if running:
        await asyncio.wait(running)


async def release_peer_connection(peer: RTCPeerConnection, *, within_s: float) -> None:
    """Release a closed peer connection; wait ``within_s`` at most for media that it has started too late."""
    peer.remove_all_listeners()
    stop_connecting(peer)
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await _stop_late_media(peer)
    cut_peer_connection(peer)


async def _stop_late_media(peer: RTCPeerConnection) -> None:
    """Stop media that a peer connection which closed by itself started in spite of ``stop_connecting``."""
    for transceiver in peer.getTransceivers():
        await transceiver.stop()
        if transceiver.receiver.track is not None:
            transceiver.receiver.track.remove_all_listeners()
