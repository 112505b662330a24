"""WebSocket over a connection that another process has accepted and handed over before its handshake.

Input: the descriptor of the connection and the answer to the handshake. It is the socket of a ``PhonePeer``.
The handshake was checked by the process that handed the connection over; the answer to it is sent here. Owns
the connection. A message or a fragment that is too large closes it, as the protocol demands.
"""

import asyncio
import socket
from contextlib import suppress

from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.protocol import SERVER, Protocol, State

RECEIVE_BYTES = 65_536
# A message of a phone network is some 400 bytes.
MOST_MESSAGE_BYTES = 262_144
MOST_FRAGMENTS = 100
# A close frame has room for 123 bytes of UTF-8.
REASON_BYTES = 120
_DATA = (Opcode.TEXT, Opcode.BINARY)


class HandedSocket:
    """Server's side of a WebSocket.

    Args:
        connection: as handed over.
        response: answer to the handshake.
    """

    def __init__(self, connection: socket.socket, response: bytes) -> None:
        self._connection, self._response = connection, response
        self._protocol = Protocol(SERVER, state=State.OPEN, max_size=MOST_MESSAGE_BYTES)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._fragments: list[Frame] = []
        self._messages: list[str | bytes] = []

    async def open(self) -> None:
        """Answer the handshake.

        Raises:
            OSError: the connection is closed.
        """
        self._connection.setblocking(False)
        self._reader, self._writer = await asyncio.open_connection(sock=self._connection)
        self._writer.write(self._response)
        await self._writer.drain()

    async def receive(self) -> str | bytes | None:
        """Return the next message; None when the socket is closed (``PhonePeer``)."""
        # What came together with the end of the connection counts.
        while not self._messages and await self._read_more():
            pass
        return self._messages.pop(0) if self._messages else None

    async def send(self, message: str | bytes) -> bool:
        """Send a message; return False when the socket is closed (``PhonePeer``)."""
        try:
            if isinstance(message, bytes):
                self._protocol.send_binary(message)
            else:
                self._protocol.send_text(message.encode())
            return await self._flush()
        except InvalidState:
            return False

    async def close(self, code: int, reason: str) -> None:
        """Close the socket with a reason (``PhonePeer``)."""
        writer = self._writer
        if writer is None:
            self._connection.close()
            return
        try:
            with suppress(InvalidState):
                self._protocol.send_close(code, reason.encode()[:REASON_BYTES].decode(errors="ignore"))
                await self._flush()
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
        finally:
            # Cancelled at the deadline of its owner: a client that reads nothing would hold the connection.
            writer.transport.abort()

    async def _read_more(self) -> bool:
        """Read what has come; return False at the end of the connection."""
        if self._reader is None or self._protocol.state is not State.OPEN:
            return False
        try:
            data = await self._reader.read(RECEIVE_BYTES)
        except OSError:
            return False
        if data:
            self._protocol.receive_data(data)
        else:
            self._protocol.receive_eof()
        for event in self._protocol.events_received():
            if isinstance(event, Frame):
                self._take(event)
        # Answers to pings, and to the end of the other side.
        return await self._flush() and bool(data) and self._protocol.state is State.OPEN

    def _take(self, frame: Frame) -> None:
        if frame.opcode in _DATA:
            self._fragments = [frame]
        elif frame.opcode is Opcode.CONT:
            self._fragments.append(frame)
        else:
            return
        if len(self._fragments) > MOST_FRAGMENTS:
            self._protocol.fail(CloseCode.MESSAGE_TOO_BIG, f"over {MOST_FRAGMENTS} fragments")
        elif frame.fin:
            whole = b"".join(bytes(each.data) for each in self._fragments)
            is_text = self._fragments[0].opcode is Opcode.TEXT
            self._fragments = []
            try:
                self._messages.append(whole.decode() if is_text else whole)
            except UnicodeDecodeError:
                self._protocol.fail(CloseCode.INVALID_DATA, "the text is not UTF-8")

    async def _flush(self) -> bool:
        writer = self._writer
        if writer is None or writer.is_closing():
            return False
        try:
            for data in self._protocol.data_to_send():
                if data:
                    writer.write(data)
            await writer.drain()
        except OSError:
            return False
        return True
