"""Findings of a run of the fuzzer, and their table. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parley.evals.abuse.controls import Report
from parley.evals.abuse.footprint import Footprint
from parley.evals.abuse.report import GAP_BEYOND_MS, control_faults, footprint_faults
from parley.evals.harness.report import markdown

# Findings, and characters of a message.
MOST_SHOWN, SHOWN_CHARS = 40, 160


@dataclass(frozen=True, slots=True)
class Finding:
    """Defect that a message has shown.

    Attributes:
        place: of the code, or the response.
        detail: text of the exception, or of the response.
        suspects: conversations that may have caused it, each with its last messages.
    """

    place: str
    detail: str
    suspects: Sequence[Mapping[str, Any]]


@dataclass
class FuzzRun:
    """Figures of one run.

    Attributes:
        seed: of the run.
        seconds: its length.
        sent: messages by protocol.
        conversations: by protocol.
        tallies: statuses, closes and errors by protocol.
        places: number of failures by place.
        findings: the first failures of each place.
        base: control calls without the fuzzer.
        controls: control calls with it.
        before: resources before it.
        later: resources after it.
        gap_beyond_ms: allowed excess of a gap.
        broken: reason for which it could not be completed.
    """

    seed: int
    seconds: float = 0.0
    sent: Mapping[str, int] = field(default_factory=dict)
    conversations: Mapping[str, int] = field(default_factory=dict)
    tallies: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    places: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    base: Mapping[str, Report] = field(default_factory=dict)
    controls: Mapping[str, Report] = field(default_factory=dict)
    before: Footprint | None = None
    later: Footprint | None = None
    gap_beyond_ms: float = GAP_BEYOND_MS
    broken: str = ""

    @property
    def faults(self) -> list[str]:
        """Faults, a line each; empty when the server is sound."""
        found = [self.broken] if self.broken else []
        found += [f"{number} times: {place}" for place, number in self.places.most_common()]
        for transport, with_fuzz in self.controls.items():
            without = self.base.get(transport, with_fuzz)
            found += control_faults(transport, without, with_fuzz, gap_beyond_ms=self.gap_beyond_ms)
        if self.before is not None and self.later is not None:
            found += footprint_faults(self.before, self.later)
        found += [f"nothing was sent by {name}" for name, number in self.sent.items() if not number]
        return found


def table(run: FuzzRun) -> str:
    """Return the figures as text."""
    rows = [
        (name, sent, run.conversations.get(name, 0), _shown(run.tallies.get(name, {})))
        for name, sent in sorted(run.sent.items())
    ]
    total = sum(run.sent.values())
    lines = [
        f"seed {run.seed}: {total} messages in {run.seconds:.0f} s, "
        f"{total / max(1.0, run.seconds):.0f} a second",
        markdown(("protocol", "messages", "conversations", "ends and answers"), rows),
        *(_control(run, transport) for transport in run.controls),
    ]
    if run.before is not None and run.later is not None:
        lines.append(f"before {run.before}")
        lines.append(f"later  {run.later}")
    for finding in run.findings[:MOST_SHOWN]:
        lines.append(f"{finding.place}: {finding.detail}")
        lines += [f"  {_suspect(suspect)}" for suspect in finding.suspects]
    lines += [f"FAULT {fault}" for fault in run.faults] or ["no fault"]
    return "\n".join(lines)


def _shown(tally: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {number}" for name, number in list(tally.items())[:6])


def _control(run: FuzzRun, transport: str) -> str:
    base, report = run.base.get(transport), run.controls[transport]
    return (
        f"{transport}: gap {base.gap_ms if base else None} ms without, {report.gap_ms} ms with; "
        f"{report.answered} of {report.asked} answered in {_middle(report.waits_ms)} ms "
        f"({_middle(base.waits_ms) if base else None} without)"
    )


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _suspect(suspect: Mapping[str, Any]) -> str:
    last = "\n    ".join(each[:SHOWN_CHARS] for each in suspect["last"][-2:])
    return f"--protocol {suspect['protocol']} --conversation {suspect['conversation']}\n    {last}"
