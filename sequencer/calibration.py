"""Estimate the latency with which a stream reports.

A specialist's report arrives one latency after the event: some 80 ms for words, 200 ms for vision. The event
time of a report is its arrival minus that latency. The latency is stated when the stream joins and learnt
from there: a component that knows the true event time of one report supplies the difference as a sample.

The estimate moves towards the median of the last samples, so that one stalled batch has no effect. It moves
by a bounded step, so that two neighbouring reports hardly change places. All values are integers: the same
samples give the same estimate on every machine.

The latency that one call has learnt is the prior of the next one with the same engine (``LearntLatencies``).
It replaces the stated latency with the first sample of the stream's own, and not before: a stream that does
not learn would otherwise keep the value of another line for ever.
"""

from collections import deque

from pydantic import Field

from parley.core.bounded_dict import BoundedDict
from parley.core.strict_model import StrictModel


class CalibrationSettings(StrictModel):
    """Speed at which a latency is learnt."""

    window: int = Field(15, ge=1, le=255, description="samples over which the median is taken")
    max_step_us: int = Field(
        10_000, ge=1, le=1_000_000, description="largest change of the latency by one sample"
    )
    max_latency_us: int = Field(
        2_000_000,
        ge=1,
        le=60_000_000,
        description="highest plausible latency; a sample above it counts as this",
    )


class LatencyEstimate:
    """The latency of one stream.

    Args:
        stated_us: the estimate before the first sample.
        settings: speed at which it is learnt.
        prior_us: latency learnt by an earlier call; it replaces the stated one from the first sample on.

    Attributes:
        latency_us: the present estimate, 0 to ``max_latency_us``.

    Raises:
        ValueError: the stated latency or the prior is outside 0 to ``max_latency_us``.
    """

    __slots__ = ("_prior_us", "_samples_us", "_settings", "latency_us")

    def __init__(self, stated_us: int, settings: CalibrationSettings, prior_us: int | None = None) -> None:
        for given_us in (stated_us, stated_us if prior_us is None else prior_us):
            if not 0 <= given_us <= settings.max_latency_us:
                raise ValueError(f"latency {given_us} us is outside 0 to {settings.max_latency_us} us")
        self.latency_us = stated_us
        self._prior_us = prior_us
        self._settings = settings
        self._samples_us: deque[int] = deque(maxlen=settings.window)

    def observe(self, observed_us: int) -> int:
        """Add one sample, arrival minus true event time; return the new latency.

        A negative sample (two clocks disagree) counts as 0: nothing arrives before it happens.
        """
        settings = self._settings
        if self._prior_us is not None:
            self.latency_us, self._prior_us = self._prior_us, None
        self._samples_us.append(min(max(observed_us, 0), settings.max_latency_us))
        ordered = sorted(self._samples_us)
        # The lower median: an integer that was really observed.
        median_us = ordered[(len(ordered) - 1) // 2]
        step_us = min(max(median_us - self.latency_us, -settings.max_step_us), settings.max_step_us)
        self.latency_us += step_us
        return self.latency_us


class LearntLatencies:
    """Latencies that the calls of a process have learnt, by engine and stream.

    Args:
        remembered: number of latencies that are kept; the oldest are evicted.
    """

    def __init__(self, *, remembered: int = 64) -> None:
        self._learnt_us: BoundedDict[tuple[str, str], int] = BoundedDict(remembered)

    def learnt(self, engine: str, stream: str, latency_us: int) -> None:
        """Store a latency that a call has learnt. It replaces an earlier one: lines and machines change."""
        self._learnt_us[engine, stream] = latency_us

    def prior_us(self, engine: str, stream: str) -> int | None:
        """Return the latency that was learnt last; None when there is none."""
        return self._learnt_us.get((engine, stream))
