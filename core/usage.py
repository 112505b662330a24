"""Amounts of work of engines, as they are counted and billed."""

from dataclasses import dataclass, fields
from decimal import Decimal
from enum import StrEnum


class Stage(StrEnum):
    """Place of an engine in a call."""

    STT = "stt"
    LLM = "llm"
    TTS = "tts"


@dataclass(frozen=True, slots=True)
class Usage:
    """Amounts of one kind each; no token is in two of them.

    Attributes:
        prompt_tokens: text that a model read and did not have in its cache.
        cached_tokens: tokens that it had in its prompt cache, text or audio.
        cache_write_tokens: tokens that a provider wrote to its prompt cache, where it reports them.
        completion_tokens: text that it wrote, reasoning included.
        audio_prompt_tokens: audio that it read, in tokens.
        audio_completion_tokens: audio that it spoke, in tokens.
        heard_ms: audio of the caller that a recogniser received.
        spoken_ms: speech of the bot that a voice made.
        characters: text that a voice received.
        unreported_requests: requests to a model that reported no tokens for them.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    completion_tokens: int = 0
    audio_prompt_tokens: int = 0
    audio_completion_tokens: int = 0
    heard_ms: float = 0.0
    spoken_ms: float = 0.0
    characters: int = 0
    unreported_requests: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    def amounts(self) -> dict[str, float]:
        """Return the amounts that are not zero, by name; durations in whole milliseconds."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: round(amount) for name, amount in given.items() if round(amount)}


@dataclass(frozen=True, slots=True)
class PricedUsage:
    """Use of one model in a turn, with its cost.

    Attributes:
        stage: stage of its engine.
        engine: name of the engine or service.
        model: name of the model; empty where the engine reports none.
        usage: amounts.
        known_cost: cost of the amounts that have a price.
        unpriced: names of the amounts that have none: the whole cost is then not known.
    """

    stage: Stage
    engine: str
    model: str
    usage: Usage
    known_cost: Decimal
    unpriced: tuple[str, ...]

    @property
    def cost(self) -> Decimal | None:
        """The whole cost; None where a part of it is not known."""
        return None if self.unpriced else self.known_cost
