"""Rate limit for text typed into a session: bytes a minute, over all surfaces together.

A typed turn is committed, indexed, read by the model and sent to every follower, so its cost is that of its
bytes. A person types far less than the limit. The state of the session that was typed into least recently is
evicted; it then has its whole share again.
"""

from parley.core.token_bucket import TokenBucket
from parley.runtime.loop_clock import LoopClock

# Minimum count of a turn: an empty one also has its commits, its events and its answer.
LEAST_BYTES = 200
COUNTED_SESSIONS = 10_000


class TypedShares:
    """Rate limits of all sessions of a process.

    Args:
        bytes_per_minute: of each session: both the burst and the rate.
    """

    def __init__(self, bytes_per_minute: int) -> None:
        self._per_minute = bytes_per_minute
        self._clock = LoopClock()
        self._sessions: dict[str, TokenBucket] = {}

    def take(self, session_id: str, text: str) -> float:
        """Count a typed turn; return 0 when it may be accepted, otherwise the seconds until it may."""
        now_us = self._clock.now_us()
        share = self._sessions.pop(session_id, None) or TokenBucket(self._per_minute / 60, self._per_minute)
        self._sessions[session_id] = share
        if len(self._sessions) > COUNTED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        size = max(LEAST_BYTES, len(text.encode("utf-8", "surrogatepass")))
        return share.take_or_wait_us(min(size, self._per_minute), now_us) / 1_000_000
