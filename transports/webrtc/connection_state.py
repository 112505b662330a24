"""State of a WebRTC connection, for code that may run after its events.

Pipecat reports the end of a connection once, to the handlers of that moment. Code that is built for a caller
who hangs up meanwhile has to check the state.
"""

from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection


def is_over(connection: SmallWebRTCConnection) -> bool:
    """Return whether the peer of a connection has gone for good."""
    return connection.pc.connectionState in ("closed", "failed")
