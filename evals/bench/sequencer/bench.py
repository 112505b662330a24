"""Run traffic through a sequencer and measure it.

Only the sequencer is timed: the traffic of a stretch is made before the clock starts, and the output is
checked after it stopped. Speed is per second of processor time, so that other load on the machine counts
less; the wall clock is reported as well. The calls are those of a session: a call for each report, and on
each tick a heartbeat of every stream and one advance.
"""

import gc
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any

import psutil

from parley.core.errors import AgentError
from parley.evals.bench.sequencer.traffic import LATENCY_US, Mix, Spoken, ticks
from parley.sequencer.merge import Committed, Sequencer

# Long enough that the clock's own cost vanishes, short enough that memory shows the sequencer and not the
# stretch.
TICKS_PER_STRETCH = 500

Tick = tuple[int, list[Spoken]]
Batch = tuple[int, list[Committed[int]]]


class WrongOrderError(AgentError):
    """The sequencer broke one of its promises; the figures are worth nothing."""


@dataclass(slots=True)
class Checks:
    """Checks of every committed report.

    Attributes:
        slowest_us: the latency of the slowest stream.
        tick_us: between two advances.
        committed: number of committed reports.
        late: number of reports that came after their place was passed.
        tardy: number of reports in order that arrived later after their event than the slowest stream does.
            No order can be kept faster than its last report, so they are compared with their arrival.
        frontier_us: latest event time so far.
        delays_us: number of the other reports by their time from event to commit, in bins of 1 ms (the key is
            the lower edge).
        longest_us: longest of those times.
    """

    slowest_us: int
    tick_us: int
    committed: int = 0
    late: int = 0
    tardy: int = 0
    frontier_us: int | None = None
    delays_us: dict[int, int] = field(default_factory=dict)
    longest_us: int = 0

    @property
    def bound_us(self) -> int:
        """Longest allowed time from an event to its commit."""
        return self.slowest_us + self.tick_us

    def see(self, now_us: int, committed: Iterable[Committed[int]]) -> None:
        """Check the output of one advance.

        Raises:
            WrongOrderError: it is out of order, has a gap, is wrongly marked, or came too late.
        """
        for one in committed:
            if one.seq != self.committed:
                raise WrongOrderError(f"expected number {self.committed}, got {one.seq}")
            self.committed += 1
            tardy = one.arrival_us - one.event_us > self.slowest_us
            if (one.late or tardy) and now_us - one.arrival_us > self.tick_us:
                raise WrongOrderError(f"number {one.seq} came late and waited more than a tick")
            if one.late:
                self.late += 1
                if self.frontier_us is None or one.event_us > self.frontier_us:
                    raise WrongOrderError(f"number {one.seq} is marked late but was on time")
                continue
            if self.frontier_us is not None and one.event_us < self.frontier_us:
                raise WrongOrderError(f"number {one.seq} is out of order")
            self.frontier_us = one.event_us
            if tardy:
                self.tardy += 1
                continue
            delay_us = now_us - one.event_us
            if delay_us > self.bound_us:
                raise WrongOrderError(f"number {one.seq} took {delay_us} us, the bound is {self.bound_us} us")
            self.longest_us = max(self.longest_us, delay_us)
            bin_us = delay_us // 1_000 * 1_000
            self.delays_us[bin_us] = self.delays_us.get(bin_us, 0) + 1

    def percentile_us(self, share: float) -> int:
        """Return the nearest-rank percentile, as the upper edge of its bin."""
        rank = share * sum(self.delays_us.values())
        seen = 0
        for bin_us in sorted(self.delays_us):
            seen += self.delays_us[bin_us]
            if seen >= rank:
                return bin_us + 1_000
        return 0


def measure(events: int, mix: Mix, seed: int, rss_at: Iterable[int] = ()) -> dict[str, Any]:
    """Run ``events`` reports through five streams; return the figures.

    Args:
        events: number of reports.
        mix: parameters of the traffic.
        seed: of the traffic.
        rss_at: numbers of reports after which the memory of the process is taken.

    Raises:
        WrongOrderError: the sequencer broke a promise.
    """
    sequencer: Sequencer[int] = Sequencer()
    for name, latency_us in LATENCY_US.items():
        sequencer.join(name, latency_us=latency_us, at_us=0)
    checks = Checks(max(LATENCY_US.values()), mix.tick_us)
    source = ticks(events, mix, seed)
    reported = advances = longest_waiting = 0
    wall_s = processor_s = 0.0
    rss: dict[int, int] = {}
    pending = sorted(rss_at)
    now_us = 0
    while stretch := list(islice(source, TICKS_PER_STRETCH)):
        wall_from_s, processor_from_s = time.perf_counter(), time.process_time()
        batches = _run(sequencer, stretch)
        processor_s += time.process_time() - processor_from_s
        wall_s += time.perf_counter() - wall_from_s
        reported += sum(len(spoken) for _, spoken in stretch)
        advances += len(stretch)
        longest_waiting = max(longest_waiting, sequencer.waiting)
        for now_us, committed in batches:
            checks.see(now_us, committed)
        del stretch, batches
        while pending and reported >= pending[0]:
            rss[pending.pop(0)] = _rss_bytes()
    # The last reports wait for streams without news: every stream continues for one slowest latency.
    while sequencer.waiting:
        now_us += mix.tick_us
        for tick_us, committed in _run(sequencer, [(now_us, [])]):
            checks.see(tick_us, committed)
    counts = sequencer.counts
    dropped = counts.superseded + counts.duplicates + counts.outdated + counts.after_final
    if checks.committed + dropped != reported:
        raise WrongOrderError(f"{reported} reported, {checks.committed} committed, {dropped} dropped")
    return {
        "events": reported,
        "advances": advances,
        "wall_s": round(wall_s, 3),
        "processor_s": round(processor_s, 3),
        "events_per_s": round(reported / processor_s),
        "events_per_wall_s": round(reported / wall_s),
        "us_per_tick": round(1e6 * processor_s / advances, 2),
        "delay_us": {
            "p50": checks.percentile_us(0.50),
            "p99": checks.percentile_us(0.99),
            "max": checks.longest_us,
            "bound": checks.bound_us,
        },
        "tardy": checks.tardy,
        "longest_waiting": longest_waiting,
        "rss_bytes": {str(number): size for number, size in rss.items()},
        "counts": asdict(counts),
        "mix": asdict(mix),
    }


def _run(sequencer: Sequencer[int], stretch: list[Tick]) -> list[Batch]:
    batches: list[Batch] = []
    names = list(LATENCY_US)
    for now_us, batch in stretch:
        for stream, arrival_us, payload, event_us, identity, revision, final in batch:
            if identity is None:
                sequencer.report(stream, arrival_us, payload, event_us=event_us)
            else:
                sequencer.report(
                    stream,
                    arrival_us,
                    payload,
                    event_us=event_us,
                    identity=identity,
                    revision=revision,
                    final=final,
                )
        for name in names:
            sequencer.heartbeat(name, now_us)
        batches.append((now_us, sequencer.advance(now_us)))
    return batches


def _rss_bytes() -> int:
    gc.collect()
    return psutil.Process().memory_info().rss
