"""Use and cost of a call in a real session store."""

from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from parley.core.call_events import (
    BotTurnEnded,
    EngineFailedOver,
    EngineUsed,
    ResponseStarted,
    SpeechMade,
    TurnEnded,
    TurnPriced,
)
from parley.core.failover import FailoverReason
from parley.core.usage import Stage, Usage
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.usage_records import UsageRecords
from parley.runtime.event_stream import CallEvents
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.telemetry.engine_names import EngineNames
from parley.telemetry.prices import PriceRow, PriceSettings, PriceTable
from tests import virtual_time

ENGINES = {Stage.STT: "deepgram", Stage.LLM: "anthropic", Stage.TTS: "cartesia"}
ROWS = (
    PriceRow(engine="deepgram", heard_per_minute=0.006),
    PriceRow(engine="anthropic", prompt_per_million_tokens=1, completion_per_million_tokens=5),
    PriceRow(engine="cartesia", per_million_characters=50),
)


def recorded(
    folder: Path,
    settings: PriceSettings | None,
    happen: Callable[[CallEvents], None],
    engines: Mapping[Stage, str] = ENGINES,
) -> tuple[list[dict[str, Any]], list[TurnPriced]]:
    """Return the payloads of the records of what happens in a call, and its events."""

    async def whole() -> tuple[list[dict[str, Any]], list[TurnPriced]]:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
        opened = Conversations(store, compactor=Compactor())
        priced: list[TurnPriced] = []
        try:
            async with opened.open() as conversation:
                call = Call(conversation, "webrtc", LiveCall(conversation.clock))
                names = EngineNames(call.events, engines)
                records = UsageRecords(call, PriceTable(settings), names)
                call.events.subscribe(TurnPriced, priced.append)
                happen(call.events)
                records.finish()
                assert call.events.failures == 0
                await conversation.flushed()
            found = await store.events(conversation.session_id, limit=100, kinds=[Kind.USAGE])
            return [dict(each.payload) for each in found], priced
        finally:
            await opened.close()
            await store.close()

    return virtual_time.run(whole())


def one_turn(events: CallEvents) -> None:
    events.publish(EngineUsed(0, Stage.TTS, "sonic", Usage(characters=100)))
    events.publish(SpeechMade(0, 2_000.0))
    events.publish(BotTurnEnded(0, "Hello.", False))
    events.publish(EngineUsed(0, Stage.STT, "nova-3", Usage(heard_ms=10_000)))
    events.publish(TurnEnded(0, "what is it"))
    events.publish(EngineUsed(0, Stage.LLM, "haiku", Usage(prompt_tokens=1_000, completion_tokens=100)))
    events.publish(EngineUsed(0, Stage.TTS, "sonic", Usage(characters=60)))
    events.publish(BotTurnEnded(0, "It is that.", False))


def test_each_turn_and_the_whole_call_have_a_cost(tmp_path: Path):
    payloads, priced = recorded(tmp_path, PriceSettings(currency="EUR", rows=ROWS), one_turn)
    assert [(each["scope"], each["turn"], each["cost"], each["currency"]) for each in payloads] == [
        ("turn", 0, "0.005", "EUR"),
        ("turn", 1, "0.0055", "EUR"),
        ("call", 1, "0.0105", "EUR"),
    ]
    answer = payloads[1]["used"]
    assert [(each["stage"], each["engine"], each["model"]) for each in answer] == [
        ("stt", "deepgram", "nova-3"),
        ("llm", "anthropic", "haiku"),
        ("tts", "cartesia", "sonic"),
    ]
    assert [(each["heard_ms"], each["cost"]) for each in answer[:1]] == [(10_000, "0.001")]
    assert payloads[2]["used"][0]["characters"] == 160
    assert [event.turn for event in priced] == [0, 1]


def test_a_missing_model_makes_the_cost_of_its_turn_and_call_unknown_and_never_zero(tmp_path: Path):
    payloads, _ = recorded(tmp_path, PriceSettings(rows=ROWS[:1] + ROWS[2:]), one_turn)
    assert [(each["scope"], each["cost"], each["known_cost"]) for each in payloads] == [
        ("turn", "0.005", "0.005"),
        ("turn", None, "0.004"),
        ("call", None, "0.009"),
    ]
    [model] = [each for each in payloads[1]["used"] if each["stage"] == "llm"]
    assert (model["cost"], model["unpriced"]) == (None, ["prompt_tokens", "completion_tokens"])


