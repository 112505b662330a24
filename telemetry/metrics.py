"""Prometheus metrics of one process: what is counted, and its exposition as text.

Input: observations of calls (``telemetry.call_metrics``), stalls of the event loop, and at each scrape a
``ProcessReading`` of the parts that keep their own numbers. Output: the text of ``GET /metrics``. The number
of series is bounded: labels have values of the deployment or of this program, and each label at most
``MOST_VALUES`` (models: ``MOST_MODELS``); further ones count as ``other``.

Metrics are thread-safe, because stalls are reported by the watchdog's thread. Rendering takes milliseconds
and belongs into a thread; it reads nothing but numbers.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from parley.core.durations import DurationCounts
from parley.core.usage import Stage
from parley.runtime.stall_monitor import Stall
from parley.telemetry import definitions
from parley.telemetry.definitions import CALL_METRICS, Definition

# A deployment names a handful of engines and models; a provider may answer with a name for each release.
MOST_VALUES = 24
# Each model has a series for each kind of its use, of each engine and stage: the only label that multiplies.
MOST_MODELS = 8
OTHER = "other"
# Stage of a failover from a realtime service to the cascade.
REALTIME = "realtime"


@dataclass(frozen=True, slots=True)
class ProcessReading:
    """State of the parts of a process that keep their own numbers.

    Attributes:
        gauges: value by definition.
        workers: number of workers of the pool by state.
        durations: histogram by definition.
        labelled: values by definition and by the values of its labels, which the reader bounds.
    """

    gauges: Mapping[Definition, float] = field(default_factory=dict)
    workers: Mapping[str, int] = field(default_factory=dict)
    durations: Mapping[Definition, DurationCounts] = field(default_factory=dict)
    labelled: Mapping[Definition, Mapping[tuple[str, ...], float]] = field(default_factory=dict)


class ServerMetrics:
    """Metrics of one process."""

    def __init__(self) -> None:
        # Of no use where a counter begins with its process, and a fifth of all lines.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = CollectorRegistry()
        # Processor time, memory and descriptors, under the usual names.
        ProcessCollector(registry=self._registry)
        self._metrics = {each: _made(each, self._registry) for each in CALL_METRICS}
        self._known: dict[str, set[str]] = {}
        self._stalls = self.histogram(definitions.STALLS)
        # A rate of a series needs its beginning at 0, and a failure is rare.
        for stage in (*Stage, OTHER):
            self.counter(definitions.FAILURES, stage)
        for stage in (*Stage, REALTIME, OTHER):
            self.counter(definitions.FAILOVERS, stage)
        self._reading = ProcessReading()
        self._registry.register(_ReadingCollector(self))

    def counter(self, definition: Definition, *values: str) -> Counter:
        """Return a counter, with the values of its labels where it has any."""
        found = self._labelled(definition, values)
        assert isinstance(found, Counter)
        return found

    def gauge(self, definition: Definition, *values: str) -> Gauge:
        """Return a gauge, with the values of its labels where it has any."""
        found = self._labelled(definition, values)
        assert isinstance(found, Gauge)
        return found

    def histogram(self, definition: Definition, *values: str) -> Histogram:
        """Return a histogram, with the values of its labels where it has any."""
        found = self._labelled(definition, values)
        assert isinstance(found, Histogram)
        return found

    def stalled(self, stall: Stall) -> None:
        """Count a stall of the event loop; called on the watchdog's thread."""
        self._stalls.observe(stall.stalled_ms / 1000)

    @property
    def reading(self) -> ProcessReading:
        """The newest reading."""
        return self._reading

    def read(self, reading: ProcessReading) -> None:
        """Take a reading, for the next rendering."""
        self._reading = reading

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text of all metrics and its content type.

        Args:
            accept: formats that the client accepts, as in its request.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def _labelled(self, definition: Definition, values: Sequence[str]) -> Counter | Gauge | Histogram:
        metric = self._metrics[definition]
        if not definition.labels:
            return metric
        return metric.labels(
            *(self._bounded(name, value) for name, value in zip(definition.labels, values, strict=True))
        )

    def _bounded(self, label: str, value: str) -> str:
        known = self._known.setdefault(label, set())
        if value not in known:
            if len(known) >= (MOST_MODELS if label == "model" else MOST_VALUES):
                return OTHER
            known.add(value)
        return value


def _made(definition: Definition, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    name, about, labels = definition.name, definition.about, definition.labels
    match definition.kind:
        case "counter":
            return Counter(name, about, labels, registry=registry)
        case "gauge":
            return Gauge(name, about, labels, registry=registry)
        case "histogram":
            return Histogram(name, about, labels, buckets=definition.bounds, registry=registry)


class _ReadingCollector(Collector):
    """Families of the newest reading."""

    def __init__(self, metrics: ServerMetrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        reading = self._metrics.reading
        for definition, value in reading.gauges.items():
            yield GaugeMetricFamily(definition.name, definition.about, value)
        if reading.workers:
            workers = definitions.POOL_WORKERS
            family = GaugeMetricFamily(workers.name, workers.about, labels=workers.labels)
            for state, count in reading.workers.items():
                family.add_metric([state], count)
            yield family
        for definition, values in reading.labelled.items():
            yield _labelled_family(definition, values)
        for definition, durations in reading.durations.items():
            yield _family(definition, durations)


def _labelled_family(definition: Definition, values: Mapping[tuple[str, ...], float]) -> Metric:
    made = CounterMetricFamily if definition.kind == "counter" else GaugeMetricFamily
    family = made(definition.name, definition.about, labels=definition.labels)
    for labels, value in values.items():
        family.add_metric(labels, value)
    return family


def _family(definition: Definition, durations: DurationCounts) -> HistogramMetricFamily:
    total, buckets = 0, []
    for bound, count in zip((*map(str, durations.bounds_s), "+Inf"), durations.counts(), strict=True):
        total += count
        buckets.append((bound, total))
    return HistogramMetricFamily(
        definition.name, definition.about, buckets=buckets, sum_value=durations.sum_s
    )
