"""Delay of a packet to the caller's ear, estimated from the caller's RTCP reports.

    delay = round trip / 2 + buffer,    buffer = max(60 ms, 20 ms + 3 * jitter)

One way is taken for half of the round trip (RFC 3550, 6.4.1). The receiver does not report its buffer, so the
buffer is inferred. Chromium's NetEQ starts at 80 ms (``kStartDelayMs`` of its delay manager) and from there
follows the 95 to 97 % quantile of the packets' relative delay, in packets of 20 ms. RTCP's jitter is a mean
deviation, and for the usual one-sided, exponential tail the 95 % quantile lies at 3 means (-ln 0.05). On a
calm line NetEQ's buffer and that of a sound card are 60 ms and more together; aiortc's receiver holds back
four packets, 80 ms. Pure; the transport requests the reports.
"""

LEAST_BUFFER_MS = 60
PACKET_MS = 20
JITTER_SHARE = 3
# A longer delay is the report of a broken clock: no line on which people talk has it.
ABSURD_S = 2.0
MOST_MS = 1_000
# New reports count a quarter: one comes each second, and a line changes within a few.
NEW_PERCENT = 25


class ClientDelay:
    """Estimate of one call; None before the first plausible report."""

    def __init__(self) -> None:
        self._estimate_ms: float | None = None

    @property
    def delay_ms(self) -> int | None:
        """Time from the sending of a packet to its sound at the ear; None while it is unknown."""
        return None if self._estimate_ms is None else round(self._estimate_ms)

    def report(self, *, round_trip_s: float | None, jitter_s: float | None) -> int | None:
        """Add a report; return the new estimate, or None when an implausible report changes nothing."""
        if round_trip_s is None or jitter_s is None:
            return None
        # Written so that it refuses NaN as well.
        if not (0 < round_trip_s <= ABSURD_S and 0 <= jitter_s <= ABSURD_S):
            return None
        buffer_ms = max(LEAST_BUFFER_MS, PACKET_MS + JITTER_SHARE * jitter_s * 1000)
        measured_ms = min(float(MOST_MS), round_trip_s * 500 + buffer_ms)
        if self._estimate_ms is None:
            self._estimate_ms = measured_ms
        else:
            self._estimate_ms += (measured_ms - self._estimate_ms) * NEW_PERCENT / 100
        return self.delay_ms
