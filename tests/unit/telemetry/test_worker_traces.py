"""Spans of the requests of a worker."""

from collections.abc import Iterator

import pytest

from parley.core.errors import EngineError
from parley.core.usage import Stage
from parley.runtime.engine_hosting.messages import MessageType
from parley.runtime.engine_thread import EngineThread
from parley.runtime.trace_context import call_trace, open_call_trace, trace_facts
from parley.telemetry.settings import TraceSettings
from parley.telemetry.trace_export import TraceExport
from parley.telemetry.worker_traces import ConversationTraces, WorkerTraces
from tests.fakes.collector import Collector, attributes_of, collecting

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
ASKED = {"traceparent": f"00-{TRACE}-{PARENT}-01"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


@pytest.fixture
def export(collector: Collector) -> Iterator[TraceExport]:
    export = TraceExport(TraceSettings(endpoint=collector.endpoint, share=0.0))
    yield export
    export.close()


@pytest.fixture
def traces(export: TraceExport) -> ConversationTraces:
    return WorkerTraces(export.tracer, worker="mouth", engine="flite").conversation("one")


def test_a_request_with_a_parent_gets_a_span_below_it_whatever_share_this_process_traces(
    traces: ConversationTraces, export: TraceExport, collector: Collector
):
    with (span := traces.begin(MessageType.SPEAK, ASKED)):
        span.piece()
        span.piece()
    export.close()
    [made] = collector.spans()
    assert (made.name, made.trace_id.hex(), made.parent_span_id.hex()) == ("text_to_speech", TRACE, PARENT)
    assert attributes_of(made) == {
        "parley.worker": "mouth",
        "parley.engine": "flite",
        "parley.worker.incarnation": "one",
    }
    assert [event.name for event in made.events] == ["first piece"]


def test_the_span_of_an_utterance_begins_with_it(
    traces: ConversationTraces, export: TraceExport, collector: Collector
):
    with traces.begin(MessageType.START, {}):
        pass
    with traces.begin(MessageType.AUDIO, ASKED):
        pass
    with traces.begin(MessageType.DISCARD, {}):
        pass
    with traces.begin(MessageType.START, {}):
        pass
    with traces.begin(MessageType.SPEAK, ASKED):
        pass
    with traces.begin(MessageType.FINISH, ASKED):
        pass
    export.close()
    [heard, spoken] = collector.spans()
    assert (heard.name, spoken.name) == ("speech_to_text", "text_to_speech")
    assert heard.start_time_unix_nano <= spoken.start_time_unix_nano


def test_a_failure_is_named(traces: ConversationTraces, export: TraceExport, collector: Collector):
    with pytest.raises(EngineError), traces.begin(MessageType.GENERATE, ASKED):
        raise EngineError("the words of a caller", engine="x")
    export.close()
    [made] = collector.spans()
    assert attributes_of(made)["error.type"] == "EngineError"
    assert b"words" not in made.SerializeToString()


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"traceparent": 7},
        {"traceparent": ""},
        {"traceparent": ASKED["traceparent"] + "-more"},
        {"traceparent": f"00-{'0' * 32}-{PARENT}-01"},
        # The client does not sample this turn.
        {"traceparent": f"00-{TRACE}-{PARENT}-00"},
    ],
)
def test_a_request_without_a_parent_gets_no_span(
    facts: dict[str, object], traces: ConversationTraces, export: TraceExport, collector: Collector
):
    with traces.begin(MessageType.SPEAK, facts):
        pass
    export.close()
    assert collector.spans() == []


def test_a_worker_without_traces_makes_no_span():
    with (span := WorkerTraces().conversation("one").begin(MessageType.SPEAK, ASKED)):
        span.piece()


def test_without_traces_a_request_gets_nothing():
    assert call_trace() is None
    assert trace_facts(Stage.TTS) == {}


def test_a_request_gets_the_span_of_its_stage_or_of_the_turn_also_in_a_thread():
    trace, thread = open_call_trace(), EngineThread("engine")

    def asked(stage: Stage) -> str | None:
        return thread.submit(trace_facts, stage).result().get("traceparent")

    try:
        assert asked(Stage.TTS) is None
        trace.turn_began("turn")
        trace.stage_began(Stage.TTS, "voice")
        assert (asked(Stage.TTS), asked(Stage.LLM)) == ("voice", "turn")
        trace.stage_ended(Stage.TTS)
        assert asked(Stage.TTS) == "turn"
        trace.stage_began(Stage.STT, "ears")
        trace.turn_ended()
        assert asked(Stage.STT) is None
    finally:
        thread.shutdown()
