"""Traces of a call, as a collector receives them."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from parley.core.call_events import (
    AnswerHeard,
    BotTurnEnded,
    CallEvent,
    EngineFailed,
    EngineUsed,
    FallbackAnswers,
    FinalWords,
    ReplyCut,
    ReplyFinished,
    ReplyStarted,
    ResponseEnded,
    ResponseStarted,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TextTyped,
    TurnEndDecided,
    TurnEnded,
    TurnPriced,
    VoiceEnded,
    VoiceStarted,
)
from parley.core.errors import ConfigError
from parley.core.timeline import HeardMark, HeardReply
from parley.core.usage import PricedUsage, Stage, Usage
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.runtime.trace_context import CallTrace
from parley.telemetry.call_traces import CallTraces
from parley.telemetry.settings import TraceSettings
from parley.telemetry.trace_export import TraceExport
from tests import virtual_time
from tests.fakes.collector import Collector, attributes_of, collecting

ENGINES = {Stage.STT: "deepgram", Stage.LLM: "anthropic", Stage.TTS: "cartesia"}
CALL = ObservedCall("session-1", "call-1", "webrtc", "cascade")
WORDS = "walrus"


def happen(endpoint: str, *events: CallEvent, share: float = 1.0) -> None:
    export = TraceExport(TraceSettings(endpoint=endpoint, share=share))

    async def scenario() -> None:
        stream = CallEvents()
        traces = CallTraces(stream, CALL, export.tracer, ENGINES, CallTrace())
        for event in events:
            stream.publish(event)
        assert stream.failures == 0
        traces.close()

    virtual_time.run(scenario())
    export.close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def turn(at_ms: int = 1_000) -> list[CallEvent]:
    """Return the events of a turn whose voice began at a moment, and its answer."""
    reply = HeardReply("r", WORDS, "", False, HeardMark("r", 2_000, 9), True, 0, 1)
    priced = PricedUsage(Stage.LLM, "anthropic", "haiku", Usage(), Decimal("0.001"), ())
    return [
        VoiceStarted(at_ms + 200, 200),
        VoiceEnded(at_ms + 1_700, 200),
        EngineUsed(at_ms + 1_750, Stage.STT, "nova-3", Usage(heard_ms=1_500)),
        FinalWords(at_ms + 1_750, f"{WORDS} {WORDS}", None),
        TurnEndDecided(at_ms + 1_900, 400, 0.9, "complete"),
        TurnEnded(at_ms + 1_900, WORDS),
        ResponseStarted(at_ms + 1_910),
        ResponseText(at_ms + 2_000, WORDS),
        ResponseEnded(at_ms + 2_100),
        EngineUsed(at_ms + 2_100, Stage.LLM, "haiku", Usage(10, 90, 0, 7)),
        SpeechStarted(at_ms + 2_050),
        EngineUsed(at_ms + 2_060, Stage.TTS, "sonic", Usage(characters=30)),
        SpeechMade(at_ms + 2_150, 500.0),
        EngineUsed(at_ms + 2_200, Stage.TTS, "sonic", Usage(characters=12)),
        SpeechMade(at_ms + 2_250, 1_500.0),
        ReplyStarted(at_ms + 2_160, "r"),
        AnswerHeard(at_ms + 2_160, 660, (("stt_final", 250.0), ("endpoint_wait", 410.0))),
        ReplyFinished(at_ms + 4_200, reply),
        BotTurnEnded(at_ms + 4_200, WORDS, False),
        TurnPriced(at_ms + 4_200, 1, (priced,)),
    ]


def ms(span: Any, since: Any) -> tuple[int, int]:
    begin = since.start_time_unix_nano
    return tuple(round((at - begin) / 1e6) for at in (span.start_time_unix_nano, span.end_time_unix_nano))


def events_of(span: Any) -> list[tuple[str, int]]:
    return [
        (event.name, round((event.time_unix_nano - span.start_time_unix_nano) / 1e6)) for event in span.events
    ]


def test_a_turn_is_one_trace_with_its_engines_and_audible_moments(collector: Collector):
    happen(collector.endpoint, *turn())
    root, heard, answer, spoken = collector.spans()
    assert len({span.trace_id for span in collector.spans()}) == 1
    assert not root.parent_span_id
    assert {span.parent_span_id for span in (heard, answer, spoken)} == {root.span_id}
    assert [(span.name, ms(span, root)) for span in (root, heard, answer, spoken)] == [
        ("turn", (0, 4_200)),
        ("speech_to_text", (0, 1_750)),
        ("chat haiku", (1_910, 2_100)),
        ("text_to_speech", (2_050, 2_250)),
    ]
    assert events_of(root) == [
        ("voice started", 0),
        ("voice ended", 1_500),
        ("turn end decided", 1_900),
        ("reply audible", 2_160),
        ("answer audible", 2_160),
        ("reply finished", 4_200),
    ]
    [audible] = [event for event in root.events if event.name == "answer audible"]
    assert attributes_of(audible) == {
        "voice_to_voice_ms": 660,
        "stt_final_ms": 250.0,
        "endpoint_wait_ms": 410.0,
    }
    assert collector.resources[0]["service.name"] == "parley"


def test_the_models_span_has_the_attributes_of_the_conventions_for_generative_ai(collector: Collector):
    happen(collector.endpoint, *turn())
    root, heard, answer, spoken = map(attributes_of, collector.spans())
    assert {name: value for name, value in answer.items() if name.startswith("gen_ai.")} == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.response.model": "haiku",
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 7,
        "gen_ai.usage.cache_read.input_tokens": 90,
    }
    assert (root["gen_ai.conversation.id"], root["parley.call.id"]) == ("session-1", "call-1")
    assert (root["parley.turn"], root["parley.cost.known"], root["parley.cost.is_known"]) == (1, 0.001, True)
    assert (heard["parley.engine"], heard["parley.heard_ms"], heard["parley.words"]) == ("deepgram", 1_500, 2)
    assert (spoken["parley.engine"], spoken["parley.characters"]) == ("cartesia", 42)


def test_no_word_of_either_side_is_in_a_trace(collector: Collector):
    happen(collector.endpoint, *turn())
    assert WORDS not in str(collector.spans())


def test_every_turn_has_a_trace_of_its_own(collector: Collector):
    happen(collector.endpoint, *turn(), *turn(9_000))
    roots = [span for span in collector.spans() if span.name == "turn"]
    assert len(roots) == len({span.trace_id for span in roots}) == 2


def test_a_voice_over_the_bot_is_in_the_turn_that_it_interrupts_and_begins_the_next(collector: Collector):
    *answered, _finished, _ended, _priced = turn()
    cut = [
        VoiceStarted(4_300, 300),
        ReplyCut(4_400, "words", 400),
        BotTurnEnded(4_500, WORDS, True),
        TurnPriced(4_500, 1, ()),
        FinalWords(5_000, WORDS, None),
        TurnEnded(5_200, WORDS),
        BotTurnEnded(8_000, WORDS, False),
    ]
    happen(collector.endpoint, *answered, *cut)
    first, second = (span for span in collector.spans() if span.name == "turn")
    assert ("voice over the bot", 3_000) in events_of(first)
    assert ms(first, first) == (0, 3_500)
    assert attributes_of(first)["parley.interrupted"] is True
    assert ms(second, first) == (3_000, 7_000)
    assert attributes_of(second)["parley.turn"] == 2


def test_a_greeting_is_a_trace_without_a_turn_and_discarded_words_are_none(collector: Collector):
    happen(
        collector.endpoint,
        ReplyStarted(100, "g"),
        BotTurnEnded(1_500, WORDS, False),
        TurnPriced(1_500, 0, ()),
        VoiceStarted(2_000, 100),
        TurnEnded(2_600, ""),
    )
    greeting, cough = (span for span in collector.spans() if span.name == "turn")
    assert attributes_of(greeting)["parley.turn"] == attributes_of(cough)["parley.turn"] == 0
    assert ms(cough, greeting) == (1_800, 2_500)


def test_a_typed_turn_has_a_trace_and_so_has_the_fallback(collector: Collector):
    typed = [TextTyped(1_000, WORDS), FallbackAnswers(1_100, "timeout"), BotTurnEnded(2_000, WORDS, False)]
    happen(collector.endpoint, *typed, TextTyped(3_000, WORDS), BotTurnEnded(4_000, WORDS, False))
    first, second = collector.spans()
    assert events_of(first) == [("text typed", 0), ("fallback answers", 100)]
    assert [attributes_of(span)["parley.turn"] for span in (first, second)] == [1, 2]
    assert (ms(first, first), ms(second, first)) == ((0, 1_000), (2_000, 3_000))


def test_the_span_of_an_answer_names_the_engine_that_finished_it(collector: Collector):
    events = [
        replace(each, author="documents") if isinstance(each, ResponseText) else each for each in turn()
    ]
    happen(collector.endpoint, *events)
    [answer] = [span for span in collector.spans() if span.name.startswith("chat")]
    assert (answer.name, attributes_of(answer)["parley.engine"]) == ("chat documents", "documents")


def test_the_failure_of_an_engine_is_in_its_span(collector: Collector):
    events = turn()
    happen(collector.endpoint, *events[:8], EngineFailed(3_050, Stage.LLM), *events[8:])
    [answer] = [span for span in collector.spans() if span.name.startswith("chat")]
    assert attributes_of(answer)["error.type"] == "engine_failed"


def test_a_share_of_the_turns_may_be_left_out(collector: Collector):
    happen(collector.endpoint, *turn(), share=0.0)
    assert collector.spans() == []


def test_headers_come_from_the_environment(collector: Collector, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, x-team = voice")
    export = TraceExport(TraceSettings(endpoint=collector.endpoint))
    export.tracer.start_span("one").end()
    export.close()
    assert (collector.headers["authorization"], collector.headers["x-team"]) == ("Bearer x", "voice")


@pytest.mark.parametrize("value", ["no pair", "a=b,c"])
def test_headers_that_cannot_be_read_are_refused(value: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", value)
    with pytest.raises(ConfigError, match="OTEL_EXPORTER_OTLP_HEADERS has no headers"):
        TraceExport(TraceSettings())


def test_without_its_packages_a_deployment_with_traces_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    # As the import system answers for a package that is not installed.
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", None)
    with pytest.raises(ConfigError, match="telemetry.traces needs the extra 'otel'"):
        TraceExport(TraceSettings())
