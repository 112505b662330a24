"""Settings of traces and of the log."""

from typing import Literal

from pydantic import Field

from parley.core.strict_model import StrictModel

# Variables of the environment, as OpenTelemetry names them.
HEADERS_ENV = "OTEL_EXPORTER_OTLP_HEADERS"
SERVICE_NAME_ENV = "OTEL_SERVICE_NAME"
TRACE_ENV = (HEADERS_ENV, SERVICE_NAME_ENV)


class TraceSettings(StrictModel):
    """Traces of turns, sent to a collector of OpenTelemetry. Needs the extra ``otel``."""

    endpoint: str = Field(
        "http://localhost:4318/v1/traces",
        pattern=r"^https?://\S+$",
        description="address of the collector, for OTLP over HTTP. OTEL_EXPORTER_OTLP_HEADERS in the "
        "environment has headers for it, as ``name=value`` pairs with commas, and OTEL_SERVICE_NAME the name "
        "of this service in the traces",
    )
    share: float = Field(1.0, ge=0, le=1, description="share of the turns that are traced")


class TelemetrySettings(StrictModel):
    """Reports of a server about itself, in addition to its metrics."""

    traces: TraceSettings | None = Field(None, description="traces of turns; null: none")
    log_format: Literal["text", "json"] = Field(
        "text",
        description="lines of the log on standard error: for people, or one JSON object each, for programs",
    )
