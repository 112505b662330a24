"""State of a WebRTC connection, for code that may run after its events.

Pipecat reports the end of a connection once, to the handlers of that moment. Code that is built for a caller
who hangs up meanwhile has to check the state.
"""

from aiortc import RTCTransportStats
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection

OVER = ("closed", "failed")


def is_over(connection: SmallWebRTCConnection) -> bool:
    """Return whether the peer of a connection has gone for good."""
    return connection.pc.connectionState in OVER


async def packets_received(connection: SmallWebRTCConnection) -> int:
    """Return how many packets have come from the peer: media, messages, and reports about its reception."""
    packets: dict[str, int] = {}
    for sender in connection.pc.getSenders():
        for stats in (await sender.getStats()).values():
            if isinstance(stats, RTCTransportStats):
                packets[stats.id] = stats.packetsReceived
    return sum(packets.values())
