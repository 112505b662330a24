"""A peer learns that its call is over, also when the pipeline that hangs up ends in the middle of it."""

import asyncio
from typing import Any

from aiortc import RTCPeerConnection, RTCSessionDescription
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import SmallWebRTCCallbacks

from parley.transports.webrtc.client import PacedWebRTCClient


async def nothing(*_arguments: Any) -> None:
    """Return nothing: these tests of a client do not use its transport."""


async def connected() -> tuple[PacedWebRTCClient, RTCPeerConnection, dict[str, asyncio.Event]]:
    """Return a client, its peer on this machine, and the states of the peer as they come."""
    peer = RTCPeerConnection()
    states = {name: asyncio.Event() for name in ("connecting", "connected", "failed", "closed")}

    @peer.on("connectionstatechange")
    def on_state() -> None:
        states[peer.connectionState].set()

    peer.createDataChannel("messages")
    peer.addTransceiver("audio")
    await peer.setLocalDescription(await peer.createOffer())
    connection = SmallWebRTCConnection()
    client = PacedWebRTCClient(
        connection,
        SmallWebRTCCallbacks(
            on_app_message=nothing,
            on_client_connected=nothing,
            on_client_disconnected=nothing,
            on_track_status=nothing,
        ),
        on_packet=None,
    )
    here = asyncio.Event()

    async def on_connected(*_arguments: Any) -> None:
        here.set()

    connection.add_event_handler("connected", on_connected)
    await connection.initialize(sdp=peer.localDescription.sdp, type=peer.localDescription.type)
    answer = connection.get_answer()
    assert answer is not None
    await peer.setRemoteDescription(RTCSessionDescription(sdp=answer["sdp"], type=answer["type"]))
    await client.connect()
    async with asyncio.timeout(10):
        await states["connected"].wait()
        await here.wait()
    return client, peer, states


async def test_a_peer_is_told_although_the_processor_that_hangs_up_is_cancelled():
    client, peer, states = await connected()
    try:
        hanging_up = asyncio.create_task(client.disconnect())
        # Closing takes several steps of the loop, of which these are the first.
        for _ in range(3):
            await asyncio.sleep(0)
        hanging_up.cancel()
        await asyncio.gather(hanging_up, return_exceptions=True)
        async with asyncio.timeout(5):
            await states["closed"].wait()
    finally:
        await peer.close()
