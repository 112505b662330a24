"""Price table of a deployment, and the cost of use by it.

Decides which row of the table a model belongs to and what its use costs. What has no price has no known cost:
it is never counted as free, and the first use of each such model is logged. An engine that costs nothing has
a row with the price 0. Amounts are decimal numbers, so that many small ones add up exactly.
"""

from collections.abc import Mapping
from decimal import Decimal
from fnmatch import fnmatchcase

from loguru import logger
from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel
from parley.core.usage import PricedUsage, Stage, Usage

MILLION, MINUTE_MS = 1_000_000, 60_000
BILLED_OF_VOICES = ("characters", "spoken_ms")
# A provider may answer with a model for each release; the log names no more.
MOST_LOGGED = 100


class PriceRow(StrictModel):
    """Prices of the models of one engine. A price that is left out is not known, and 0 is free."""

    engine: str = Field(description="name of the engine or service, as in ``thinking.llm.name`` and others")
    model: str = Field(
        "*", description="name of the model as its service reports it; ``*`` stands for any characters"
    )
    prompt_per_million_tokens: float | None = Field(None, ge=0, description="tokens that the model reads")
    cached_per_million_tokens: float | None = Field(
        None, ge=0, description="tokens from its prompt cache; null: as much as the others that it reads"
    )
    cache_write_per_million_tokens: float | None = Field(
        None, ge=0, description="tokens written to its prompt cache; null: as much as the others"
    )
    completion_per_million_tokens: float | None = Field(None, ge=0, description="tokens that it writes")
    audio_prompt_per_million_tokens: float | None = Field(None, ge=0, description="tokens of audio in")
    audio_completion_per_million_tokens: float | None = Field(None, ge=0, description="tokens of audio out")
    heard_per_minute: float | None = Field(None, ge=0, description="audio that a recogniser receives")
    spoken_per_minute: float | None = Field(None, ge=0, description="speech that a voice makes")
    per_million_characters: float | None = Field(None, ge=0, description="text that a voice receives")

    @model_validator(mode="after")
    def _has_a_price(self) -> "PriceRow":
        if not any(value is not None for name, value in self if "per_" in name):
            raise ValueError(f"the row of {self.engine!r} has no price; an engine that costs nothing has 0")
        return self


class PriceSettings(StrictModel):
    """Prices of engines, from which the cost of calls is computed.

    The first row that fits an engine and a model holds.
    """

    currency: str = Field("USD", pattern=r"^[A-Z]{3}$", description="of all prices, by ISO 4217")
    rows: tuple[PriceRow, ...] = Field((), max_length=200, description="prices by engine and model")
    in_session: bool = Field(
        True,
        description="write the use and the cost of each turn and call into the session; its client can "
        "read them there",
    )


class PriceTable:
    """Price table of one process.

    Args:
        settings: of the deployment; None: nothing has a price.

    Attributes:
        settings: as given.
    """

    def __init__(self, settings: PriceSettings | None = None) -> None:
        self.settings = settings
        self._logged: set[tuple[str, str]] = set()

    def priced(self, stage: Stage, engine: str, model: str, usage: Usage) -> PricedUsage:
        """Return the use of a model with its cost."""
        amounts = usage.amounts()
        row = self._row(engine, model)
        prices = {} if row is None else _prices(row)
        if stage is Stage.TTS and not prices.keys().isdisjoint(BILLED_OF_VOICES):
            # A voice is billed by its text or by its speech, and the other has no price then.
            amounts = {name: amount for name, amount in amounts.items() if name in prices}
        known, unpriced = Decimal(0), []
        for name, amount in amounts.items():
            if name in prices:
                known += Decimal(amount) * prices[name]
            else:
                unpriced.append(name)
        if unpriced:
            self._log(engine, model, unpriced)
        return PricedUsage(stage, engine, model, usage, known, tuple(unpriced))

    def _row(self, engine: str, model: str) -> PriceRow | None:
        rows = () if self.settings is None else self.settings.rows
        return next((row for row in rows if row.engine == engine and fnmatchcase(model, row.model)), None)

    def _log(self, engine: str, model: str, unpriced: list[str]) -> None:
        key = engine, model
        if self.settings is None or key in self._logged or len(self._logged) >= MOST_LOGGED:
            return
        self._logged.add(key)
        named = f"{engine} ({model})" if model else engine
        logger.warning(
            f"prices: {named} has no price for {', '.join(unpriced)}, so the cost of its calls is not known; "
            "add a row to prices.rows"
        )


def _prices(row: PriceRow) -> Mapping[str, Decimal]:
    """Return the price of one unit of each amount of ``Usage`` that has one.

    A request without a report costs nothing where the model's tokens do, and otherwise an unknown amount.
    """
    read = row.prompt_per_million_tokens
    cached, written = row.cached_per_million_tokens, row.cache_write_per_million_tokens
    given: dict[str, tuple[float | None, int]] = {
        "prompt_tokens": (read, MILLION),
        "cached_tokens": (read if cached is None else cached, MILLION),
        "cache_write_tokens": (read if written is None else written, MILLION),
        "completion_tokens": (row.completion_per_million_tokens, MILLION),
        "audio_prompt_tokens": (row.audio_prompt_per_million_tokens, MILLION),
        "audio_completion_tokens": (row.audio_completion_per_million_tokens, MILLION),
        "heard_ms": (row.heard_per_minute, MINUTE_MS),
        "spoken_ms": (row.spoken_per_minute, MINUTE_MS),
        "characters": (row.per_million_characters, MILLION),
    }
    is_free = read == row.completion_per_million_tokens == 0
    given["unreported_requests"] = 0.0 if is_free else None, 1
    return {name: Decimal(str(price)) / unit for name, (price, unit) in given.items() if price is not None}


def shown(cost: Decimal | None) -> str | None:
    """Return a cost as text with twelve decimal places at most; None for one that is not known."""
    if cost is None:
        return None
    text = f"{cost:.12f}".rstrip("0")
    return f"{text}00"[: text.index(".") + 3] if len(text) - text.index(".") < 3 else text
