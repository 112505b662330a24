"""Break the reference cycles of a closed WebRTC connection, so that reference counting frees it.

In: a connection that has been closed, in whatever order. Out: a connection without handlers, and peer
connections whose parts do not refer to each other in a circle. Codecs, decoder threads, packet histories
and SSL state are then freed at once, and not by a full garbage collection, for which every call has to stop.

The only place that knows which private attributes of aiortc, aioice, pyOpenSSL and Pipecat form the cycles.
An attribute that a newer version has renamed is skipped, and tests/unit/transports/test_webrtc_release.py
fails.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from aiortc import RTCPeerConnection
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

from transports.release import forget_handlers

# Of aiortc's RTCPeerConnection: the sets of its transports. Those of ICE hold the sockets.
ICE_TRANSPORTS = "_RTCPeerConnection__iceTransports"
DTLS_TRANSPORTS = "_RTCPeerConnection__dtlsTransports"


async def release_connection(connection: SmallWebRTCConnection, *, within_s: float) -> None:
    """Let a closed connection go.

    Args:
        connection: closed, or as far as it could be.
        within_s: longest wait for handlers of its last events, and the same for its media.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            # The peer connection has said that it is closed, and the connection passes it on in a task.
            await _ended(getattr(connection.pc, "_waiting", ()))
            await _ended(task for _, task in connection._event_tasks)
    forget_handlers(connection)
    renegotiated = getattr(connection, "_renegotiation_task", None)
    if renegotiated is not None:
        # It only counts two seconds. Cancelled, it refers to the connection by its traceback.
        renegotiated.cancel()
        del connection._renegotiation_task
    connection._track_map.clear()
    if connection._data_channel is not None:
        connection._data_channel.remove_all_listeners()
    # Bound methods of the connection itself.
    connection._track_getters.clear()
    await release_peer_connection(connection.pc, within_s=within_s)


async def _ended(tasks: Iterable[asyncio.Future[Any]]) -> None:
    running = set(tasks) - {asyncio.current_task()}
    if running:
        await asyncio.wait(running)


async def release_peer_connection(peer: RTCPeerConnection, *, within_s: float) -> None:
    """Let a closed peer connection go; waits ``within_s`` at most for media that it has started too late."""
    peer.remove_all_listeners()
    stop_connecting(peer)
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await _stop_late_media(peer)
    if peer.sctp is not None:
        peer.sctp.remove_all_listeners()
        # Channels that were not open yet, and what waited to be sent by them.
        getattr(peer.sctp, "_data_channels", {}).clear()
        getattr(peer.sctp, "_data_channel_queue", deque[Any]()).clear()
    for dtls in list(getattr(peer, DTLS_TRANSPORTS, ())):
        dtls.remove_all_listeners()
        _release_verification(dtls)
    for ice in list(getattr(peer, ICE_TRANSPORTS, ())):
        ice.remove_all_listeners()
        ice.iceGatherer.remove_all_listeners()
        _release_agent(ice._connection)


async def _stop_late_media(peer: RTCPeerConnection) -> None:
    """Stop what was started in spite of ``stop_connecting``, by a peer connection that closed by itself."""
    for transceiver in peer.getTransceivers():
        await transceiver.stop()
        if transceiver.receiver.track is not None:
            transceiver.receiver.track.remove_all_listeners()


def stop_connecting(peer: RTCPeerConnection) -> None:
    """Have a peer connection start nothing any more: it is about to be closed.

    aiortc's task that connects goes on when a peer connection is closed during the handshake. It starts
    senders and receivers for good (three tasks and the thread of a decoder), or fails where no caller waits.
    """
    parts: list[tuple[object, str]] = []
    for transceiver in peer.getTransceivers():
        parts += [(transceiver.sender, "send"), (transceiver.receiver, "receive")]
    parts += [(transport, "start") for transport in _transports(peer)]
    if peer.sctp is not None:
        parts.append((peer.sctp, "start"))
    for part, start in parts:
        setattr(part, start, _start_nothing)


async def _start_nothing(*_parameters: object) -> None:
    """Take the place of the methods that start a part of a peer connection."""


def _transports(peer: RTCPeerConnection) -> list[Any]:
    return [*getattr(peer, DTLS_TRANSPORTS, ()), *getattr(peer, ICE_TRANSPORTS, ())]


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
