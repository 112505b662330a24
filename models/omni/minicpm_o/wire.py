"""Frames between an engine and its worker: a kind, a number, facts as JSON, and bytes.

Standard library only: the worker has another Python environment. Every request has a number, which its answer
repeats; an answer to an older one is nobody's any more. ``STOP`` has none and is answered by nobody.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

# Kind, number, bytes of facts, bytes behind them.
HEADER = struct.Struct("<BIII")
MOST_FACTS_BYTES = 1_048_576
# Eight pictures of 1,344 x 1,344 are 43 MB.
MOST_PAYLOAD_BYTES = 67_108_864
RECEIVE_BYTES = 262_144


class Kind(IntEnum):
    """What a frame is. The first block goes to the worker, the second to the engine."""

    LOAD = 1
    PREPARE = 2
    PREFILL = 3
    GENERATE = 4
    FINALIZE = 5
    CLEANUP = 6
    STOP = 7

    DONE = 16
    FAILED = 17


@dataclass(frozen=True, slots=True)
class WireFrame:
    """One message."""

    kind: Kind
    number: int
    facts: Mapping[str, Any]
    payload: bytes


def encode(
    kind: Kind, number: int = 0, facts: Mapping[str, Any] | None = None, payload: bytes = b""
) -> bytes:
    """One message as bytes.

    Raises:
        ValueError: it is larger than a frame may be.
    """
    written = json.dumps(dict(facts or {})).encode()
    if len(written) > MOST_FACTS_BYTES or len(payload) > MOST_PAYLOAD_BYTES:
        raise ValueError(f"{len(written)} and {len(payload)} bytes do not fit in one frame")
    return HEADER.pack(kind, number, len(written), len(payload)) + written + payload


class FrameReader:
    """Bytes in, whole messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[WireFrame]:
        """Messages completed by ``data``, oldest first.

        Raises:
            ValueError: the peer does not speak this protocol.
        """
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            kind, number, facts_bytes, payload_bytes = HEADER.unpack_from(self._buffer)
            if facts_bytes > MOST_FACTS_BYTES or payload_bytes > MOST_PAYLOAD_BYTES:
                raise ValueError(f"a frame of {facts_bytes} and {payload_bytes} bytes")
            begin = HEADER.size + facts_bytes
            end = begin + payload_bytes
            if len(self._buffer) < end:
                return
            facts = json.loads(self._buffer[HEADER.size : begin])
            if not isinstance(facts, dict):
                raise ValueError("facts that are no object")
            payload = bytes(self._buffer[begin:end])
            del self._buffer[:end]
            yield WireFrame(Kind(kind), number, facts, payload)
