"""Settings of the redaction of personal data, and its kinds."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, field_validator, model_validator

from parley.core.strict_model import StrictModel


class PersonalData(StrEnum):
    """Kind of personal data in words."""

    PAYMENT_CARD = "payment_card"
    PHONE_NUMBER = "phone_number"
    EMAIL = "email"
    DIGITS = "digits"
    NAME = "name"


class PrivatePauseSettings(StrictModel):
    """Private pauses of calls."""

    tool: bool = Field(
        False,
        description="the model has the tools ``pause_recording`` and ``resume_recording``",
    )
    model_hears: bool = Field(
        False,
        description="the language model gets the caller's words of a pause, from memory alone; false: it "
        "gets a mark in their place",
    )
    longest_s: float = Field(
        180.0, gt=0, le=3_600, description="a pause ends by itself after this time, also when it was renewed"
    )


class VaultSettings(StrictModel):
    """Vault for the caller's words that redaction replaced."""

    retention_days: float = Field(
        30.0,
        ge=0.01,
        le=3_650,
        description="time after which an entry is deleted, if its session still exists",
    )


class PrivacySettings(StrictModel):
    """Redaction of personal data in the words and the recorded audio of a call, and private pauses."""

    redact: tuple[PersonalData, ...] = Field(
        (),
        description="kinds of personal data that are replaced in the caller's words before anything reads, "
        "shows or stores them (docs/explanation/privacy.md); empty: none",
    )
    redact_agent: tuple[PersonalData, ...] | None = Field(
        None,
        description="the same for the agent's words, which the agent then does not say either; null: "
        "``payment_card`` where ``redact`` has it, and nothing else, because an agent gives out addresses "
        "and telephone numbers of its own",
    )
    names: tuple[str, ...] = Field(
        (),
        max_length=10_000,
        description="names that the kind ``name`` hides, whole words in any case; no other name is known",
    )
    least_digits: int = Field(
        8, ge=4, le=30, description="digits in a row from which the kind ``digits`` hides them"
    )
    audio: Literal["silence", "tone"] = Field(
        "silence", description="what replaces the redacted words in the recorded audio of the caller"
    )
    pause: PrivatePauseSettings | None = Field(
        None,
        description="pauses in which nothing of a call is recorded or stored, which an operator or a tool "
        "begins and ends (docs/explanation/privacy.md#private-pauses); null: none",
    )

    vault: VaultSettings | None = Field(
        None,
        description="keeps the caller's redacted words, encrypted with ``PARLEY_VAULT_KEYS``, for keys with "
        "the scope ``reveal`` (docs/explanation/privacy.md#the-vault); null: they are gone",
    )

    evidence: bool = Field(
        False,
        description="sign disclosures, consents, states of recordings and replies of each session in a "
        "hash chain, with the key in ``PARLEY_EVIDENCE_KEY`` (docs/explanation/privacy.md#evidence)",
    )

    @field_validator("names")
    @classmethod
    def _are_words(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if any(not name.strip() or len(name) > 200 for name in names):
            raise ValueError("a name is empty or has more than 200 characters")
        return names

    @model_validator(mode="after")
    def _names_are_listed(self) -> "PrivacySettings":
        hides = PersonalData.NAME in (*self.redact, *self.of_agent)
        if hides and not self.names:
            raise ValueError("redact: the kind name hides the names of ``names``, which is empty: list them")
        if self.names and not hides:
            raise ValueError("names: nothing hides them; add name to ``redact``")
        return self

    @model_validator(mode="after")
    def _vault_has_words(self) -> "PrivacySettings":
        if self.vault is not None and not self.redact:
            raise ValueError("vault: nothing is redacted; list kinds in ``redact``, or leave the vault out")
        return self

    @property
    def of_agent(self) -> tuple[PersonalData, ...]:
        """Kinds that are hidden in the agent's words."""
        if self.redact_agent is not None:
            return self.redact_agent
        return tuple(kind for kind in self.redact if kind is PersonalData.PAYMENT_CARD)

    @property
    def redacts(self) -> bool:
        """True when words are redacted."""
        return bool(self.redact or self.of_agent)
