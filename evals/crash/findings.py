"""What a run found, and whether that is what was promised. Pure.

Nothing is left out of a figure without a figure of its own: a kill that came later than it was drawn counts
where it came; what was heard too shortly before a kill to be promised is counted apart, with how much of it
was there all the same; a question that the recogniser never understood is a fact that was not answered.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evals.crash.model_peer import WISH
from evals.crash.outside import BOOKING, Request
from evals.crash.statements import Statement, doubles, gaps, judge
from evals.latency.figures import percentile

BY_TEXT, BY_CALL = "text", "call"


@dataclass
class Findings:
    """Figures of a run.

    Attributes:
        voice: whether a call of each session was under way.
        store: kind of database.
        rounds: conversations; each was to be killed once.
        drawn, killed_in: kills by the phase in which they were meant to come, and did come.
        caller: what the person in the call did at a kill.
        acknowledged: statements before a kill, by how they were made.
        acknowledged_later: statements behind it.
        lost, lost_later: statements that the timeline does not hold: behind the kill, at the end of the run.
        out_of_order: statements whose event lies before one that was stated earlier.
        doubled: turns, answers, calls and results that a timeline has again.
        gaps: missing numbers of timelines.
        heard_unsettled: replies heard too shortly before a kill to be promised, and how many are there.
        effects: orders and bookings that took effect; ``doubled_effects`` more often than once.
        retried: requests of bookings that were repeated with their key.
        unknown: orders of which the session says that nobody knows whether they took effect.
        untrue: results that say what is not so; bookings that were not found out.
        unsettled_calls: tool calls without a result in the end.
        undone: wishes that were answered without a call of the tool.
        facts_asked, facts_right: by text and by call.
        not_understood: of those asked by call, how many the recogniser never understood.
        restarts_ms: from the start of the new process to the end of its first answer.
        refused: what the server refused or broke off, when nobody killed it.
        details: of every fault.
    """

    voice: bool = False
    store: str = ""
    rounds: int = 0
    kills: int = 0
    drawn: Counter[str] = field(default_factory=Counter)
    killed_in: Counter[str] = field(default_factory=Counter)
    caller: Counter[str] = field(default_factory=Counter)
    acknowledged: Counter[str] = field(default_factory=Counter)
    acknowledged_later: int = 0
    lost: int = 0
    lost_later: int = 0
    out_of_order: int = 0
    doubled: int = 0
    gaps: int = 0
    heard_unsettled: int = 0
    heard_unsettled_there: int = 0
    effects: int = 0
    doubled_effects: int = 0
    retried: int = 0
    unknown: int = 0
    untrue: int = 0
    unsettled_calls: int = 0
    undone: int = 0
    facts_asked: Counter[str] = field(default_factory=Counter)
    facts_right: Counter[str] = field(default_factory=Counter)
    not_understood: int = 0
    restarts_ms: list[int] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def behind_the_kill(
        self,
        stated: Sequence[Statement],
        unsettled: Sequence[Statement],
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        """What the new server has of what its predecessor acknowledged."""
        verdict = judge(stated, events)
        self.acknowledged.update(statement.said_by for statement in stated)
        self.lost += len(verdict.lost)
        self.details += [f"lost: {statement}" for statement in verdict.lost]
        self.heard_unsettled += len(unsettled)
        self.heard_unsettled_there += len(unsettled) - len(judge(unsettled, events).lost)

    def in_the_end(
        self, stated: Sequence[Statement], earlier: int, events: Sequence[Mapping[str, Any]]
    ) -> None:
        """A session when all is over.

        Args:
            stated: all that was acknowledged.
            earlier: how many of them before the kill.
            events: its timeline.
        """
        verdict = judge(stated, events)
        self.acknowledged_later += len(stated) - earlier
        self.lost_later += len(verdict.lost)
        self.out_of_order += len(verdict.out_of_order)
        twice, missing = doubles(events), gaps(events)
        self.doubled += len(twice)
        self.gaps += missing
        self.details += [f"lost in the end: {statement}" for statement in verdict.lost]
        self.details += [f"out of order: {statement}" for statement in verdict.out_of_order]
        self.details += [f"twice: {identity}" for identity in twice]
        self.details += [f"{missing} numbers are missing or given twice"] if missing else []

    def of_tools(
        self,
        session_id: str,
        requests: Sequence[Request],
        effects: Mapping[str, int],
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        """What the tools of a session did, beside what its timeline says.

        Args:
            session_id: which one.
            requests: that the endpoints got.
            effects: of each item, as the endpoints counted them.
            events: its timeline.
        """
        calls = [event["payload"] for event in events if event["kind"] == "tool_call"]
        results = {e["payload"]["call_id"]: e["payload"] for e in events if e["kind"] == "tool_result"}
        mine = [request for request in requests if request.key.startswith(f"{session_id}.")]
        for item in {request.item for request in mine}:
            self.effects += effects.get(item, 0)
            if effects.get(item, 0) > 1:
                self._fault("doubled_effects", f"{item} took effect {effects[item]} times", effects[item] - 1)
        bookings = [request.key for request in mine if request.tool == BOOKING]
        self.retried += len(bookings) - len(set(bookings))
        for call in calls:
            self._of_call(call, results.get(call["call_id"]), effects.get(call["arguments"]["item"], 0))
        called = {call["arguments"]["item"] for call in calls}
        for event in events:
            if event["kind"] == "user_turn":
                for _, item in WISH.findall(event["payload"]["text"]):
                    if item not in called:
                        self._fault("undone", f"{item} was asked for and never called for")

    def _of_call(self, call: Mapping[str, Any], result: Mapping[str, Any] | None, effects: int) -> None:
        if result is None:
            self._fault("unsettled_calls", f"{call['call_id']} has no result")
            return
        match result["outcome"]:
            case "done":
                is_true = effects >= 1
            case "failed":
                is_true = effects == 0
            case _:
                # One that may be repeated is found out.
                is_true = call["name"] != BOOKING
                self.unknown += is_true
        if not is_true:
            self._fault("untrue", f"{call['call_id']} is {result['outcome']!r}, with {effects} effects")

    def _fault(self, figure: str, detail: str, count: int = 1) -> None:
        setattr(self, figure, getattr(self, figure) + count)
        self.details.append(f"{figure}: {detail}")

    @property
    def faults(self) -> dict[str, int]:
        """Must-haves that were broken, with how often; empty when all hold."""
        channels = (BY_TEXT, BY_CALL) if self.voice else (BY_TEXT,)
        counted = {
            "lost": self.lost,
            "lost in the end": self.lost_later,
            "out of order": self.out_of_order,
            "doubled": self.doubled,
            "gaps": self.gaps,
            "doubled effects": self.doubled_effects,
            "untrue results": self.untrue,
            "calls without a result": self.unsettled_calls,
            "wishes undone": self.undone,
            "refused": len(self.refused),
            "not killed": self.rounds - self.kills,
            "facts not answered": sum(self.rounds - self.facts_right[channel] for channel in channels),
            # A run that looked at nothing shows nothing.
            "nothing acknowledged": int(not self.acknowledged),
            "no effects": int(not self.effects),
        }
        return {name: count for name, count in counted.items() if count}

    def passed(self) -> bool:
        """Nothing lost, nothing twice, every fact known."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        return {
            **vars(self),
            "acknowledged_total": self.acknowledged.total(),
            "restart_ms": {f"p{percent}": percentile(self.restarts_ms, percent) for percent in (50, 95)},
            "faults": self.faults,
            "passed": self.passed(),
        }

    def table(self) -> str:
        """Markdown."""
        restart = self.as_json()["restart_ms"]
        rows: list[tuple[str, object]] = [
            ("kills", self.kills),
            *((f"- {phase}", count) for phase, count in sorted(self.killed_in.items())),
            *((f"- the person in the call {what}", count) for what, count in sorted(self.caller.items())),
            ("acknowledged before a kill", f"{self.acknowledged.total()}: {_counted(self.acknowledged)}"),
            ("acknowledged behind it", self.acknowledged_later),
            ("lost behind the kill / in the end", f"{self.lost} / {self.lost_later}"),
            ("doubled / out of order / gaps", f"{self.doubled} / {self.out_of_order} / {self.gaps}"),
            (
                "heard too shortly before a kill to be promised / there all the same",
                f"{self.heard_unsettled} / {self.heard_unsettled_there}",
            ),
            ("effects / doubled", f"{self.effects} / {self.doubled_effects}"),
            ("bookings sent again with their key", self.retried),
            ("orders of unknown outcome, as the session says", self.unknown),
            (
                "untrue results / calls without one / wishes undone",
                f"{self.untrue} / {self.unsettled_calls} / {self.undone}",
            ),
            *(
                (f"facts by {channel}: asked / right", f"{asked} / {self.facts_right[channel]}")
                for channel, asked in sorted(self.facts_asked.items())
            ),
            ("- of them never understood by the recogniser", self.not_understood),
            ("from restart to first answer ms, p50 / p95", f"{restart['p50']} / {restart['p95']}"),
            ("refused", len(self.refused)),
            ("must-haves", ", ".join(f"{n} {name}" for name, n in self.faults.items()) or "all hold"),
        ]
        lines = [f"| {self.store}{', with calls' if self.voice else ''} | |", "|---|---|"]
        return "\n".join([*lines, *(f"| {name} | {value} |" for name, value in rows)]) + "\n"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
