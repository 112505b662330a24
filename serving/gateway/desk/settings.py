"""Settings of the desk, and the phrases around it."""

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from parley.core.strict_model import StrictModel
from parley.core.templates import validate_template
from parley.turn_taking.tier_offers import TENSE_FROM, UNCLEAR_BELOW, OfferCause, OfferRule
from parley.turn_taking.tier_settings import OfferTriggerSettings

Phrase = Annotated[str, Field(min_length=1, max_length=400)]


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
    offer_after_unknown: int = Field(
        2,
        ge=0,
        le=20,
        description="answers of the embedded model in a row that it does not know, after which a human is "
        "offered; 0: never",
    )
    offer_after_repairs: int = Field(
        3,
        ge=0,
        le=20,
        description="exchanges in a row in which one side had to ask again, after which a human is offered; "
        "0: never",
    )
    offer_after_tense: int = Field(
        3,
        ge=0,
        le=20,
        description="turns in a row that were said tensely, after which a human is offered, where a "
        "specialist judges the voice; 0: never",
    )
    offer_on: tuple[Phrase, ...] = Field(
        (), max_length=200, description="words of the caller on which a human is offered at once"
    )
    fetch_on: tuple[Phrase, ...] = Field(
        (),
        max_length=200,
        description="words of the caller on which a human is fetched without an offer: what the deployment "
        "leaves to humans, such as a complaint, or a change for which the caller must be verified",
    )
    offers: tuple[HumanOfferSettings, ...] = Field(
        (), max_length=50, description="further rules by which a human is offered, or fetched (`ask: false`)"
    )
    unclear_below: float = Field(
        UNCLEAR_BELOW,
        gt=0,
        le=1,
        description="mean confidence of its words below which a turn counts as `unclear`",
    )
    tense_from: float = Field(
        TENSE_FROM, gt=0, le=1, description="score of tension or anger from which speech counts as tense"
    )
    offer: Phrase = Field("Shall I fetch a colleague?", description="offer of a human")
    waiting: Phrase = Field(
        "I am fetching a colleague. You are number {place}. Say never mind to go on with me.",
        description="to a caller who waits; ``{place}`` is replaced by the place in the queue",
    )
    declined: Phrase = Field("All right. What else can I do for you?", description="after a declined offer")
    withdrawn: Phrase = Field(
        "All right, I will not fetch a colleague. What can I do for you?",
        description="to a caller who waits no longer",
    )
    joined: Phrase = Field(
        "You are now connected to a colleague.",
        description="when a human takes the session over",
    )
    expired: Phrase = Field(
        "I am sorry, no colleague is free at the moment. I will go on helping you.",
        description="when no human came within ``wait_s``",
    )
    returned: Phrase = Field(
        "My colleague has handed you back to me. What else can I do for you?",
        description="when the human hands the session back",
    )
    lost: Phrase = Field(
        "My colleague has left the conversation. I will go on helping you.",
        description="when the desk gave no sign of life for ``grace_s``",
    )

    @field_validator("waiting")
    @classmethod
    def _is_template(cls, text: str) -> str:
        return validate_template(text, "place")

    def rules(self) -> list[OfferRule]:
        """Return the rules by which a human is offered or fetched."""
        tense_from, unclear_below = self.tense_from, self.unclear_below
        return [
            OfferRule(OfferCause.UNKNOWN, after=self.offer_after_unknown),
            OfferRule(OfferCause.REPAIRS, after=self.offer_after_repairs),
            OfferRule(OfferCause.TENSION, after=self.offer_after_tense, tense_from=tense_from),
            *(each.rule_to(None, tense_from=tense_from, unclear_below=unclear_below) for each in self.offers),
        ]
