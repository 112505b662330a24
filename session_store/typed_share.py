"""Rate limits for text and for pictures put into a session: bytes a minute, over all surfaces together.

A typed turn is committed, indexed, read by the model and sent to every follower, so its cost is that of its
bytes. A person types far less than the limit. A text larger than the limit is refused for good: it would pay
for a part of itself only. A picture is stored, and has a limit of its own. The state of
the session that was used least recently is evicted; it then has its whole share again.
"""

from parley.core.errors import OversizedError
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

    @property
    def per_minute(self) -> int:
        """Share of each session."""
        return self._per_minute

    def take(self, session_id: str, size: int) -> float:
        """Take bytes of a share, at most all of it; return 0, or the seconds until they may be taken."""
        return self._share(session_id).take_or_wait_us(self._most(size), self._clock.now_us()) / 1_000_000

    def wait_s(self, session_id: str, size: int) -> float:
        """Return the seconds until bytes may be taken; 0 for now. Takes none."""
        return self._share(session_id).wait_us(self._most(size), self._clock.now_us()) / 1_000_000

    def _most(self, size: int) -> int:
        return min(size, self._per_minute)

    def _share(self, session_id: str) -> TokenBucket:
        share = self._sessions.pop(session_id, None) or TokenBucket(self._per_minute / 60, self._per_minute)
        self._sessions[session_id] = share
        if len(self._sessions) > COUNTED_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        return share


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
        """Count a typed turn; return 0 when it may be accepted, otherwise the seconds until it may.

        Raises:
            OversizedError: it is larger than the whole share.
        """
        return self._texts.take(session_id, self._size(text))

    def wait_s(self, session_id: str, text: str) -> float:
        """Return what ``take`` would, and count nothing.

        Raises:
            OversizedError: it is larger than the whole share.
        """
        return self._texts.wait_s(session_id, self._size(text))

    def _size(self, text: str) -> int:
        size, limit = max(LEAST_BYTES, len(text.encode("utf-8", "surrogatepass"))), self._texts.per_minute
        if size > limit:
            raise OversizedError(
                f"the text has {size} bytes, and a session takes {limit} a minute: send less at once",
                size=size,
                limit=limit,
            )
        return size

    def take_pictures(self, session_id: str, size: int) -> float:
        """Count bytes of pictures; return 0 when they may be accepted, else the seconds until they may."""
        return self._pictures.take(session_id, size) if size else 0.0
