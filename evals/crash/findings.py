"""Findings of a run, and whether they satisfy the requirements. Pure.

Nothing is left out of a figure without a figure of its own. A kill that came later than it was drawn counts
in the phase in which it came. A reply heard too shortly before a kill to be promised is counted separately,
with the number of those that were stored anyway. A question that the recogniser never recognised is a fact
that was not answered.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parley.evals.crash.model_peer import WISH
from parley.evals.crash.outside import BOOKING, Request
from parley.evals.crash.statements import Statement, doubles, gaps, judge
from parley.evals.harness.report import markdown, percentile

BY_TEXT, BY_CALL = "text", "call"


@dataclass
class Findings:
    """Figures of a run.

    Attributes:
        voice: true when a call of each session was under way.
        store: kind of database.
        rounds: number of conversations, each with one intended kill.
        kills: number of kills.
        drawn: kills by the phase in which they were intended.
        killed_in: kills by the phase in which they came.
        caller: activity of the caller at a kill.
        acknowledged: statements before a kill, by their origin.
        acknowledged_later: statements after it.
        lost: statements missing in the timeline after the kill.
        lost_later: statements missing in the timeline at the end of the run.
        out_of_order: statements whose event lies before one that was stated earlier.
        doubled: turns, answers, calls and results that a timeline has again.
        gaps: missing numbers of timelines.
        heard_unsettled: replies heard too shortly before a kill to be promised.
        heard_unsettled_there: number of those that are stored.
        effects: orders and bookings that took effect.
        doubled_effects: those that took effect more than once.
        retried: requests of bookings that were repeated with their key.
        unknown: orders whose effect the session records as unknown.
        untrue: results that contradict the effects. Bookings whose result stayed unknown.
        unsettled_calls: tool calls without a result in the end.
        undone: requests of the caller that were answered without a call of the tool.
        facts_asked: questions for the fact, by text and by call.
        facts_right: correct answers to them.
        not_understood: number of questions by call that the recogniser never recognised.
        restarts_ms: from the start of the new process to the end of its first answer.
        refused: requests that the server refused or broke off without a kill.
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

    def after_the_kill(
        self,
        stated: Sequence[Statement],
        unsettled: Sequence[Statement],
        events: Sequence[Mapping[str, Any]],
    ) -> None:
        """Compare the new server's timeline with its predecessor's acknowledgements."""
        verdict = judge(stated, events)
        self.acknowledged.update(statement.said_by for statement in stated)
        self.lost += len(verdict.lost)
        self.details += [f"lost: {statement}" for statement in verdict.lost]
        self.heard_unsettled += len(unsettled)
        self.heard_unsettled_there += len(unsettled) - len(judge(unsettled, events).lost)

    def in_the_end(
        self, stated: Sequence[Statement], earlier: int, events: Sequence[Mapping[str, Any]]
    ) -> None:
        """Check a session at the end of the run.

        Args:
            stated: all acknowledgements.
            earlier: number of those before the kill.
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
        """Compare the effects of a session's tools with its timeline.

        Args:
            session_id: of the session.
            requests: received by the endpoints.
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
                # The outcome of an idempotent call can be determined by repeating it.
                is_true = call["name"] != BOOKING
                self.unknown += is_true
        if not is_true:
            self._fault("untrue", f"{call['call_id']} is {result['outcome']!r}, with {effects} effects")

    def _fault(self, figure: str, detail: str, count: int = 1) -> None:
        setattr(self, figure, getattr(self, figure) + count)
        self.details.append(f"{figure}: {detail}")

    @property
    def faults(self) -> dict[str, int]:
        """Requirements that were broken, with the number of cases; empty when all hold."""
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
            # A run without any data proves nothing.
            "nothing acknowledged": int(not self.acknowledged),
            "no effects": int(not self.effects),
        }
        return {name: count for name, count in counted.items() if count}

    def passed(self) -> bool:
        """Return whether nothing was lost, nothing took place twice and every fact was answered."""
        return not self.faults

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {
            **vars(self),
            "acknowledged_total": self.acknowledged.total(),
            "restart_ms": {f"p{percent}": percentile(self.restarts_ms, percent) for percent in (50, 95)},
            "faults": self.faults,
            "passed": self.passed(),
        }

    def table(self) -> str:
        """Return the figures as Markdown."""
        restart = self.as_json()["restart_ms"]
        rows: list[tuple[str, object]] = [
            ("kills", self.kills),
            *((f"- {phase}", count) for phase, count in sorted(self.killed_in.items())),
            *((f"- the person in the call {what}", count) for what, count in sorted(self.caller.items())),
            ("acknowledged before a kill", f"{self.acknowledged.total()}: {_counted(self.acknowledged)}"),
            ("acknowledged after it", self.acknowledged_later),
            ("lost after the kill / in the end", f"{self.lost} / {self.lost_later}"),
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
        return markdown((f"{self.store}{', with calls' if self.voice else ''}", ""), rows) + "\n"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items()))
