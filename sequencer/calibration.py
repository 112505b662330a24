"""How late does a stream report?

A specialist's report arrives one latency after the event: some 80 ms for words, 200 ms for vision. The event
time of a report is its arrival minus that latency. It is stated when the stream joins and learnt from there:
whoever knows for one report when the event really was gives the difference as a sample.

The estimate moves towards the median of the last samples, so that one stalled batch says nothing, and by a
bounded step, so that two neighbouring reports hardly change places. Integers throughout: the same samples
give the same estimate on every machine.
"""

from collections import deque

from pydantic import BaseModel, ConfigDict, Field


class CalibrationSettings(BaseModel):
    """How fast a latency is learnt."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window: int = Field(15, ge=1, le=255, description="samples whose median is believed")
    max_step_us: int = Field(
        10_000, ge=1, le=1_000_000, description="largest change of the latency by one sample"
    )
    max_latency_us: int = Field(
        2_000_000,
        ge=1,
        le=60_000_000,
        description="a longer latency is not believed: the sample counts as this",
    )


class LatencyEstimate:
    """The latency of one stream.

    Args:
        stated_us: what is believed before the first sample.
        settings: how fast it is learnt.

    Attributes:
        latency_us: what is believed now, 0 to ``max_latency_us``.

    Raises:
        ValueError: the stated latency is outside 0 to ``max_latency_us``.
    """

    __slots__ = ("_samples_us", "_settings", "latency_us")

    def __init__(self, stated_us: int, settings: CalibrationSettings) -> None:
        if not 0 <= stated_us <= settings.max_latency_us:
            raise ValueError(f"latency {stated_us} us is outside 0 to {settings.max_latency_us} us")
        self.latency_us = stated_us
        self._settings = settings
        self._samples_us: deque[int] = deque(maxlen=settings.window)

    def observe(self, observed_us: int) -> int:
        """One sample, arrival minus true event time; the new latency.

        A negative sample (two clocks disagree) counts as 0: nothing arrives before it happens.
        """
        settings = self._settings
        self._samples_us.append(min(max(observed_us, 0), settings.max_latency_us))
        ordered = sorted(self._samples_us)
        # The lower median: an integer that was really observed.
        median_us = ordered[(len(ordered) - 1) // 2]
        step_us = min(max(median_us - self.latency_us, -settings.max_step_us), settings.max_step_us)
        self.latency_us += step_us
        return self.latency_us
