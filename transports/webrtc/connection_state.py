"""State of a WebRTC connection, for those who may come after its events.

Pipecat reports the end of a connection once, to the handlers of that moment. What is built for a caller
who hangs up meanwhile has to look.
"""

from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection


def is_over(connection: SmallWebRTCConnection) -> bool:
    """Return whether the peer of a connection has gone for good."""
    return connection.pc.connectionState in ("closed", "failed")
