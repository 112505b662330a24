"""Metrics of a process, filled by the events of its calls."""

from decimal import Decimal

import pytest

from parley.core.call_events import (
    AnswerHeard,
    CallEnding,
    CallEvent,
    EngineFailed,
    EngineFailedOver,
    EngineUsed,
    FallbackAnswers,
    FinalWords,
    PacketLate,
    PartialWords,
    QuestionSent,
    RecordingDegraded,
    RecordingStarted,
    ReplyCut,
    ReplyFinished,
    ResponseEnded,
    ResponseStarted,
    ResponseText,
    SpeechMade,
    SpeechStarted,
    TextTyped,
    TurnEnded,
    TurnPriced,
    VoiceStarted,
    WaitMasked,
)
from parley.core.durations import DurationCounts
from parley.core.failover import FailoverReason
from parley.core.timeline import HeardMark, HeardReply
from parley.core.usage import PricedUsage, Stage, Usage
from parley.runtime.event_stream import CallEvents
from parley.runtime.observers import ObservedCall
from parley.runtime.stall_monitor import Stall
from parley.serving.gateway.auth.tenant_settings import TenantLimits
from parley.telemetry import definitions
from parley.telemetry.call_metrics import CallMetrics
from parley.telemetry.metrics import MOST_VALUES, OTHER, ProcessReading, ServerMetrics
from parley.telemetry.turns import SPANS
from parley.transports.registry import TRANSPORTS
from tests.fakes.scrape import Scrape

ENGINES = {Stage.STT: "moonshine_tiny", Stage.LLM: "anthropic", Stage.TTS: "hibari"}
MODES = ("cascade", "duplex", "realtime")


