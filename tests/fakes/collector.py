"""Collectors of OpenTelemetry on loopback: one that keeps what it receives, and one that never answers."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """Collector that keeps spans.

    Attributes:
        endpoint: address for OTLP over HTTP.
        headers: of the newest request.
        resources: attributes of the resources.
    """

    def __init__(self) -> None:
        self._spans: list[Any] = []
        self._lock = threading.Lock()
        self.headers: dict[str, str] = {}
        self.resources: list[dict[str, Any]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.take(ExportTraceServiceRequest.FromString(body), dict(self.headers))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}/v1/traces"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def take(self, request: ExportTraceServiceRequest, headers: dict[str, str]) -> None:
        with self._lock:
            self.headers = {name.lower(): value for name, value in headers.items()}
            for resource in request.resource_spans:
                self.resources.append(attributes_of(resource.resource))
                for scope in resource.scope_spans:
                    self._spans += scope.spans

    def spans(self) -> list[Any]:
        """Return all spans in the order of their beginning; a root before those that begin with it."""
        with self._lock:
            return sorted(
                self._spans, key=lambda span: (span.start_time_unix_nano, bool(span.parent_span_id))
            )

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def attributes_of(spanned: Any) -> dict[str, Any]:
    """Return the attributes of a span, an event or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in spanned.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector."""
    collector = Collector()
    try:
        yield collector
    finally:
        collector.close()


@contextmanager
def hanging_collector() -> Iterator[str]:
    """Run a collector that accepts connections and never answers; yield its address."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1/traces"
