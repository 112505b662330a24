"""PCM of a stream that may begin with a WAV header.

Servers that are asked for raw PCM answer with it, or with a WAV file: some know no other format. A header
that is written before the length of the audio is known has a placeholder for it, so the audio then ends with
the stream. Pieces have any length, odd ones included. Pure.
"""

import struct

from parley.core.errors import MediaError
from parley.core.media import PCM_BYTES_PER_SAMPLE

_RIFF_BYTES, _CHUNK_BYTES, _FORMAT_BYTES = 12, 8, 16
# Chunks before the audio are some hundred bytes: a title, the name of a tool.
MOST_HEADER_BYTES = 65_536
_PCM, _EXTENSIBLE = 1, 0xFFFE
# Lengths from here on are placeholders: half of the largest one is six hours of audio.
_PLACEHOLDER_BYTES = 0x7FFF_0000


class WavStream:
    """Reader of one stream of 16-bit mono audio.

    Args:
        rate_hz: rate of the audio where there is no header.

    Attributes:
        rate_hz: rate of the audio; that of the header from its end on.
    """

    def __init__(self, rate_hz: int) -> None:
        self.rate_hz = rate_hz
        # Bytes that are not read: of the header, or the first half of a sample.
        self._rest = b""
        self._in_header = True
        # Bytes of audio that follow; None: up to the end of the stream.
        self._left: int | None = None

    def feed(self, data: bytes) -> bytes:
        """Return the whole samples that a piece completes, 16-bit little-endian PCM.

        Raises:
            MediaError: the header is that of another format, or has no end.
        """
        data = self._rest + data
        if self._in_header:
            if len(data) < _RIFF_BYTES and b"RIFF".startswith(data[:4]):
                self._rest = data
                return b""
            if data[:4] == b"RIFF" and data[8:_RIFF_BYTES] == b"WAVE":
                start = self._read_header(data)
                if start is None:
                    self._rest = data
                    return b""
                data = data[start:]
            self._in_header = False
        if self._left is not None:
            data = data[: self._left]
        whole = len(data) - len(data) % PCM_BYTES_PER_SAMPLE
        self._rest = data[whole:]
        if self._left is not None:
            self._left -= whole
        return data[:whole]

    def _read_header(self, data: bytes) -> int | None:
        """Read the header; return the place of the audio, or None while it is not there."""
        place, has_format = _RIFF_BYTES, False
        while place + _CHUNK_BYTES <= len(data):
            name, length = struct.unpack_from("<4sI", data, place)
            place += _CHUNK_BYTES
            if name == b"data":
                if not has_format:
                    raise MediaError("the WAV header names no format")
                self._left = length if 0 < length < _PLACEHOLDER_BYTES else None
                return place
            if name == b"fmt " and place + _FORMAT_BYTES <= len(data):
                self._read_format(data, place)
                has_format = True
            place += length + length % 2
        if len(data) > MOST_HEADER_BYTES:
            raise MediaError("the WAV header has no end")
        return None

    def _read_format(self, data: bytes, place: int) -> None:
        kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", data, place)
        if (
            kind not in (_PCM, _EXTENSIBLE)
            or bits != 8 * PCM_BYTES_PER_SAMPLE
            or channels != 1
            or not rate_hz
        ):
            raise MediaError(
                f"the WAV has format {kind} with {channels} channels of {bits} bits, not 16-bit mono"
            )
        self.rate_hz = rate_hz