class HandClock:
    """Clock whose time a test sets."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def now_us(self) -> int:
        return self.ms * 1000

    async def sleep_until_ms(self, at_ms: int) -> None:
        raise NotImplementedError


class Bench:
    """Call with the metrics that it fills."""

    def __init__(
        self,
        metrics: ServerMetrics | None = None,
        call: ObservedCall | None = None,
        *,
        currency: str | None = None,
    ) -> None:
        self.metrics = metrics or ServerMetrics()
        self.clock = HandClock()
        self.events = CallEvents(self.clock)
        self.call = CallMetrics(
            self.events,
            call or ObservedCall("s", "c", "webrtc", "cascade"),
            self.metrics,
            ENGINES,
            currency,
        )

    def publish(self, *events: CallEvent) -> None:
        for event in events:
            self.events.publish(event)
        assert self.events.failures == 0

    def value(self, name: str, **labels: str) -> float:
        return scrape(self.metrics).value(name, **labels)


def scrape(metrics: ServerMetrics) -> Scrape:
    return Scrape(metrics.render("")[0].decode())


def reply(*, truncated: bool) -> HeardReply:
    return HeardReply("r", "hello", "", truncated, HeardMark("r", 500, 0), True, 0, 1)


def test_the_stages_of_an_answer_add_up_to_its_voice_to_voice():
    bench = Bench()
    bench.publish(AnswerHeard(900, 600, (("stt_final", 250.5), ("endpoint_wait", 349.5))))
    stages = bench.value("parley_stage_seconds_sum", stage="stt_final") + bench.value(
        "parley_stage_seconds_sum", stage="endpoint_wait"
    )
    assert stages == pytest.approx(bench.value("parley_voice_to_voice_seconds_sum")) == 0.6


def test_the_stop_of_an_interrupted_reply_is_timed_from_the_callers_voice():
    bench = Bench()
    bench.publish(ReplyCut(1_000, "words", 240), ReplyFinished(1_060, reply(truncated=True)))
    assert bench.value("parley_barge_in_stop_seconds_sum") == pytest.approx(0.3)
    bench.publish(ReplyFinished(3_000, reply(truncated=True)))
    assert bench.value("parley_barge_in_stop_seconds_count") == 1
    assert bench.value("parley_interruptions_total") == 1


@pytest.mark.parametrize(("pause_ms", "suspected"), [(300, 1), (1_500, 0)])
def test_a_caller_who_goes_on_within_a_second_was_perhaps_cut_in_on(pause_ms: int, suspected: int):
    bench = Bench()
    bench.publish(TurnEnded(1_000, "i would like"), VoiceStarted(1_000 + pause_ms + 200, 200))
    assert bench.value("parley_cut_ins_suspected_total") == suspected


def test_a_discarded_turn_is_no_turn_and_no_cut_in():
    bench = Bench()
    bench.publish(TurnEnded(1_000, ""), VoiceStarted(1_100, 100))
    assert bench.value("parley_turns_total") == bench.value("parley_cut_ins_suspected_total") == 0


def test_words_of_both_sides_are_counted_and_the_first_ones_are_timed():
    bench = Bench()
    bench.publish(VoiceStarted(500, 100), PartialWords(700, "what"), FinalWords(900, "what is it", None))
    bench.publish(ResponseStarted(1_000), ResponseText(1_080, "It is"), ResponseText(1_090, " no"))
    bench.publish(ResponseText(1_100, "thing."), ResponseEnded(1_110))
    assert bench.value("unmute_stt_ttft_seconds_sum") == pytest.approx(0.3)
    assert bench.value("unmute_stt_recv_words_total") == 3
    assert bench.value("unmute_vllm_ttft_seconds_sum") == pytest.approx(0.08)
    assert bench.value("unmute_vllm_reply_length_words_sum") == 3


def test_a_stretch_of_speech_has_a_time_to_its_first_audio_a_length_and_a_time_of_making():
    bench = Bench()
    bench.publish(SpeechStarted(100), SpeechMade(150, 40.0), SpeechMade(220, 1_960.0))
    bench.publish(ReplyFinished(2_100, reply(truncated=False)))
    assert bench.value("unmute_tts_ttft_seconds_sum") == pytest.approx(0.05)
    assert bench.value("unmute_tts_audio_duration_seconds_sum") == pytest.approx(2.0)
    assert bench.value("unmute_tts_gen_duration_seconds_sum") == pytest.approx(0.12)
    assert bench.value("parley_audio_spoken_seconds_total", engine="hibari") == pytest.approx(2.0)


def test_use_is_counted_by_engine_and_a_prompt_cache_hit_by_its_tokens():
    bench = Bench()
    bench.publish(
        EngineUsed(1, Stage.STT, "", Usage(heard_ms=3_000)),
        EngineUsed(2, Stage.LLM, "claude", Usage(prompt_tokens=10, cached_tokens=900, completion_tokens=5)),
        EngineUsed(3, Stage.TTS, "", Usage(characters=12)),
    )
    claude = {"engine": "anthropic", "model": "claude"}
    assert bench.value("parley_audio_heard_seconds_total", engine="moonshine_tiny") == 3
    assert bench.value("unmute_stt_sent_frames_total") == 150
    assert bench.value("parley_llm_tokens_total", **claude, kind="cached_tokens") == 900
    assert bench.value("parley_llm_tokens_total", **claude, kind="completion_tokens") == 5
    assert bench.value("parley_characters_total", engine="hibari") == 12


def test_known_costs_are_counted_and_unpriced_use_is_counted_as_such():
    bench = Bench(currency="EUR")
    known = PricedUsage(Stage.TTS, "cartesia", "sonic", Usage(characters=9), Decimal("0.25"), ())
    unknown = PricedUsage(
        Stage.LLM, "anthropic", "opus", Usage(prompt_tokens=9), Decimal(0), ("prompt_tokens",)
    )
    bench.publish(TurnPriced(1, 1, (known, unknown)))
    assert bench.value("parley_cost_total", engine="cartesia", currency="EUR") == 0.25
    assert bench.value("parley_cost_total", engine="anthropic", currency="EUR") == 0
    unpriced = {"engine": "anthropic", "model": "opus", "kind": "prompt_tokens"}
    assert bench.value("parley_unpriced_usage_total", **unpriced) == 1


def test_failures_fillers_late_packets_and_ends_are_counted():
    bench = Bench()
    bench.publish(EngineFailed(1, Stage.STT), EngineFailed(2, None), WaitMasked(3), PacketLate(4, 31))
    bench.publish(CallEnding(5, "server_shutdown", "the server stops"))
    bench.publish(FallbackAnswers(6, "timeout"), TextTyped(6, "hello"), QuestionSent(6, 120))
    assert bench.value("parley_engine_failovers_total", stage="llm") == 1
    bench.publish(
        EngineFailedOver(6, "speaking", "cartesia", "hibari", FailoverReason.LATE),
        EngineFailedOver(7, "speaking", "hibari", "cartesia", FailoverReason.RECOVERED),
    )
    assert bench.value("parley_engine_failovers_total", stage="tts") == 1
    assert bench.value("parley_turns_total") == 1
    assert bench.value("unmute_vllm_request_length_words_sum") == 120
    bench.publish(RecordingStarted(6), RecordingDegraded(7, "the disk is full", 500))
    assert bench.value("parley_recordings_total") == bench.value("parley_recordings_degraded_total") == 1
    assert bench.value("parley_engine_failures_total", stage="stt") == 1
    assert bench.value("parley_engine_failures_total", stage="other") == 1
    assert bench.value("parley_fillers_total") == bench.value("parley_late_packets_total") == 1
    assert bench.value("parley_call_ends_total", reason="server_shutdown") == 1


def test_a_call_is_open_until_it_is_closed():
    bench = Bench()
    assert bench.value("parley_calls_open", transport="webrtc", mode="cascade") == 1
    bench.clock.ms = 42_000
    bench.call.close()
    assert bench.value("parley_calls_open", transport="webrtc", mode="cascade") == 0
    assert bench.value("unmute_active_sessions") == 0
    assert bench.value("unmute_session_duration_seconds_sum") == 42


def test_a_stall_of_the_loop_is_counted():
    metrics = ServerMetrics()
    metrics.stalled(Stall(0.0, 120, 100, 0, ()))
    assert scrape(metrics).value("parley_loop_stall_seconds_sum") == pytest.approx(0.12)


def test_a_reading_of_the_process_is_shown_until_the_next_one():
    metrics, waits = ServerMetrics(), DurationCounts((1.0, 5.0))
    for wait_s in (0.5, 3.0, 9.0):
        waits.add(wait_s)
    gauges = {definitions.QUEUE_LENGTH: 3.0}
    metrics.read(ProcessReading(gauges, {"idle": 2, "error": 0}, {definitions.QUEUE_WAIT: waits}))
    found = scrape(metrics)
    assert found.value("parley_queue_length") == 3
    assert found.value("parley_pool_workers", state="idle") == 2
    assert found.value("parley_queue_wait_seconds_bucket", le="5.0") == 2
    assert found.value("parley_queue_wait_seconds_count") == 3
    metrics.read(ProcessReading())
    assert scrape(metrics).value("parley_queue_length") == 0


# Everything that a call may have in it, with words and ids that must not get out.
SECRET = "walrus"


def busy_call(metrics: ServerMetrics, number: int, transport: str, mode: str) -> Bench:
    call = ObservedCall(f"{SECRET}-session-{number}", f"{SECRET}-call-{number}", transport, mode)
    bench = Bench(metrics, call, currency="USD")
    for stage in Stage:
        bench.publish(EngineFailed(1, stage))
    stages = tuple((name, 10.0) for name, _, _ in SPANS)
    bench.publish(
        FinalWords(2, SECRET, None),
        TurnEnded(3, SECRET),
        AnswerHeard(4, 60, stages),
        ResponseStarted(5),
        ResponseText(6, SECRET),
        ResponseEnded(7),
        ReplyCut(8, "words", 100),
        ReplyFinished(9, reply(truncated=True)),
        CallEnding(10, f"reason_{number % 10}", SECRET),
    )
    # A provider that names a model of its own in each answer.
    all_kinds = Usage(1, 1, 1, 1, 1, 1, 1.0, 1.0, 1)
    for stage in Stage:
        bench.publish(EngineUsed(11, stage, f"model-{number}", all_kinds))
        kinds = tuple(all_kinds.amounts())
        priced = PricedUsage(stage, ENGINES[stage], f"model-{number}", all_kinds, Decimal(1), kinds)
        bench.publish(TurnPriced(12, 1, (priced,)))
    return bench


def full_tenants() -> dict[definitions.Definition, dict[tuple[str, ...], float]]:
    """Return the readings of as many tenants as are named, each with every limit."""
    tenants = [f"tenant-{number}" for number in range(MOST_VALUES)]
    limits = list(TenantLimits.model_fields)
    used = {(tenant, limit): 1.0 for tenant in tenants for limit in limits}
    refused = {(tenant, limit): 1.0 for tenant in (*tenants, OTHER) for limit in limits}
    return {definitions.TENANT_USED: used, definitions.TENANT_REFUSALS: refused}


def full_devices() -> dict[definitions.Definition, dict[tuple[str, ...], float]]:
    """Return the readings of as many workers as are named, each with the eight GPUs of a machine."""
    memory = {
        (f"worker-{worker}", f"cuda:{device}"): 1.0 for worker in range(MOST_VALUES) for device in range(8)
    }
    return {definitions.DEVICE_USED: memory, definitions.DEVICE_TOTAL: memory}


def test_two_hundred_calls_of_every_kind_make_less_than_two_thousand_series_without_words_or_ids():
    metrics = ServerMetrics()
    transports = [TRANSPORTS.row(name).recorded_as or name for name in TRANSPORTS.names()]
    kinds = [(transport, mode) for transport in transports for mode in MODES]
    for number in range(200):
        busy_call(metrics, number, *kinds[number % len(kinds)])
    metrics.stalled(Stall(0.0, 120, 100, 0, ()))
    gauges = {each: 1.0 for each in definitions.PROCESS_METRICS if each.kind == "gauge" and not each.labels}
    waits = {each: DurationCounts() for each in definitions.PROCESS_METRICS if each.kind == "histogram"}
    labelled = {**full_tenants(), **full_devices()}
    metrics.read(ProcessReading(gauges, dict.fromkeys(map(str, range(9)), 1), waits, labelled))
    text, _ = metrics.render("")
    assert len(scrape(metrics).samples) < 2_000
    assert SECRET not in text.decode()
    assert scrape(metrics).value("unmute_active_sessions") == 200
