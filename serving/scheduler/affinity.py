"""Choice among several free workers: the one that must read least of the conversation again. Pure.

The order of preference is: a worker whose cache the conversation's handle names; one that kept the longest
beginning of it; an empty one; the one whose cache is the least loss, because it is cheap to rebuild or has
not been used for long. All of this is an estimate of another process's memory. The worker verifies it, and a
wrong estimate only costs time.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from parley.serving.scheduler.types import WorkerRequest

# The worth of an unused cache halves in this time: after a longer pause a person rarely returns to it.
HALF_LIFE_MS = 60_000
# Share of a cache's worth when no client has the conversation open any more: the person may still return.
LEFT_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Kept:
    """Cache that a worker kept of one conversation.

    Attributes:
        digests: of its segments, the oldest first, with the number of tokens at which each ends.
        used_ms: time of its last use.
        session_id: of the conversation; empty where it is unknown.
        is_left: true when no client has the conversation open any more.
    """

    digests: tuple[tuple[str, int], ...]
    used_ms: int
    session_id: str = ""
    is_left: bool = False

    @property
    def tokens(self) -> int:
        """Number of tokens in the cache."""
        return self.digests[-1][1] if self.digests else 0

    def beginning_of(self, want: WorkerRequest) -> int:
        """Return how many tokens of the conversation are in it, from its beginning on."""
        tokens = 0
        for (mine, ends_at), (theirs, _) in zip(self.digests, want.digests, strict=False):
            if mine != theirs:
                break
            tokens = ends_at
        return tokens


@dataclass(frozen=True, slots=True)
class Candidate:
    """Worker with room.

    Attributes:
        worker: its name.
        incarnation: of its process.
        kept: caches that are not in use.
    """

    worker: str
    incarnation: str
    kept: tuple[Kept, ...]


def holds(candidate: Candidate, want: WorkerRequest) -> bool:
    """Return whether the records of a worker contain exactly the cache that the handle names."""
    handle = want.handle
    return (
        handle is not None
        and (handle.worker, handle.incarnation) == (candidate.worker, candidate.incarnation)
        and any(kept.digests and kept.digests[-1][0] == handle.digest for kept in candidate.kept)
    )


def best(candidates: Iterable[Candidate], want: WorkerRequest, now_ms: int) -> str | None:
    """Return the name of the worker to take, or None without candidates. Ties are decided by name."""
    ranked = sorted(candidates, key=lambda candidate: _rank(candidate, want, now_ms))
    return ranked[0].worker if ranked else None


def _rank(candidate: Candidate, want: WorkerRequest, now_ms: int) -> tuple[int, float, str]:
    if holds(candidate, want):
        return 0, 0.0, candidate.worker
    longest = max((kept.beginning_of(want) for kept in candidate.kept), default=0)
    if longest:
        return 1, -longest, candidate.worker
    if not candidate.kept:
        return 2, 0.0, candidate.worker
    # The cache that would be evicted: the one of least worth.
    return 3, min(_worth(kept, now_ms) for kept in candidate.kept), candidate.worker


def _worth(kept: Kept, now_ms: int) -> float:
    share = LEFT_SHARE if kept.is_left else 1.0
    return float(share * kept.tokens * 0.5 ** ((now_ms - kept.used_ms) / HALF_LIFE_MS))