def test_use_after_the_last_turn_is_in_the_sum_of_the_call(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        one_turn(events)
        events.publish(EngineUsed(0, Stage.STT, "nova-3", Usage(heard_ms=60_000)))

    payloads, _ = recorded(tmp_path, PriceSettings(rows=ROWS), happen)
    assert [(each["scope"], each["cost"]) for each in payloads][2:] == [("turn", "0.006"), ("call", "0.0165")]


def test_an_answer_without_a_report_has_an_unknown_cost_when_the_next_turn_is_over(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        events.publish(TurnEnded(0, "what is it"))
        events.publish(ResponseStarted(0))
        events.publish(BotTurnEnded(0, "It", True))
        # The report of an interrupted answer may come after the end of its turn.
        events.publish(EngineUsed(0, Stage.LLM, "haiku", Usage(prompt_tokens=1_000, completion_tokens=1)))
        events.publish(TurnEnded(0, "and that"))
        events.publish(ResponseStarted(0))
        events.publish(BotTurnEnded(0, "Tha", True))
        events.publish(TurnEnded(0, "well"))
        events.publish(BotTurnEnded(0, "Yes.", False))

    payloads, _ = recorded(tmp_path, PriceSettings(rows=ROWS), happen)
    assert [(each["scope"], each["turn"], each["cost"]) for each in payloads] == [
        ("turn", 2, "0.001005"),
        ("turn", 3, None),
        ("call", 3, None),
    ]
    [model] = payloads[1]["used"]
    assert (model["model"], model["unreported_requests"], model["unpriced"]) == (
        "haiku",
        1,
        ["unreported_requests"],
    )
    assert payloads[2]["known_cost"] == "0.001005"


def test_the_speech_of_a_realtime_service_is_billed_by_its_tokens_alone(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        events.publish(ResponseStarted(0))
        events.publish(SpeechMade(0, 2_000.0))
        spoken = Usage(audio_prompt_tokens=10_000, audio_completion_tokens=1_000)
        events.publish(EngineUsed(0, Stage.LLM, "gpt-realtime", spoken))
        events.publish(BotTurnEnded(0, "It is that.", False))

    row = PriceRow(
        engine="openai_realtime", audio_prompt_per_million_tokens=32, audio_completion_per_million_tokens=64
    )
    engines = {Stage.STT: "openai_realtime", Stage.LLM: "openai_realtime", Stage.TTS: "hibari"}
    payloads, _ = recorded(tmp_path, PriceSettings(rows=(row,)), happen, engines)
    assert [each["cost"] for each in payloads] == ["0.384", "0.384"]


def test_the_report_of_a_guess_comes_before_its_answer(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        for _ in range(3):
            events.publish(EngineUsed(0, Stage.LLM, "haiku", Usage(prompt_tokens=1_000, completion_tokens=0)))
            events.publish(TurnEnded(0, "what is it"))
            events.publish(ResponseStarted(0))
            events.publish(BotTurnEnded(0, "It is that.", False))

    payloads, _ = recorded(tmp_path, PriceSettings(rows=ROWS), happen)
    assert [each["cost"] for each in payloads] == ["0.001", "0.001", "0.001", "0.003"]


def test_an_answer_without_a_report_is_found_at_the_end_of_the_call_and_costs_nothing_if_free(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        events.publish(TurnEnded(0, "what is it"))
        events.publish(ResponseStarted(0))

    for price, cost in ((1.0, None), (0.0, "0.00")):
        folder = tmp_path / str(price)
        folder.mkdir()
        prices = {"prompt_per_million_tokens": price, "completion_per_million_tokens": price}
        settings = PriceSettings(rows=(PriceRow(engine="anthropic", **prices),))
        payloads, _ = recorded(folder, settings, happen)
        assert [each["cost"] for each in payloads] == [cost, cost]


def test_a_session_gets_no_costs_without_prices_or_where_they_are_kept_out_of_it(tmp_path: Path):
    for number, settings in enumerate((None, PriceSettings(rows=ROWS, in_session=False))):
        (tmp_path / str(number)).mkdir()
        payloads, priced = recorded(tmp_path / str(number), settings, one_turn)
        assert payloads == []
        assert len(priced) == 2


def test_what_each_of_two_engines_of_a_stage_did_has_its_own_price(tmp_path: Path):
    def happen(events: CallEvents) -> None:
        events.publish(EngineUsed(0, Stage.STT, "nova-3", Usage(heard_ms=60_000)))
        events.publish(EngineUsed(0, Stage.TTS, "sonic", Usage(characters=1_000)))
        events.publish(SpeechMade(0, 3_000.0))
        events.publish(EngineFailedOver(0, "hearing", "deepgram", "moonshine_tiny", FailoverReason.ERROR))
        events.publish(EngineFailedOver(0, "speaking", "cartesia", "hibari", FailoverReason.STALLED))
        events.publish(SpeechMade(0, 2_000.0))
        events.publish(EngineUsed(0, Stage.STT, "", Usage(heard_ms=30_000)))
        events.publish(BotTurnEnded(0, "Hello.", False))

    _, [priced] = recorded(tmp_path, PriceSettings(currency="USD", rows=ROWS), happen)
    found = {each.engine: (each.usage.heard_ms, each.usage.spoken_ms, each.cost) for each in priced.used}
    assert found["deepgram"] == (60_000, 0, Decimal("0.006"))
    assert found["cartesia"] == (0, 3_000, Decimal("0.05"))
    assert found["moonshine_tiny"][:2] == (30_000, 0)
    assert found["hibari"][:2] == (0, 2_000)
