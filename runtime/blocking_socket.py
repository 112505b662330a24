"""TCP connections for blocking threads, with deadlines for connecting and for writing.

The synchronous client of ``websockets`` reads in a thread of its own and writes without a deadline, so a peer
that does not read would block the writer. The kernel bounds each write (SO_SNDTIMEO). Reads stay unbounded: a
read timeout would end the library's thread.
"""

import socket
import struct
from urllib.parse import urlsplit


def connect_for(url: str, *, open_s: float, write_s: float) -> socket.socket:
    """Return a socket connected to the host of a ws:// or wss:// address.

    Args:
        url: the address.
        open_s: longest wait for the connection.
        write_s: longest write.

    Raises:
        OSError: the host is not reached.
    """
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "wss" else 80)
    made = socket.create_connection((parts.hostname, port), open_s)
    made.settimeout(None)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(write_s))
    return made


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
