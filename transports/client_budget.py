"""Budget of one client: messages, bytes, and time on the event loop.

Decides whether a message is accepted, and how long the client's reader waits before it reads the next one.
Sockets and the data channel of a browser decide both by this module alone:

* a message over ``messages_per_s`` (with a burst) is refused;
* a client that has sent more bytes, or has kept the loop busy for longer, than its share is not read until
  the share has refilled. Its socket fills, so the client cannot send faster than its share.

Pure: times are passed in, in microseconds of any clock that does not go back.
"""

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.core.token_bucket import TokenBucket

# Time on the loop that an idle client may use at once before it has to wait.
BURST_BUSY_MS = 250


class ClientShare(StrictModel):
    """Bounds of what one client may send, and cost, in a second."""

    messages_per_s: float = Field(
        200.0, ge=0.1, le=10_000, description="messages of a client; more are refused"
    )
    burst_messages: int = Field(400, ge=1, le=100_000)
    bytes_per_s: int = Field(
        1_500_000,
        ge=10_000,
        le=1_000_000_000,
        description="data of a client; beyond it the client is read more slowly. A second of audio and a "
        "picture in base64 are about 400 kB",
    )
    burst_bytes: int = Field(16_000_000, ge=100_000, le=1_000_000_000)
    busy_ms_per_s: float = Field(
        50.0,
        ge=1,
        le=1_000,
        description="time on the event loop, which all calls share, that reading from this client may take; "
        "beyond it the client is read more slowly",
    )


class ClientBudget:
    """Budget of one client.

    Args:
        share: bounds of what the client may send and cost.

    Attributes:
        dropped: number of messages refused so far.
    """

    def __init__(self, share: ClientShare) -> None:
        self._messages = TokenBucket(share.messages_per_s, share.burst_messages)
        self._bytes = TokenBucket(share.bytes_per_s, share.burst_bytes)
        self._busy_us = TokenBucket(share.busy_ms_per_s * 1000, BURST_BUSY_MS * 1000)
        self.dropped = 0

    def take(self, size_bytes: int, now_us: int) -> bool:
        """Count a message and return whether it is accepted. The bytes of a refused one count too."""
        self._bytes.overdraw(size_bytes, now_us)
        if self._messages.take(1, now_us):
            return True
        self.dropped += 1
        return False

    def spend(self, busy_us: float, now_us: int) -> None:
        """Count time for which this client kept the loop busy."""
        self._busy_us.overdraw(busy_us, now_us)

    def wait_us(self, now_us: int) -> int:
        """Return how long not to read from this client, in microseconds."""
        return max(self._bytes.owed_us(now_us), self._busy_us.owed_us(now_us))
