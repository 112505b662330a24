"""Settings of the steps to another medium: the rules of the offers, and the phrases around them."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from parley.core.strict_model import StrictModel
from parley.core.tiers import Medium
from parley.turn_taking.tier_offers import (
    WORDED,
    OfferCause,
    OfferRule,
    ToolTrigger,
    ToolValue,
)

OfferPhrase = Annotated[str, Field(min_length=1, max_length=400)]
TierPhrase = Literal[
    "offer_text",
    "offer_voice",
    "offer_video",
    "offer_screen",
    "offer_unseen",
    "go_text",
    "go_voice",
    "go_video",
    "go_screen",
    "go_unseen",
    "seen",
    "declined",
    "failed",
]
PHRASES: dict[TierPhrase, str] = {
    "offer_text": "I do not understand you well. Shall we go on in writing?",
    "offer_voice": "Shall we talk about it instead? You can call me from this page.",
    "offer_video": "I would have to see that. Will you turn on your camera?",
    "offer_screen": "I would have to see that. Will you share your screen?",
    "offer_unseen": "I need to see nothing more. Shall we go on without pictures?",
    "go_text": "All right, let us go on in writing. Everything so far is on the page.",
    "go_voice": "All right. Press the button to call me. We go on where we are.",
    "go_video": "All right. Please allow your browser to use the camera.",
    "go_screen": "All right. Please choose what you share on the page.",
    "go_unseen": "All right, I see nothing any more.",
    "seen": "Thank you, I can see it. Please go on.",
    "declined": "All right, we go on like this. What else can I do for you?",
    "failed": "That did not work. Let us go on like this.",
}
# Names of the phrases by the medium of a step: its offer, and what a caller hears who agrees in a call, or in
# writing, where every step but the one to writing begins with a call.
OFFERS: Mapping[Medium, TierPhrase] = MappingProxyType(
    {
        Medium.TEXT: "offer_text",
        Medium.VOICE: "offer_voice",
        Medium.VIDEO: "offer_video",
        Medium.SCREEN: "offer_screen",
    }
)
IN_CALL: Mapping[Medium, TierPhrase] = MappingProxyType(
    {
        Medium.TEXT: "go_text",
        Medium.VOICE: "go_unseen",
        Medium.VIDEO: "go_video",
        Medium.SCREEN: "go_screen",
    }
)
IN_WRITING: Mapping[Medium, TierPhrase] = MappingProxyType(
    {
        Medium.TEXT: "go_text",
        Medium.VOICE: "go_voice",
        Medium.VIDEO: "go_voice",
        Medium.SCREEN: "go_voice",
    }
)


class ToolTriggerSettings(StrictModel):
    """Result of a tool on which an offer is made, once the reply with that result is over."""

    name: str = Field(min_length=1, max_length=64, description="name of the tool")
    outcome: Literal["done", "failed", "unknown"] = Field("done", description="how its call ended")
    has: dict[str, ToolValue] = Field(
        {},
        max_length=20,
        description="values of fields of the result; without any, every result counts",
    )

    def trigger(self) -> ToolTrigger:
        """Return the trigger."""
        return ToolTrigger(self.name, self.outcome, tuple(self.has.items()))


class OfferTriggerSettings(StrictModel):
    """Cause and trigger of an offer."""

    cause: OfferCause = Field(
        description="why. Counted in exchanges in a row: `unknown` (the embedded model does not know), "
        "`repairs` (one side had to ask again), `tension` (said tensely), `unclear` (recognised with little "
        "confidence), `unneeded` (a camera or a screen is on, and no words of a rule called for it). By "
        "words of the caller, or by the result of a tool: `eyes` (a task that has to be seen), "
        "`verification`, `policy`"
    )
    after: int = Field(
        0, ge=0, le=20, description="exchanges in a row after which the offer is made, for a counted cause"
    )
    after_s: float = Field(
        0.0,
        ge=0,
        le=600,
        description="for `tension`: tense speech after which it is made, added up over tense turns in a row",
    )
    on: tuple[OfferPhrase, ...] = Field(
        (), max_length=200, description="words of the caller on which it is made, for the other causes"
    )
    on_tool: ToolTriggerSettings | None = Field(
        None, description="result of a tool on which it is made, for the other causes and `unneeded`"
    )
    ask: bool = Field(
        True,
        description="ask the caller. Otherwise the step begins, or a human is fetched, at once; the caller "
        "may still decline",
    )

    @model_validator(mode="after")
    def _has_its_trigger(self) -> Self:
        cause = self.cause
        is_counted = bool(self.after or self.after_s)
        if self.after_s and cause is not OfferCause.TENSION:
            raise ValueError(f"cause {cause}: 'after_s' counts tension alone")
        if cause in WORDED:
            if is_counted or not (self.on or self.on_tool):
                raise ValueError(
                    f"cause {cause}: give words of the caller in 'on' or a tool in 'on_tool', and no 'after'"
                )
        elif self.on or (self.on_tool and cause is not OfferCause.UNNEEDED):
            raise ValueError(f"cause {cause}: give the number of exchanges in 'after', and no 'on'")
        elif not is_counted and not self.on_tool:
            raise ValueError(f"cause {cause}: give the number of exchanges in 'after'")
        if cause is OfferCause.UNNEEDED and not self.ask:
            raise ValueError("cause unneeded: the caller is asked")
        return self

    def rule_to(self, to: Medium | None) -> OfferRule:
        """Return the rule that offers a medium, or a human."""
        return OfferRule(
            self.cause,
            to,
            self.after,
            self.after_s,
            self.on,
            None if self.on_tool is None else self.on_tool.trigger(),
            self.ask,
        )


class OfferRuleSettings(OfferTriggerSettings):
    """Rule by which another medium is offered."""

    to: Medium = Field(description="`text`, `voice`, `video` (a camera) or `screen` (a shared screen)")

    @model_validator(mode="after")
    def _leads_to_voice(self) -> Self:
        if self.cause is OfferCause.UNNEEDED and self.to is not Medium.VOICE:
            raise ValueError("cause unneeded: the step leads to voice")
        return self


class TierSettings(StrictModel):
    """Steps of a session to another medium: when one is offered, and the phrases."""

    offers: tuple[OfferRuleSettings, ...] = Field(
        (
            OfferRuleSettings(to=Medium.VOICE, cause=OfferCause.REPAIRS, after=2),
            OfferRuleSettings(to=Medium.TEXT, cause=OfferCause.UNCLEAR, after=3),
            OfferRuleSettings(to=Medium.VOICE, cause=OfferCause.UNNEEDED, after=4),
        ),
        max_length=50,
        description="rules of the offers. A caller who wishes for a medium in their own words needs none",
    )
    step_s: float = Field(
        60.0,
        ge=5,
        le=600,
        description="longest time in a call from the caller's answer to the camera, the screen or the end of "
        "the call",
    )
    phrases: dict[TierPhrase, OfferPhrase] = Field(
        PHRASES,
        description="phrases by name; one that is left out stays. ``offer_...`` ask the caller; ``go_...`` "
        "are said to one who agrees; ``seen``: when pictures come; ``declined``: after a declined offer; "
        "``failed``: when the browser refused, or nothing came within ``step_s``",
    )

    @field_validator("phrases", mode="before")
    @classmethod
    def _others_stay(cls, given: object) -> object:
        return {**PHRASES, **given} if isinstance(given, Mapping) else given

    def rules(self) -> list[OfferRule]:
        """Return the rules of the offers."""
        return [each.rule_to(each.to) for each in self.offers]

    def offer_of(self, rule: OfferRule) -> str:
        """Return the phrase with which a medium is offered."""
        if rule.cause is OfferCause.UNNEEDED:
            return self.phrases["offer_unseen"]
        return "" if rule.to is None else self.phrases[OFFERS[rule.to]]

    def go(self, to: Medium, *, is_in_call: bool) -> str:
        """Return the phrase for a caller who takes a step."""
        return self.phrases[IN_CALL[to] if is_in_call else IN_WRITING[to]]
