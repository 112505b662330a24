"""Which of several free workers: the one that has to read least of the conversation again. Pure.

First a worker whose cache the conversation's handle names, then one that kept the longest beginning of it,
then an empty one, then the one whose cache is the least loss: cheap to rebuild, or not used for long. All of
this is a guess about somebody else's memory: the worker verifies, and a wrong guess costs time only.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from serving.scheduler.wants import Want

# A cache that was not used for so long is worth half: whoever paused for longer rarely comes back to it.
HALF_LIFE_MS = 60_000
# Of what a cache is worth, when nobody has the conversation open any more: they may still come back.
LEFT_SHARE = 0.01


@dataclass(frozen=True, slots=True)
class Kept:
    """What a worker kept of one conversation.

    Attributes:
        digests: of its segments, the oldest first, with how many tokens each ends at.
        used_ms: when it was used last.
        session_id: whose; empty where that is not known.
        is_left: whoever had the conversation has left it.
    """

    digests: tuple[tuple[str, int], ...]
    used_ms: int
    session_id: str = ""
    is_left: bool = False

    @property
    def tokens(self) -> int:
        """Of all of it."""
        return self.digests[-1][1] if self.digests else 0

    def beginning_of(self, want: Want) -> int:
        """How many tokens of the conversation are in it, from its beginning on."""
        tokens = 0
        for (mine, ends_at), (theirs, _) in zip(self.digests, want.digests, strict=False):
            if mine != theirs:
                break
            tokens = ends_at
        return tokens


@dataclass(frozen=True, slots=True)
class Candidate:
    """A worker with room.

    Attributes:
        worker: its name.
        incarnation: of its process.
        kept: caches that nobody uses at the moment.
    """

    worker: str
    incarnation: str
    kept: tuple[Kept, ...]


def holds(candidate: Candidate, want: Want) -> bool:
    """Whether a worker is said to have exactly what the handle names."""
    handle = want.handle
    return (
        handle is not None
        and (handle.worker, handle.incarnation) == (candidate.worker, candidate.incarnation)
        and any(kept.digests and kept.digests[-1][0] == handle.digest for kept in candidate.kept)
    )


def best(candidates: Iterable[Candidate], want: Want, now_ms: int) -> str | None:
    """The name of the worker to take; None of none. Of equal ones the first by name."""
    ranked = sorted(candidates, key=lambda candidate: _rank(candidate, want, now_ms))
    return ranked[0].worker if ranked else None


def _rank(candidate: Candidate, want: Want, now_ms: int) -> tuple[int, float, str]:
    if holds(candidate, want):
        return 0, 0.0, candidate.worker
    longest = max((kept.beginning_of(want) for kept in candidate.kept), default=0)
    if longest:
        return 1, -longest, candidate.worker
    if not candidate.kept:
        return 2, 0.0, candidate.worker
    # The one that would be thrown away: the least worth of what is there.
    return 3, min(_worth(kept, now_ms) for kept in candidate.kept), candidate.worker


def _worth(kept: Kept, now_ms: int) -> float:
    share = LEFT_SHARE if kept.is_left else 1.0
    return float(share * kept.tokens * 0.5 ** ((now_ms - kept.used_ms) / HALF_LIFE_MS))
