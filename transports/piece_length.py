"""Length of the pieces in which a caller's audio goes through the pipeline.

Nothing is decided between two windows of voice activity detection, so a piece ends with the packet that
completes one: five pieces for eight packets of 20 ms, and no moment is later. Audio that completes none waits
for the next packet.

Much of the cost of a piece does not depend on its length. On a busy server, where a piece takes more than
``MOST_SHARE`` of its length, pieces grow to ``MOST_PACKETS`` packets before anything waits. A server with
time to spare does not: those delay the detection of a turn's end.
"""

from parley.core.errors import ShapeError

WINDOW_MS, PACKET_MS = 32, 20
# Share of a piece's length for which it is under way: the running mean, with the weight of the newest.
MOST_SHARE, NEWEST_WEIGHT = 0.125, 0.05
MOST_PACKETS = 3
# Audio that waited for a busy loop goes on in pieces of at most this length, so that the pipeline catches up.
MOST_JOINED_MS = 100


class PieceLength:
    """Length of one caller's pieces.

    Args:
        rate_hz: rate of the audio.
        delay_samples: samples by which a filter after the pieces holds the audio back.

    Attributes:
        packets: least number of packets in a piece.
    """

    def __init__(self, rate_hz: int, *, delay_samples: int = 0) -> None:
        if rate_hz % 1000:
            raise ShapeError(f"expected a rate of whole samples in a millisecond, got {rate_hz} Hz")
        per_ms = rate_hz // 1000
        self._per_ms = per_ms
        self._window, self._packet = WINDOW_MS * per_ms, PACKET_MS * per_ms
        self.most_joined_samples = MOST_JOINED_MS * per_ms
        # Samples since the end of the last window, without those that the filter holds.
        self._begun = -delay_samples
        self.packets = 1
        self._share = 0.0

    def is_whole(self, samples: int) -> bool:
        """Return whether so many samples that wait are a piece."""
        return samples >= self.packets * self._packet and self._begun + samples >= self._window

    def left(self, samples: int) -> None:
        """Record that a piece has left."""
        begun = self._begun + samples
        self._begun = begun % self._window if begun > 0 else begun

    def took(self, way_ms: float, samples: int) -> None:
        """Record for how long a piece was under way, until the pipeline took the next one."""
        # Capped: one piece that was blocked says nothing about the next ones.
        share = min(way_ms * self._per_ms / max(1, samples), 1.0)
        self._share += NEWEST_WEIGHT * (share - self._share)
        packets = self.packets
        if self._share > MOST_SHARE and packets < MOST_PACKETS:
            self._change(packets + 1)
        elif packets > 1 and self._share * packets / (packets - 1) < MOST_SHARE:
            self._change(packets - 1)

    def _change(self, packets: int) -> None:
        # Assume that a piece costs the same at any length: then the longer piece is not shortened at once.
        self._share *= self.packets / packets
        self.packets = packets
