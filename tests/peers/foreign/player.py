"""Clock of a client's player, and of the loop that it runs on; the recordings of its caller.

A gap is a time for which the player had nothing to play inside of an answer. A part of it may be the
program's own: while its loop stands still (its imports, its garbage collection, no processor that is free),
audio that has come stays in the socket. ``LoopWatch`` records these times, so that a report has both, the gap
as it is heard and the program's own part of it.

Programs of other projects import this module in their own environments: it needs Python alone.
"""

import asyncio
import gc
import time
import wave
from collections.abc import Mapping, Sequence
from typing import Any

RATE_HZ = 24_000
# Interval of the checks of a loop, and the shortest lateness that is recorded.
STEP_S, LEAST_S = 0.01, 0.005
# Gaps of which a report says where they were.
MOST_GAPS = 5


def pcm_of(path: str) -> bytes:
    """Return the samples of a recording: mono, 16 bit, of ``RATE_HZ``."""
    with wave.open(path) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (RATE_HZ, 1, 2)
        return file.readframes(file.getnframes())


def keep_imports() -> None:
    """Exempt what was imported from garbage collection: a scan of it would stop the program for 100 ms."""
    gc.collect()
    gc.freeze()


class LoopWatch:
    """Watch of the running loop, from ``begin`` to ``end``.

    Attributes:
        stalls_s: begin and end of the times in which the loop ran nothing that was due.
    """

    def __init__(self) -> None:
        self.stalls_s: list[tuple[float, float]] = []
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Begin to watch."""
        self._task = asyncio.create_task(self._watch(), name="loop watch")

    async def end(self) -> None:
        """Stop to watch."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _watch(self) -> None:
        while True:
            due_s = time.monotonic() + STEP_S
            await asyncio.sleep(STEP_S)
            now_s = time.monotonic()
            if now_s - due_s >= LEAST_S:
                self.stalls_s.append((due_s, now_s))

    def stalled_s(self, from_s: float, to_s: float) -> float:
        """Return how long the loop stood still in a time."""
        return sum(max(0.0, min(end, to_s) - max(begin, from_s)) for begin, end in self.stalls_s)

    @property
    def longest_s(self) -> float:
        """Longest time for which the loop stood still."""
        return max((end - begin for begin, end in self.stalls_s), default=0.0)


class Player:
    """Player that plays the pieces of an answer one after the other, each as soon as it has come.

    Args:
        delay_s: wait before the first piece of an answer, of a client that has one.
    """

    def __init__(self, delay_s: float = 0.0) -> None:
        self._delay_s = delay_s
        self._answer, self._until_s = "", 0.0
        # Begin and end of each gap, and how much of the answer had been played by then.
        self._gaps_s: list[tuple[float, float, float]] = []
        self._played_s = 0.0

    def take(self, answer: str, length_s: float, at_s: float | None = None) -> None:
        """Take a piece of an answer that has come, now or at a time."""
        now_s = time.monotonic() if at_s is None else at_s
        if answer != self._answer:
            self._answer, self._played_s, self._until_s = answer, 0.0, now_s + self._delay_s
        elif now_s > self._until_s:
            self._gaps_s.append((self._until_s, now_s, self._played_s))
            self._until_s = now_s
        self._until_s += length_s
        self._played_s += length_s

    def over(self) -> None:
        """End the answer: what comes next is not played in one piece with it."""
        self._answer = ""

    def report(self, watch: LoopWatch) -> dict[str, Any]:
        """Return the largest gap, the largest without the program's own part, and where the longest were."""
        gaps = [
            {
                "ms": round((to_s - from_s) * 1000, 1),
                "own_ms": round(watch.stalled_s(from_s, to_s) * 1000, 1),
                "after_ms": round(played_s * 1000),
            }
            for from_s, to_s, played_s in self._gaps_s
        ]
        return gap_report(gaps, watch)


def gap_report(gaps: Sequence[Mapping[str, float]], watch: LoopWatch) -> dict[str, Any]:
    """Return the report of gaps with their ``ms`` and the program's part of that, ``own_ms``."""
    longest = sorted(gaps, key=lambda gap: gap["ms"], reverse=True)
    return {
        "largest_gap_ms": max((gap["ms"] for gap in gaps), default=0.0),
        "largest_late_ms": max((gap["ms"] - gap["own_ms"] for gap in gaps), default=0.0),
        "gaps": longest[:MOST_GAPS],
        "longest_stall_ms": round(watch.longest_s * 1000, 1),
    }
