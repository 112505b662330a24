"""Rate limits for text and for pictures put into a session: bytes a minute, over all surfaces together.

A typed turn is committed, indexed, read by the model and sent to every follower, so its cost is that of its
bytes. A person types far less than the limit. A picture is stored, and has a limit of its own. The state of
the session that was used least recently is evicted; it then has its whole share again.
"""

from parley.core.token_bucket import TokenBucket
from parley.runtime.loop_clock import LoopClock

# Minimum count of a turn: an empty one also has its commits, its events and its answer.
LEAST_BYTES = 200
COUNTED_SESSIONS = 10_000


class _Shares:
    """Buckets of the sessions, those used last.

    Args:
        per_minute: of each session: both the burst and the rate.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._clock = LoopClock()
        self._sessions: dict[str, TokenBucket] = {}

    def take(self, session_id: str, size: int) -> float:
        """Take bytes of a session's share; return 0, or the seconds until they may be taken."""
        now_us = self._clock.now_us()
        share = self._sessions.pop(session_id, None) or TokenBucket(self._per_minute / 60, self._per_minute)
        self._sessions[session_id] = share
        if len(self._sessions) > COUNTED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return share.take_or_wait_us(min(size, self._per_minute), now_us) / 1_000_000


class TypedShares:
    """Rate limits of all sessions of a process.

    Args:
        bytes_per_minute: text of each session: both the burst and the rate.
        picture_bytes_per_minute: the same for pictures.
    """

    def __init__(self, bytes_per_minute: int, picture_bytes_per_minute: int = 6_000_000) -> None:
        self._texts = _Shares(bytes_per_minute)
        self._pictures = _Shares(picture_bytes_per_minute)

    def take(self, session_id: str, text: str) -> float:
        """Count a typed turn; return 0 when it may be accepted, otherwise the seconds until it may."""
        size = max(LEAST_BYTES, len(text.encode("utf-8", "surrogatepass")))
        return self._texts.take(session_id, size)

    def take_pictures(self, session_id: str, size: int) -> float:
        """Count bytes of pictures; return 0 when they may be accepted, else the seconds until they may."""
        return self._pictures.take(session_id, size) if size else 0.0
