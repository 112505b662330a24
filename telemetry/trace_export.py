"""Export of traces to a collector of OpenTelemetry (OTLP over HTTP).

Spans go into a bounded queue of the SDK, whose thread sends them in batches. A collector that is away or does
not answer costs the traces of that time and nothing else: the queue drops its oldest spans, a request has
``REQUEST_S``, and the end of the process waits for ``CLOSE_S`` at most. The SDK's own messages go to
the log, at most one a minute.

The packages are imported when a deployment asks for traces. No global tracer is set: two processes of tests,
or a library that traces itself, do not meet here.
"""

import logging
import os
import threading
import time
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import unquote

from loguru import logger

from parley.core.errors import ConfigError
from parley.core.installation import pip_command
from parley.telemetry.log_throttle import LogThrottle
from parley.telemetry.settings import HEADERS_ENV, SERVICE_NAME_ENV, TraceSettings

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

EXTRA = "otel"
QUEUE_SPANS, BATCH_SPANS = 2_048, 256
EVERY_MS, REQUEST_S, CLOSE_S = 2_000.0, 5.0, 3.0
LOG_EVERY_S = 60.0


class TraceExport:
    """Exporter of one process.

    Args:
        settings: of the deployment.

    Attributes:
        tracer: makes the spans.

    Raises:
        ConfigError: the packages are not installed, or the variable with the headers is wrong.
    """

    def __init__(self, settings: TraceSettings) -> None:
        check_traces(settings)
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

        self._provider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(settings.share)),
            resource=Resource({"service.name": os.environ.get(SERVICE_NAME_ENV) or "parley"}),
            shutdown_on_exit=False,
        )
        self._is_closed = False
        self._log = _SdkLog()
        self._sdk_logger = logging.getLogger("opentelemetry")
        self._sdk_logger.addHandler(self._log)
        exporter = OTLPSpanExporter(settings.endpoint, headers=_headers(), timeout=REQUEST_S)
        self._provider.add_span_processor(
            BatchSpanProcessor(
                exporter,
                max_queue_size=QUEUE_SPANS,
                max_export_batch_size=BATCH_SPANS,
                schedule_delay_millis=EVERY_MS,
            )
        )
        self.tracer: Tracer = self._provider.get_tracer("parley")

    def close(self) -> None:
        """Send what waits, for ``CLOSE_S`` at most, and make no more. Blocks; once is enough."""
        if self._is_closed:
            return
        self._is_closed = True
        closing = threading.Thread(target=self._provider.shutdown, name="traces.close", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        if closing.is_alive():
            logger.warning("the newest traces are lost: the collector does not answer")
        self._sdk_logger.removeHandler(self._log)


def check_traces(settings: TraceSettings) -> None:
    """Check whether traces can be made.

    Raises:
        ConfigError: the packages are not installed, or the variable with the headers is wrong.
    """
    for package in ("opentelemetry.sdk.trace", "opentelemetry.exporter.otlp.proto.http"):
        try:
            is_found = find_spec(package) is not None
        except ModuleNotFoundError:
            is_found = False
        if not is_found:
            raise ConfigError(f"telemetry.traces needs the extra {EXTRA!r}: {pip_command(EXTRA)}")
    _headers()


def _headers() -> dict[str, str]:
    value = os.environ.get(HEADERS_ENV, "").strip()
    if not value:
        return {}
    pairs = [pair.partition("=") for pair in value.split(",")]
    if not all(name.strip() and text.strip() for name, _, text in pairs):
        raise ConfigError(
            f"telemetry.traces: the environment variable {HEADERS_ENV} has no headers; set it to name=value "
            "pairs with commas between them, or remove it"
        )
    # By the specification, names and values are encoded as in an address.
    return {unquote(name.strip()): unquote(text.strip()) for name, _, text in pairs}


class _SdkLog(logging.Handler):
    """Handler that passes messages of the SDK's threads to the log, at most one a minute."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._lines = LogThrottle(LOG_EVERY_S)

    def emit(self, record: logging.LogRecord) -> None:
        # Without its traceback: a collector that is away is no defect of this program.
        if (line := self._lines.line(f"traces: {record.getMessage()}", time.monotonic())) is not None:
            logger.warning("{}", line)
