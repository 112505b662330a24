"""A brute-force model of the sequencer: it keeps everything and sorts it anew at every step.

It is written from the rules of docs/explanation/sequencer.md, with none of the data structures of
``sequencer.merge``.
"""

from dataclasses import dataclass, field

from parley.sequencer.merge import SequencerSettings
from parley.sequencer.operations import Advance, Heartbeat, Join, Learn, Operation, Report, StreamEnded


@dataclass
class ModelStream:
    order: int
    latency_us: int = 0
    prior_us: int | None = None
    samples_us: list[int] = field(default_factory=list)
    watermark_us: int = 0
    heard_us: int = 0
    joined: bool = True
    left_at_step: int = 0
    # Statements by identity, the least recently touched first.
    statements: dict[str, "ModelStatement"] = field(default_factory=dict)


@dataclass(eq=False)
class ModelStatement:
    """The statement at one place in the order, committed or waiting."""

    stream: str
    identity: str | None
    place: tuple[int, int, int] = (0, 0, 0)
    arrived_us: int = 0
    newest: Report[object] | None = None
    first_seq: int | None = None
    waiting: bool = False


class Model:
    def __init__(self, settings: SequencerSettings) -> None:
        self.settings = settings
        self.streams: dict[str, ModelStream] = {}
        self.orders = 0
        self.waiting: list[ModelStatement] = []
        self.passed: list[tuple[int, int, int]] = []
        self.committed: list[dict[str, object]] = []
        self.accepted = 0
        self.step = 0
        self.dropped = {"superseded": 0, "duplicates": 0, "outdated": 0, "after_final": 0}

    def apply(self, operation: Operation[object]) -> list[dict[str, object]]:
        self.step += 1
        match operation:
            case Join(name, latency_us, at_us, prior_us):
                if name not in self.streams:
                    self.streams[name] = ModelStream(self.orders)
                    self.orders += 1
                stream = self.streams[name]
                stream.latency_us, stream.prior_us, stream.samples_us = latency_us, prior_us, []
                stream.watermark_us, stream.heard_us = at_us - latency_us, at_us
                stream.joined = True
            case StreamEnded(name):
                if name in self.streams and self.streams[name].joined:
                    self.streams[name].joined = False
                    self.streams[name].left_at_step = self.step
                    gone = [key for key, stream in self.streams.items() if not stream.joined]
                    gone.sort(key=lambda key: self.streams[key].left_at_step)
                    for key in gone[: max(0, len(gone) - self.settings.remembered_streams)]:
                        del self.streams[key]
            case Heartbeat(name, at_us, passed_us):
                stream = self.streams[name]
                stream.heard_us = max(stream.heard_us, at_us)
                promised_us = at_us - stream.latency_us if passed_us is None else passed_us
                stream.watermark_us = max(stream.watermark_us, promised_us)
            case Learn(name, observed_us):
                self.learn(self.streams[name], observed_us)
            case Report():
                self.report(operation)
            case Advance(now_us):
                return self.advance(now_us)
        return []

    def learn(self, stream: ModelStream, observed_us: int) -> None:
        if stream.prior_us is not None:
            stream.latency_us, stream.prior_us = stream.prior_us, None
        chosen = self.settings.calibration
        stream.samples_us.append(sorted([0, observed_us, chosen.max_latency_us])[1])
        recent = sorted(stream.samples_us[-chosen.window :])
        middle = recent[(len(recent) - 1) // 2]
        if abs(middle - stream.latency_us) <= chosen.max_step_us:
            stream.latency_us = middle
        elif middle > stream.latency_us:
            stream.latency_us += chosen.max_step_us
        else:
            stream.latency_us -= chosen.max_step_us

    def report(self, report: Report[object]) -> None:
        stream = self.streams[report.stream]
        usual_us = report.arrival_us - stream.latency_us
        event_us = usual_us if report.event_us is None else min(report.event_us, report.arrival_us)
        stream.heard_us = max(stream.heard_us, report.arrival_us)
        stream.watermark_us = max(stream.watermark_us, min(event_us, usual_us))
        statement = ModelStatement(report.stream, report.identity)
        if report.identity is not None:
            known = stream.statements.get(report.identity)
            if known is not None:
                assert known.newest is not None
                if report.revision < known.newest.revision:
                    self.dropped["outdated"] += 1
                    return
                confirms = report.final and not known.newest.final
                if report.revision == known.newest.revision and not confirms:
                    self.dropped["duplicates"] += 1
                    return
                if known.newest.final:
                    self.dropped["after_final"] += 1
                    return
                statement = known
                del stream.statements[report.identity]
            stream.statements[report.identity] = statement
            while len(stream.statements) > self.settings.remembered:
                del stream.statements[next(iter(stream.statements))]
        statement.newest = report
        if statement.waiting:
            self.dropped["superseded"] += 1
            if event_us > statement.place[0]:
                statement.place = (event_us, *statement.place[1:])
                statement.arrived_us = report.arrival_us
            return
        self.accepted += 1
        statement.place = (event_us, stream.order, self.accepted)
        statement.arrived_us = report.arrival_us
        statement.waiting = True
        self.waiting.append(statement)

    def advance(self, now_us: int) -> list[dict[str, object]]:
        self.waiting.sort(key=lambda statement: statement.place)
        late = [statement for statement in self.waiting if self.passed and statement.place < max(self.passed)]
        others = [statement for statement in self.waiting if statement not in late]
        active = [
            stream
            for stream in self.streams.values()
            if stream.joined and now_us - stream.heard_us <= self.settings.stall_us
        ]
        count = 0
        for number, statement in enumerate(others, 1):
            event_us, order, _ = statement.place
            # An active stream may still report something that sorts before this place.
            gated = any((stream.watermark_us, stream.order) < (event_us, order) for stream in active)
            overdue = statement.arrived_us + self.settings.deadline_us <= now_us
            if not gated or overdue:
                count = number
        count = max(count, len(others) - self.settings.max_waiting)
        chosen = [(statement, True) for statement in late] + [
            (statement, False) for statement in others[:count]
        ]
        fresh = [self.commit(statement, is_late) for statement, is_late in chosen]
        self.waiting = others[count:]
        return fresh

    def commit(self, statement: ModelStatement, late: bool) -> dict[str, object]:
        assert statement.newest is not None
        seq = len(self.committed)
        if statement.first_seq is None:
            statement.first_seq = seq
        if not late:
            self.passed.append(statement.place)
        named = statement.identity is not None
        self.committed.append(
            {
                "seq": seq,
                "statement": statement.first_seq,
                "stream": statement.stream,
                "event_us": statement.place[0],
                "arrival_us": statement.newest.arrival_us,
                "payload": statement.newest.payload,
                "identity": statement.identity,
                "revision": statement.newest.revision if named else 0,
                "final": statement.newest.final if named else True,
                "late": late,
            }
        )
        statement.waiting = False
        return self.committed[-1]
