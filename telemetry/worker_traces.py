"""Spans of a worker within the traces of its clients.

A request that has a ``traceparent`` gets one span, below the client's: an utterance of a recogniser, a clause
of a voice, an answer of a language model. A request without one gets none, so that clients decide what is
traced. There is no span for a piece of audio or text, and no word in any.
"""

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parley.runtime.engine_hosting.messages import MessageType
from parley.runtime.trace_context import TRACEPARENT

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

# Version 00 of W3C Trace Context; the peer is another process, and its text is not trusted.
FORMAT = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
# Requests that end a piece of work which the caller would recognise. Each kind of engine has one.
NAMES: Mapping[MessageType, str] = {
    MessageType.FINISH: "speech_to_text",
    MessageType.SPEAK: "text_to_speech",
    MessageType.GENERATE: "chat",
}


class RequestSpan:
    """Span of one request; the block in which the engine works. ``piece`` may come from any thread.

    Args:
        span: of the SDK; None: the request is not traced.
    """

    def __init__(self, span: "Span | None" = None) -> None:
        self._span = span
        self._has_piece = False

    def piece(self) -> None:
        """Record the first piece of speech or text; further ones add nothing."""
        if self._span is not None and not self._has_piece:
            self._has_piece = True
            self._span.add_event("first piece")

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: object, traceback: object) -> None:
        if self._span is None:
            return
        if kind is not None:
            # Without its text, which may have words.
            self._span.set_attribute("error.type", kind.__name__)
        self._span.end()


class WorkerTraces:
    """Spans of one worker process.

    Args:
        tracer: makes the spans; None: there are none.
        worker: name of the worker.
        engine: registry name of its engine.
    """

    def __init__(self, tracer: "Tracer | None" = None, *, worker: str = "", engine: str = "") -> None:
        self.tracer = tracer
        self.facts = {"parley.worker": worker, "parley.engine": engine}

    def conversation(self, incarnation: str) -> "ConversationTraces":
        """Return the spans of one conversation."""
        return ConversationTraces(self, incarnation)


class ConversationTraces:
    """Spans of one conversation with a client.

    Args:
        traces: of the process.
        incarnation: of the process.
    """

    def __init__(self, traces: WorkerTraces, incarnation: str) -> None:
        self._tracer = traces.tracer
        self._facts = {**traces.facts, "parley.worker.incarnation": incarnation}
        self._utterance_ns: int | None = None

    def begin(self, type_: MessageType, facts: Mapping[str, Any]) -> RequestSpan:
        """Begin the span of a request; that of an utterance lasts from its first message."""
        if self._tracer is None:
            return RequestSpan()
        if type_ is MessageType.START:
            self._utterance_ns = time.time_ns()
        parent, name = facts.get(TRACEPARENT), NAMES.get(type_)
        if name is None or not isinstance(parent, str) or FORMAT.fullmatch(parent) is None:
            return RequestSpan()
        # Imported where a worker has the packages.
        from opentelemetry.trace import SpanKind
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        span = self._tracer.start_span(
            name,
            context=TraceContextTextMapPropagator().extract({TRACEPARENT: parent}),
            kind=SpanKind.SERVER,
            start_time=self._utterance_ns if type_ is MessageType.FINISH else None,
            attributes=self._facts,
        )
        return RequestSpan(span)
