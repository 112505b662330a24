"""Cost of use by the price table of a deployment."""

from collections.abc import Iterator
from decimal import Decimal

import pytest
from loguru import logger
from pydantic import ValidationError

from parley.core.usage import Stage, Usage
from parley.telemetry.prices import PriceRow, PriceSettings, PriceTable, shown

CLAUDE = {
    "engine": "anthropic",
    "model": "claude-haiku*",
    "prompt_per_million_tokens": 1,
    "cached_per_million_tokens": 0.1,
    "completion_per_million_tokens": 5,
}


def table(*rows: dict) -> PriceTable:
    return PriceTable(PriceSettings(rows=tuple(PriceRow(**row) for row in rows)))


@pytest.fixture
def warnings() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


def test_each_kind_of_token_has_its_own_price():
    used = Usage(prompt_tokens=1_000, cached_tokens=10_000, completion_tokens=200)
    priced = table(CLAUDE).priced(Stage.LLM, "anthropic", "claude-haiku-4-5", used)
    assert priced.cost == Decimal("0.001") + Decimal("0.001") + Decimal("0.001")


def test_tokens_of_the_cache_cost_as_much_as_others_where_no_price_is_given_for_them():
    row = {key: value for key, value in CLAUDE.items() if key != "cached_per_million_tokens"}
    used = Usage(cached_tokens=1_000_000, cache_write_tokens=1_000_000)
    assert table(row).priced(Stage.LLM, "anthropic", "claude-haiku-4-5", used).cost == 2


def test_audio_is_billed_by_the_minute_and_a_voice_by_what_it_has_a_price_for():
    prices = table(
        {"engine": "deepgram", "heard_per_minute": 0.006},
        {"engine": "cartesia", "per_million_characters": 50},
        {"engine": "hosted", "spoken_per_minute": 0.06},
    )
    spoken = Usage(characters=1_000, spoken_ms=30_000)
    assert prices.priced(Stage.STT, "deepgram", "nova-3", Usage(heard_ms=10_000)).cost == Decimal("0.001")
    assert prices.priced(Stage.TTS, "cartesia", "sonic", spoken).cost == Decimal("0.05")
    assert prices.priced(Stage.TTS, "hosted", "", spoken).cost == Decimal("0.03")
    # The rest of a clause that was interrupted, whose text was billed before.
    assert prices.priced(Stage.TTS, "cartesia", "sonic", Usage(spoken_ms=40)).cost == 0


def test_an_engine_with_the_price_zero_is_free():
    assert (
        table({"engine": "hibari", "per_million_characters": 0})
        .priced(Stage.TTS, "hibari", "", Usage(characters=50))
        .cost
        == 0
    )


@pytest.mark.parametrize(
    ("engine", "model", "used", "unpriced"),
    [
        ("openai_compatible", "gpt", Usage(prompt_tokens=5), ("prompt_tokens",)),
        ("anthropic", "claude-opus-5", Usage(prompt_tokens=5), ("prompt_tokens",)),
        ("anthropic", "claude-haiku-4-5", Usage(audio_prompt_tokens=5), ("audio_prompt_tokens",)),
    ],
)
def test_a_use_without_a_price_has_no_known_cost_and_is_logged_once(
    engine: str, model: str, used: Usage, unpriced: tuple[str, ...], warnings: list[str]
):
    prices = table(CLAUDE)
    for _ in range(3):
        priced = prices.priced(Stage.LLM, engine, model, used)
        assert (priced.cost, priced.unpriced) == (None, unpriced)
    [line] = warnings
    assert f"{engine} ({model}) has no price for {unpriced[0]}" in line


def test_the_known_part_of_an_unknown_cost_is_kept():
    used = Usage(prompt_tokens=1_000_000, audio_completion_tokens=7)
    priced = table(CLAUDE).priced(Stage.LLM, "anthropic", "claude-haiku-4-5", used)
    assert (priced.known_cost, priced.cost) == (1, None)


def test_without_a_price_table_no_cost_is_known_and_nothing_is_logged(warnings: list[str]):
    assert PriceTable().priced(Stage.STT, "moonshine_tiny", "", Usage(heard_ms=1_000)).cost is None
    assert warnings == []


def test_the_first_row_that_fits_holds():
    dearer = {**CLAUDE, "model": "*", "prompt_per_million_tokens": 9}
    used = Usage(prompt_tokens=1_000_000)
    assert table(CLAUDE, dearer).priced(Stage.LLM, "anthropic", "claude-haiku-4-5", used).cost == 1
    assert table(CLAUDE, dearer).priced(Stage.LLM, "anthropic", "claude-opus-5", used).cost == 9


def test_a_row_without_a_price_is_refused():
    with pytest.raises(ValidationError, match="the row of 'deepgram' has no price"):
        PriceRow(engine="deepgram")


@pytest.mark.parametrize(
    ("cost", "text"),
    [("0", "0.00"), ("1.5", "1.50"), ("12.345", "12.345"), ("0.00000012", "0.00000012"), (None, None)],
)
def test_a_cost_is_shown_with_at_least_two_decimal_places(cost: str | None, text: str | None):
    assert shown(None if cost is None else Decimal(cost)) == text
