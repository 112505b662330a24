"""Track the moment up to which all active streams have reported.

The watermark of a stream is the moment before which nothing is expected from it any more. It is the latest
promise of its reports and heartbeats, which is arrival minus latency, for a report at most its own event
time. The watermark of the session is the minimum over the active streams, because the slowest reporter gates
the order.

A stream is active from joining to leaving as long as it sends anything. Silence for ``stall_us`` makes it
stalled; the next report or heartbeat makes it active again. Stalled and ended streams delay no other stream.
A stream that has left is remembered, so that its reports still in transit are kept and its identities are
known when it is back.
"""

from bisect import insort
from collections import OrderedDict
from collections.abc import Iterable
from enum import StrEnum
from typing import Generic, TypeVar

from parley.core.errors import AgentError
from parley.sequencer.calibration import CalibrationSettings, LatencyEstimate

S = TypeVar("S")


class UnknownStreamError(AgentError):
    """Report for a stream that never joined, or left too long ago: a bug of the calling code.

    Attributes:
        stream: its name.
    """

    def __init__(self, stream: str) -> None:
        super().__init__(f"stream {stream!r} has not joined")
        self.stream = stream


class StreamState(StrEnum):
    """State of a stream; the timeline waits for an active one only."""

    ACTIVE = "active"
    STALLED = "stalled"
    LEFT = "left"


class Stream(Generic[S]):
    """Stream of one specialist.

    Attributes:
        name: unique within the session.
        order: order of joining for the first time; breaks ties of event time.
        latency: its calibration.
        latency_us: the estimate of the calibration, copied because every report reads it.
        watermark_us: no event before this moment is expected from it.
        heard_us: arrival of its last report or heartbeat.
        left: True when it has left.
        statements: state of its identities in the sequencer, the longest untouched first.
    """

    __slots__ = ("heard_us", "latency", "latency_us", "left", "name", "order", "statements", "watermark_us")

    def __init__(self, name: str, order: int) -> None:
        self.name = name
        self.order = order
        self.left = True
        self.statements: OrderedDict[str, S] = OrderedDict()

    def begin(self, latency: LatencyEstimate, at_us: int) -> None:
        """Join, or join again as another instance, which promises nothing about the time before."""
        self.latency = latency
        self.latency_us = latency.latency_us
        self.watermark_us = at_us - latency.latency_us
        self.heard_us = at_us
        self.left = False

    def hear(self, at_us: int, passed_us: int) -> None:
        """Record a sign of life, and that no event before ``passed_us`` is to come."""
        if at_us > self.heard_us:
            self.heard_us = at_us
        if passed_us > self.watermark_us:
            self.watermark_us = passed_us

    def learn(self, observed_us: int) -> int:
        """Add a sample of its latency; return the new estimate."""
        self.latency_us = self.latency.observe(observed_us)
        return self.latency_us


class Watermarks(Generic[S]):
    """Watermarks of the streams of one session.

    Args:
        stall_us: silence after which a stream delays no other.
        remembered: number of streams that have left and are still known.
        calibration: settings with which latencies are learnt.

    Attributes:
        streams: by name, joined or left; read-only.
    """

    def __init__(self, *, stall_us: int, remembered: int, calibration: CalibrationSettings) -> None:
        self._stall_us = stall_us
        self._remembered = remembered
        self._calibration = calibration
        self.streams: dict[str, Stream[S]] = {}
        self._joined: list[Stream[S]] = []
        self._left: OrderedDict[str, Stream[S]] = OrderedDict()
        self._next_order = 0

    def __getitem__(self, name: str) -> Stream[S]:
        """Return the stream, active or not.

        Raises:
            UnknownStreamError: it is not known.
        """
        stream = self.streams.get(name)
        if stream is None:
            raise UnknownStreamError(name)
        return stream

    def join(self, name: str, latency_us: int, at_us: int, prior_us: int | None = None) -> None:
        """Begin a stream, or begin it again. Until it reports it stands at ``at_us`` minus its latency.

        Raises:
            ValueError: a latency is negative or absurd.
        """
        latency = LatencyEstimate(latency_us, self._calibration, prior_us)
        stream = self.streams.get(name)
        if stream is None:
            stream = self.streams[name] = Stream(name, self._next_order)
            self._next_order += 1
        if stream.left:
            self._left.pop(name, None)
            insort(self._joined, stream, key=lambda joined: joined.order)
        stream.begin(latency, at_us)

    def leave(self, name: str) -> None:
        """End a stream. Has no effect when it has left already or was never there."""
        stream = self.streams.get(name)
        if stream is None or stream.left:
            return
        stream.left = True
        self._joined.remove(stream)
        self._left[name] = stream
        if len(self._left) > self._remembered:
            forgotten, _ = self._left.popitem(last=False)
            del self.streams[forgotten]

    def lowest(self, now_us: int) -> tuple[int, int] | None:
        """Return the watermark at ``now_us`` and the order of its stream; None when no stream is active.

        Of several at the same moment it is the one that joined first: its next report sorts before theirs.
        """
        quiet_us = now_us - self._stall_us
        lowest_us = order = None
        for stream in self._joined:
            if stream.heard_us >= quiet_us:
                watermark_us = stream.watermark_us
                if lowest_us is None or watermark_us < lowest_us:
                    lowest_us = watermark_us
                    order = stream.order
        return None if lowest_us is None or order is None else (lowest_us, order)

    def passed_us(self, names: Iterable[str], now_us: int) -> int | None:
        """Return the minimum over the active ones of ``names``; None when none of them is active."""
        return min(
            (
                self.streams[name].watermark_us
                for name in names
                if self.state(name, now_us) is StreamState.ACTIVE
            ),
            default=None,
        )

    def state(self, name: str, now_us: int) -> StreamState:
        """Return the state of a stream at ``now_us``; an unknown one counts as left."""
        stream = self.streams.get(name)
        if stream is None or stream.left:
            return StreamState.LEFT
        return StreamState.ACTIVE if stream.heard_us >= now_us - self._stall_us else StreamState.STALLED
