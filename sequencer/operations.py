"""Operations of a sequencer, as values that can be stored and replayed.

The output of a ``Sequencer`` is a function of its settings and of the operations in the order of their calls.
Each operation is one call; ``sequencer.merge.Sequencer.apply`` makes it, ``to_json`` and ``from_json`` carry
it through a file or a table. The settings must be stored with them: other deadlines give another order.

``Journal`` selects the operations that have to be stored to get exactly the same output. All of them are
enough; these are necessary:

* every ``Join``, ``StreamEnded``, ``Learn`` and ``Report``, at its place in the order;
* of the ``Advance``s those with output: an ``Advance`` without output changed nothing;
* of the ``Heartbeat``s of a stream the newest before such an ``Advance``, before a ``StreamEnded`` and before
that
  stream's ``Join`` or ``Learn``: the ones between only moved a watermark that was not read.

An idle call sends hundreds of heartbeats and advances a second and stores none of them.
"""

import json
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")


class Join(NamedTuple):
    """A stream begins, or begins again with another latency.

    Attributes:
        stream: its name.
        latency_us: the stated latency.
        at_us: when it joined.
        prior_us: latency learnt by an earlier call; see ``sequencer.calibration``.
    """

    stream: str
    latency_us: int
    at_us: int
    prior_us: int | None = None


class StreamEnded(NamedTuple):
    """A stream has ended."""

    stream: str


class Heartbeat(NamedTuple):
    """A stream is alive and has nothing more to report up to ``passed_us``.

    None stands for ``at_us`` minus its latency.
    """

    stream: str
    at_us: int
    passed_us: int | None = None


class Learn(NamedTuple):
    """A sample of a stream's latency: arrival minus true event time."""

    stream: str
    observed_us: int


class Report(NamedTuple, Generic[T]):
    """A report of a stream.

    Attributes:
        stream: its name.
        arrival_us: when it arrived.
        payload: its content.
        event_us: when it happened; None for arrival minus the stream's latency. A moment after the arrival
            counts as the arrival: a wrong clock must not push the timeline of all others into the past.
        identity: identifies the statement within the stream (an utterance, a gesture); None for one that
            stands alone and is neither repeated nor revised.
        revision: counts up while the statement is revised.
        final: True when it is not revised any more.
    """

    stream: str
    arrival_us: int
    payload: T
    event_us: int | None = None
    identity: str | None = None
    revision: int = 0
    final: bool = True


class Advance(NamedTuple):
    """Time passes: reports whose place is certain by now are committed."""

    now_us: int


Operation = Join | StreamEnded | Heartbeat | Learn | Report[T] | Advance

_KINDS: dict[str, type] = {
    "join": Join,
    "leave": StreamEnded,
    "heartbeat": Heartbeat,
    "learn": Learn,
    "report": Report,
    "advance": Advance,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def to_json(operation: Operation[T], encode: Callable[[T], object]) -> str:
    """Return one line of JSON; ``encode`` turns a payload into a value that JSON can hold."""
    if isinstance(operation, Report):
        operation = operation._replace(payload=encode(operation.payload))
    fields = list(operation)
    if isinstance(operation, Join) and operation.prior_us is None:
        # The format of records from before there was a prior.
        fields.pop()
    return json.dumps([_NAMES[type(operation)], *fields], ensure_ascii=False, separators=(",", ":"))


def from_json(line: str, decode: Callable[[object], T]) -> Operation[T]:
    """Return the operation that ``to_json`` wrote; ``decode`` turns a payload back.

    Raises:
        ValueError: the line is not an operation.
    """
    match json.loads(line):
        case [str(name), *values] if name in _KINDS:
            pass
        case _:
            raise ValueError("expected an operation of a sequencer")
    try:
        operation: Operation[T] = _KINDS[name](*values)
    except TypeError as error:
        raise ValueError(f"an operation {name!r} does not have these {len(values)} fields") from error
    return (
        operation._replace(payload=decode(operation.payload)) if isinstance(operation, Report) else operation
    )


class Journal(Generic[T]):
    """Filter that leaves out of a run the operations that its replay does not need."""

    def __init__(self) -> None:
        # Maps (stream, whether it states what has passed) to the sum of its heartbeats. The two kinds are
        # kept apart because only the stream's latency could decide which of them is further.
        self._heartbeats: dict[tuple[str, bool], Heartbeat] = {}

    def record(self, operation: Operation[T], *, yielded: bool = False) -> list[Operation[T]]:
        """Return the operations to store now, in order.

        Args:
            operation: the one that was just made.
            yielded: True when an ``Advance`` had output, of the sequencer or of the fusion after it.
        """
        match operation:
            case Heartbeat(stream, at_us, passed_us):
                key = (stream, passed_us is not None)
                held = self._heartbeats.get(key, operation)
                if passed_us is not None and held.passed_us is not None:
                    passed_us = max(passed_us, held.passed_us)
                self._heartbeats[key] = Heartbeat(stream, max(at_us, held.at_us), passed_us)
                return []
            case Advance():
                return [*self._flush(set(self._heartbeats)), operation] if yielded else []
            case Report():
                return [operation]
            case StreamEnded():
                # Flush all streams: a leave may make the sequencer forget another stream that left before.
                return [*self._flush(set(self._heartbeats)), operation]
            case Join(stream=stream) | Learn(stream=stream):
                return [*self._flush({(stream, False), (stream, True)}), operation]

    def _flush(self, keys: set[tuple[str, bool]]) -> list[Heartbeat]:
        chosen = [key for key in self._heartbeats if key in keys]
        return [self._heartbeats.pop(key) for key in chosen]
