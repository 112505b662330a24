"""Verdicts and their table. Pure: measurements in, faults and text out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from parley.evals.abuse.controls import Report
from parley.evals.abuse.footprint import Footprint
from parley.evals.abuse.registry import Outcome

GAP_BEYOND_MS = 60.0
MEMORY_SHARE = 1.10
# Resources of the measurement itself: a connection that is kept alive, a page of a database.
FEW = 2
# An answer that takes half as long again, and a third of a second on top for the machine's own noise.
WAIT_SHARE, WAIT_BEYOND_MS = 1.5, 350.0


@dataclass
class Row:
    """Figures of one attack and the verdict on them.

    Attributes:
        name: of the attack.
        covers: of the attack.
        outcome: its result. None when it gave none.
        base: control calls without an attack.
        controls: control calls with it.
        before: resources of the idle server before the attack.
        after: resources at the end of the attack.
        later: resources of the server when it is idle again.
        peak_mb: largest memory during the attack.
        later_s: time from ``after`` to ``later``.
        failures: lines in the server's log that a client must not be able to cause.
        judges_wait: see ``Attack``.
        may_refuse: see ``Attack``.
        gap_beyond_ms: allowed excess of a gap over the longest without the attack.
        broken: reason for which it could not be measured, or the fate of the server.
    """

    name: str
    covers: str
    outcome: Outcome | None = None
    base: Mapping[str, Report] = field(default_factory=dict)
    controls: Mapping[str, Report] = field(default_factory=dict)
    before: Footprint | None = None
    after: Footprint | None = None
    later: Footprint | None = None
    peak_mb: float = 0.0
    later_s: float = 0.0
    failures: int = 0
    judges_wait: bool = False
    may_refuse: bool = False
    gap_beyond_ms: float = GAP_BEYOND_MS
    broken: str = ""

    @property
    def faults(self) -> list[str]:
        """Faults for which the row fails, a line each; empty when it passes."""
        found = [self.broken] if self.broken else []
        if self.outcome is not None:
            found += self.outcome.faults
            if self.outcome.sent == 0:
                found.append("the attack sent nothing")
        for transport, with_attack in self.controls.items():
            without = self.base.get(transport, with_attack)
            found += control_faults(
                transport,
                without,
                with_attack,
                judges_wait=self.judges_wait,
                may_refuse=self.may_refuse,
                gap_beyond_ms=self.gap_beyond_ms,
            )
        if self.before is not None and self.later is not None:
            found += footprint_faults(self.before, self.later)
        if self.failures:
            found.append(f"{self.failures} failures in the server's log")
        return found


def control_faults(
    transport: str,
    without: Report,
    with_attack: Report,
    *,
    judges_wait: bool = False,
    may_refuse: bool = False,
    gap_beyond_ms: float = GAP_BEYOND_MS,
) -> list[str]:
    """Return the faults of the control calls of one transport."""
    found = [f"{transport}: {with_attack.broken[0]}"] if with_attack.broken else []
    if with_attack.refused and not may_refuse:
        found.append(f"{transport}: {with_attack.refused} calls refused")
    if with_attack.answered < with_attack.asked or not with_attack.asked:
        found.append(f"{transport}: {with_attack.answered} of {with_attack.asked} questions answered")
    gap_ms, base_ms = with_attack.gap_ms, without.gap_ms or 0.0
    if gap_ms is None:
        found.append(f"{transport}: nothing was heard")
    elif gap_ms > base_ms + gap_beyond_ms:
        found.append(f"{transport}: a gap of {gap_ms:.0f} ms, {base_ms:.0f} without")
    if judges_wait and without.waits_ms and with_attack.waits_ms:
        most_ms = max(without.waits_ms) * WAIT_SHARE + WAIT_BEYOND_MS
        if (slowest_ms := max(with_attack.waits_ms)) > most_ms:
            found.append(f"{transport}: an answer after {slowest_ms:.0f} ms, {most_ms:.0f} are allowed")
    return found


def footprint_faults(before: Footprint, later: Footprint) -> list[str]:
    """Return the faults of the resources that an attack has left behind."""
    found = []
    if later.rss_mb > before.rss_mb * MEMORY_SHARE:
        found.append(f"memory {before.rss_mb:.0f} MB before, {later.rss_mb:.0f} MB later")
    if later.descriptors > before.descriptors + FEW:
        found.append(f"{later.descriptors - before.descriptors} descriptors left")
    if later.tasks is None:
        found.append("the server does not answer later")
    elif before.tasks is not None and later.tasks > before.tasks + FEW:
        found.append(f"{later.tasks - before.tasks} tasks left")
    if later.calls:
        found.append(f"{later.calls} calls left")
    return found


HEAD = ("attack", "gap ms, without/with: webrtc", "phone", "socket", "answers", "MB before/peak/later",
        "descriptors", "stalls", "verdict")  # fmt: skip


def table(rows: Sequence[Row]) -> str:
    """Return all rows as text, each fault on a line of its own below."""
    lines = [" | ".join(HEAD)]
    for row in rows:
        lines.append(" | ".join(_cells(row)))
        lines += [f"    {fault}" for fault in row.faults]
    passed = sum(not row.faults for row in rows)
    lines.append(f"{passed} of {len(rows)} passed")
    return "\n".join(lines)


def _cells(row: Row) -> tuple[str, ...]:
    gaps = [_gap(row, transport) for transport in ("webrtc", "phone", "socket")]
    asked = sum(report.asked for report in row.controls.values())
    answered = sum(report.answered for report in row.controls.values())
    memory = descriptors = stalls = "-"
    if row.before is not None:
        later = row.later or row.before
        memory = f"{row.before.rss_mb:.0f}/{row.peak_mb:.0f}/{later.rss_mb:.0f}"
        descriptors = f"{row.before.descriptors}/{later.descriptors}"
        if row.before.stalls is not None and later.stalls is not None:
            stalls = str(later.stalls - row.before.stalls)
    answers = f"{answered}/{asked}" if row.controls else "-"
    return (row.name, *gaps, answers, memory, descriptors, stalls, "FAIL" if row.faults else "pass")


def _gap(row: Row, transport: str) -> str:
    if transport not in row.controls:
        return "-"
    base = row.base.get(transport)
    return f"{_ms(base.gap_ms if base else None)}/{_ms(row.controls[transport].gap_ms)}"


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
