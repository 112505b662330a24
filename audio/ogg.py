"""Ogg pages and their packets, as a stream (RFC 3533), for one logical stream.

A reader takes bytes in pieces of any length and yields packets as they are complete. Bytes outside of a page
are skipped. A page with a wrong checksum is dropped together with the packet that it belongs to. A writer
makes one page for each packet, so that a packet of speech never waits for another.
"""

import struct
import zlib
from collections.abc import Iterator

from parley.core.errors import ShapeError

_CAPTURE = b"OggS"
_HEADER = struct.Struct("<4sBBqIIIB")
_CONTINUED, _BEGINS, _ENDS = 1, 2, 4
# Capacity of a page; no packet of speech is longer.
LONGEST_PACKET = 255 * 255
# Limits for one piece of a stream. A checksum takes time, and invalid data makes one necessary for every
# capture pattern; empty pages take time too.
MOST_BROKEN, MOST_PAGES = 4, 600
_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def checksum(page: bytes) -> int:
    """Return the CRC-32 of a page whose checksum field is zero (RFC 3533, 6; no reflection, no final XOR).

    zlib's CRC has the same polynomial in reflected form: the CRC of mirrored bytes is the mirror image. A
    page of 64 kB takes 0.1 ms; byte by byte it takes 8 ms, and a client chooses how many of them it sends.
    """
    register = zlib.crc32(page.translate(_MIRRORED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int.from_bytes(register.to_bytes(4, "little").translate(_MIRRORED), "big")


class OggReader:
    """Reader of one stream.

    Attributes:
        lost_bytes: number of bytes that belonged to no valid page.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        self._packet = bytearray()
        self._serial: int | None = None
        self._skips = False
        self.lost_bytes = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Process more data; yield the packets that it completes.

        Raises:
            ShapeError: more pages are broken than on a bad line, or there are very many. Held data is
                discarded.
        """
        self._held += data
        broken = pages = 0
        while True:
            start = self._held.find(_CAPTURE)
            if start < 0:
                # The pattern may be cut by the end of the piece.
                self._lose(max(0, len(self._held) - 3))
                return
            self._lose(start)
            length = self._page_length()
            if length is None or len(self._held) < length:
                return
            page = bytes(self._held[:length])
            if not self._is_whole(page):
                self._lose(len(_CAPTURE))
                self._packet.clear()
                self._skips = True
                broken += 1
                if broken > MOST_BROKEN:
                    self._lose(len(self._held))
                    raise ShapeError("the pages of the Ogg stream are damaged")
                continue
            del self._held[:length]
            pages += 1
            if pages > MOST_PAGES:
                self._lose(len(self._held))
                raise ShapeError(f"over {MOST_PAGES} Ogg pages at a time")
            yield from self._packets(page)

    def _lose(self, count: int) -> None:
        del self._held[:count]
        self.lost_bytes += count

    def _page_length(self) -> int | None:
        if len(self._held) < _HEADER.size:
            return None
        segments = self._held[26]
        if len(self._held) < _HEADER.size + segments:
            return None
        return _HEADER.size + segments + sum(self._held[_HEADER.size : _HEADER.size + segments])

    def _is_whole(self, page: bytes) -> bool:
        stored = int.from_bytes(page[22:26], "little")
        return page[4] == 0 and checksum(page[:22] + bytes(4) + page[26:]) == stored

    def _packets(self, page: bytes) -> Iterator[bytes]:
        _, _, kind, _, serial, _, _, segments = _HEADER.unpack_from(page)
        if self._serial is None or kind & _BEGINS:
            # A new stream follows the first one, for example of a client that starts again.
            self._serial = serial
            self._packet.clear()
            self._skips = False
        if serial != self._serial:
            return
        if not kind & _CONTINUED:
            self._packet.clear()
            self._skips = False
        at = _HEADER.size + segments
        for lacing in page[_HEADER.size : _HEADER.size + segments]:
            self._packet += page[at : at + lacing]
            at += lacing
            if len(self._packet) > LONGEST_PACKET:
                self._packet.clear()
                self._skips = True
            if lacing < 255:
                packet, skipped = bytes(self._packet), self._skips
                self._packet.clear()
                self._skips = False
                if not skipped:
                    yield packet


class OggWriter:
    """Writer of one stream, with a page for each packet.

    Args:
        serial: serial number of the stream.
    """

    def __init__(self, serial: int) -> None:
        self._serial = serial & 0xFFFFFFFF
        self._number = 0

    def page(self, packet: bytes, granule: int, *, is_last: bool = False) -> bytes:
        """Return the page of a packet.

        Args:
            packet: at most ``LONGEST_PACKET`` - 1 bytes.
            granule: position in the stream after it.
            is_last: the stream ends with it.

        Raises:
            ValueError: the packet does not fit.
        """
        if len(packet) >= LONGEST_PACKET:
            raise ValueError(f"a packet of {len(packet)} bytes")
        lacing = bytes([255] * (len(packet) // 255) + [len(packet) % 255])
        kind = (_BEGINS if self._number == 0 else 0) | (_ENDS if is_last else 0)
        header = _HEADER.pack(_CAPTURE, 0, kind, granule, self._serial, self._number, 0, len(lacing))
        self._number += 1
        page = header + lacing + packet
        return page[:22] + checksum(page).to_bytes(4, "little") + page[26:]
