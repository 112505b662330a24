"""Settings of the desk, and the phrases around it."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from parley.core.strict_model import StrictModel
from parley.core.templates import validate_template
from parley.turn_taking.tier_offers import OfferCause, OfferRule
from parley.turn_taking.tier_settings import OfferTriggerSettings

Phrase = Annotated[str, Field(min_length=1, max_length=400)]
DeskPhrase = Literal["offer", "waiting", "declined", "withdrawn", "joined", "expired", "returned", "lost"]
PHRASES: dict[DeskPhrase, str] = {
    "offer": "Shall I fetch a colleague?",
    "waiting": "I am fetching a colleague. You are number {place}. Say never mind to go on with me.",
    "declined": "All right. What else can I do for you?",
    "withdrawn": "All right, I will not fetch a colleague. What can I do for you?",
    "joined": "You are now connected to a colleague.",
    "expired": "I am sorry, no colleague is free at the moment. I will go on helping you.",
    "returned": "My colleague has handed you back to me. What else can I do for you?",
    "lost": "My colleague has left the conversation. I will go on helping you.",
}


class HumanOfferSettings(OfferTriggerSettings):
    """Rule by which a human is offered, or fetched."""

    @model_validator(mode="after")
    def _is_for_a_human(self) -> Self:
        if self.cause in (OfferCause.EYES, OfferCause.UNNEEDED):
            raise ValueError(f"cause {self.cause}: a rule of 'tiers.offers', not of a human")
        return self


class DeskSettings(StrictModel):
    """Settings of the desk: when a human is fetched, the deadlines of both sides, and the phrases."""

    wait_s: float = Field(
        120.0, ge=1, le=3_600, description="longest wait for a human; the agent goes on after it"
    )
    grace_s: float = Field(
        20.0,
        ge=5,
        le=600,
        description="time without a sign of life of the desk that has a session, after which the agent goes "
        "on",
    )
    reply_s: float = Field(
        30.0,
        ge=0,
        le=300,
        description="longest wait of a question over /ws/chat or /ws/streaming for the words of the human "
        "who has the session",
    )
    offers: tuple[HumanOfferSettings, ...] = Field(
        (
            HumanOfferSettings(cause=OfferCause.UNKNOWN, after=2),
            HumanOfferSettings(cause=OfferCause.REPAIRS, after=3),
            HumanOfferSettings(cause=OfferCause.TENSION, after=3),
        ),
        max_length=50,
        description="rules by which a human is offered, or fetched (`ask: false`). A caller who asks for one "
        "needs none",
    )
    phrases: dict[DeskPhrase, Phrase] = Field(
        PHRASES,
        description="phrases by name; one that is left out stays. ``offer``: of a human; ``waiting``: to a "
        "caller who waits, with ``{place}`` for the place in the queue; ``declined``: after a declined "
        "offer; ``withdrawn``: to a caller who waits no longer; ``joined``: when a human takes the session "
        "over; ``expired``: when none came within ``wait_s``; ``returned``: when the human hands the session "
        "back; ``lost``: when the desk gave no sign of life for ``grace_s``",
    )

    @field_validator("phrases", mode="before")
    @classmethod
    def _others_stay(cls, given: object) -> object:
        return {**PHRASES, **given} if isinstance(given, Mapping) else given

    @field_validator("phrases")
    @classmethod
    def _states_the_place(cls, phrases: dict[DeskPhrase, str]) -> dict[DeskPhrase, str]:
        return {**phrases, "waiting": validate_template(phrases["waiting"], "place")}

    def rules(self) -> list[OfferRule]:
        """Return the rules by which a human is offered or fetched."""
        return [each.rule_to(None) for each in self.offers]
