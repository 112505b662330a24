"""TCP and TLS connections for blocking threads, with deadlines for connecting and for writing.

The synchronous client of ``websockets`` reads in a thread of its own and writes without a deadline, so a peer
that does not read would block the writer. The kernel bounds each write (SO_SNDTIMEO). Reads stay unbounded: a
read timeout would end the library's thread.

Python's own TLS socket must not be read and written at the same time before Python 3.14: OpenSSL's state is
then changed by two threads, and about one connection in a hundred hangs when the server's session ticket
arrives during the first write. ``TlsSocket`` takes a lock for OpenSSL, and none while it waits for data.
"""

import socket
import ssl
import struct
import threading
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

MOST_RECORD_BYTES = 16_384


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


def tls_for(url: str, ca_file: Path | None = None) -> ssl.SSLContext | None:
    """Return the context for ``websockets.sync.client.connect``; None for an address without TLS.

    Args:
        url: the address, ws:// or wss://.
        ca_file: certificates to believe instead of the system's.

    Raises:
        OSError: the file of certificates cannot be read.
    """
    if urlsplit(url).scheme != "wss":
        return None
    if ca_file is None:
        return _system_context()
    context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(ca_file)
    return context


class TlsSocket:
    """TLS on a connected blocking socket, which one thread may read while another one writes.

    Has the methods of ``socket.socket`` that ``websockets`` uses. The handshake is done on creation, within
    the time limit of the socket.

    Raises:
        ssl.SSLError: the peer is not believed, or speaks no TLS.
        TimeoutError: the handshake takes longer than the time limit of the socket.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, server_hostname: str | None) -> None:
        self._socket = sock
        self._encrypted_in = ssl.MemoryBIO()
        self._encrypted_out = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._encrypted_in, self._encrypted_out, server_hostname=server_hostname)
        # Around OpenSSL's state and the buffers.
        self._state_lock = threading.Lock()
        # Around OpenSSL's output and the socket, so that records leave in the order of their encryption.
        self._write_lock = threading.Lock()
        self._is_ended = self._is_closed = False
        self._shake_hands()

    def _shake_hands(self) -> None:
        limit_s = self._socket.gettimeout()
        deadline_s = None if limit_s is None else time.monotonic() + limit_s
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._write_encrypted()
                if deadline_s is not None:
                    # A limit of 0 would mean "do not block".
                    self._socket.settimeout(max(0.001, deadline_s - time.monotonic()))
                self._read_encrypted(MOST_RECORD_BYTES)
            except ssl.SSLError:
                # The alert says to the peer why.
                self._write_encrypted()
                raise
            else:
                self._write_encrypted()
                self._socket.settimeout(limit_s)
                return

    def recv(self, read_bytes: int) -> bytes:
        """Return the next decrypted bytes, up to a record (16 KiB) more than ``read_bytes``.

        None at the end of the connection. All that can be decrypted is returned, because the reader then
        waits for the TCP socket, which does not count what is kept here.
        """
        while not (data := self._decrypted()) and not self._is_ended:
            try:
                self._read_encrypted(read_bytes)
            except OSError:
                # A reader that was not waiting yet finds the socket closed.
                if not self._is_closed:
                    raise
                break
        return data

    def _decrypted(self) -> bytes:
        data = bytearray()
        with self._state_lock:
            while True:
                try:
                    read = self._tls.read(MOST_RECORD_BYTES)
                except ssl.SSLWantReadError:
                    break
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    read = b""
                if not read:
                    self._is_ended = True
                    break
                data += read
        return bytes(data)

    def sendall(self, data: Any) -> None:
        """Encrypt and write all of ``data``."""
        with self._write_lock:
            with self._state_lock:
                written = 0
                view = memoryview(data).cast("B")
                # A memory buffer takes everything at once; OpenSSL splits it into records.
                while written < len(view):
                    written += self._tls.write(view[written:])
            self._write_encrypted()

    def _read_encrypted(self, read_bytes: int) -> None:
        data = self._socket.recv(read_bytes)
        with self._state_lock:
            if data:
                self._encrypted_in.write(data)
            else:
                self._encrypted_in.write_eof()

    def _write_encrypted(self) -> None:
        with self._state_lock:
            data = self._encrypted_out.read()
        if data:
            self._socket.sendall(data)

    def settimeout(self, limit_s: float | None) -> None:
        """Bound each read and write, as ``socket.settimeout``."""
        self._socket.settimeout(limit_s)

    def shutdown(self, how: int) -> None:
        """End one or both directions of the TCP connection, as ``socket.shutdown``; wakes a reader."""
        self._socket.shutdown(how)

    def close(self) -> None:
        """Close the TCP connection; a read ends, also one that was woken by a session ticket."""
        self._is_closed = True
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def fileno(self) -> int:
        """Return the number of the TCP socket, to wait for its data."""
        return self._socket.fileno()

    def getsockname(self) -> Any:
        """Return the own address."""
        return self._socket.getsockname()

    def getpeername(self) -> Any:
        """Return the peer's address."""
        return self._socket.getpeername()


class _TlsContext(ssl.SSLContext):
    """A context whose sockets are ``TlsSocket``."""

    def wrap_socket(  # type: ignore[override]
        self, sock: socket.socket, *, server_hostname: str | None = None
    ) -> ssl.SSLSocket:
        return cast(ssl.SSLSocket, TlsSocket(sock, self, server_hostname))


@cache
def _system_context() -> _TlsContext:
    """Return the context that believes the system's certificates, which are read once per process."""
    context = _TlsContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_default_certs()
    return context


def _timeval(seconds: float) -> bytes:
    return struct.pack("@ll", int(seconds), int(seconds % 1 * 1_000_000))
