"""Settings of phone calls."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from parley.core.strict_model import StrictModel
from parley.core.templates import validate_template
from parley.protocols.phone_numbers import NUMBER
from parley.serving.gateway.phone.caller_settings import (
    CallCodeSettings,
    CallerSettings,
    ReconnectSettings,
    RelaySettings,
)
from parley.serving.gateway.phone.carriers import CARRIERS
from parley.serving.gateway.phone.queue import PhoneQueueSettings

# A number, or a SIP address. The digits of other scripts are none of a number.
REACHED = r"^(\+[1-9][0-9]{4,14}|sip:[^\s@]{1,100}@[^\s@]{1,100})$"
CallPrefix = Annotated[str, Field(pattern=r"^(\+[1-9][0-9]{0,14}|sip:[^\s@]{1,100}@[^\s@]{1,100})$")]


class PhoneRoutesSettings(StrictModel):
    """Phone calls of this server."""

    carriers: tuple[str, ...] = Field(
        ("twilio",),
        min_length=1,
        description="phone networks to serve: twilio, telnyx, plivo, vonage, exotel",
    )
    public_url: str | None = Field(
        None,
        description="https://NAME[:PORT][/PATH] at which the networks reach this server; signatures are "
        "checked against this address, whatever address a request names",
    )
    signatures: bool = Field(
        True,
        description="false: requests need no signature. Only for a local run with a simulated caller: on an "
        "address of this machine, without a public_url, so that no other machine can send requests",
    )
    api_url: str = Field(
        "https://api.twilio.com", description="address of the REST interface, for example that of a region"
    )
    call_prefixes: tuple[CallPrefix, ...] = Field(
        (),
        description="prefixes of the numbers that may be called, such as +1555 or +49; a SIP address is "
        "given in full; empty: no outbound calls",
    )
    calls_per_minute: int = Field(6, ge=1, le=10_000, description="outbound calls; more get 429")
    calls_per_hour: int = Field(60, ge=1, le=100_000, description="outbound calls; more get 429")
    ring_s: int = Field(30, ge=5, le=600, description="time for which an outbound call rings")
    transfer_to: str | None = Field(
        None, pattern=REACHED, description="number that takes transferred calls; null: none"
    )
    person: str = Field("a colleague", description="description of that person in phrases for the caller")
    connecting: str = Field(
        "One moment, I am getting {person} on the line.",
        description="phrase for a caller who is being transferred",
    )
    nobody: str = Field(
        "Sorry, {person} is not available at the moment. Can I help you with something else?",
        description="phrase when the transferred call is not answered",
    )
    person_key: str = Field("0", pattern=r"^[0-9*#]?$", description="key that requests a person; empty: none")
    ends_on_goodbye: bool = Field(
        True, description="end the call when the caller says goodbye and nothing else"
    )
    mode: str | None = Field(
        None, pattern=r"^(cascade|duplex)$", description="mode of phone calls; null: the server's"
    )
    queue: PhoneQueueSettings | None = Field(
        PhoneQueueSettings(), description="queue for callers when no line is free; null: none"
    )
    busy: str = Field(
        "All lines are busy. Please call again later.",
        description="phrase for a caller when no line is free and the queue is full; empty: the caller "
        "hears the engaged tone",
    )

    number: str | None = Field(
        None,
        pattern=f"^{NUMBER.pattern}$",
        description="number that people call, such as +15550199; shown on pages and to people who are "
        "called from here",
    )
    remember_callers: CallerSettings | None = Field(
        None, description="resume the session of a caller's number; null: every call is a new session"
    )
    reconnect: ReconnectSettings | None = Field(
        ReconnectSettings(),
        description="connect a call of Twilio again when its stream is lost, in the same session; null: the "
        "call ends with its stream",
    )
    relay: RelaySettings | None = Field(
        None,
        description="serve calls of Twilio as text too, at /twilio_relay/voice: Twilio recognises and speaks "
        "(ConversationRelay); null: not",
    )
    call_codes: CallCodeSettings | None = Field(
        CallCodeSettings(),
        description="resume a session with a code that the caller's page or program requested; null: never",
    )

    def may_call(self, reached: str) -> bool:
        """Return whether a number or SIP address may be called."""
        if reached.startswith("sip:"):
            return reached in self.call_prefixes
        return any(reached.startswith(prefix) for prefix in self.call_prefixes)

    @field_validator("carriers")
    @classmethod
    def _are_known(cls, carriers: tuple[str, ...]) -> tuple[str, ...]:
        for name in carriers:
            if name not in CARRIERS:
                raise ValueError(f"{name!r} is not a known network (known: {', '.join(CARRIERS.names())})")
        if len(set(carriers)) < len(carriers):
            raise ValueError("a network is listed twice")
        return carriers

    @field_validator("public_url")
    @classmethod
    def _is_an_origin(cls, url: str | None) -> str | None:
        if url is None:
            return None
        parts = urlsplit(url)
        # Raises for an invalid port.
        _ = parts.port
        if parts.scheme not in ("https", "http") or not parts.hostname or parts.query or parts.fragment:
            raise ValueError("expected https://NAME, with a port and a path if there are any")
        return url.rstrip("/")

    @field_validator("connecting", "nobody")
    @classmethod
    def _names_nothing_else(cls, phrase: str) -> str:
        return validate_template(phrase, "person")

    @model_validator(mode="after")
    def _can_be_checked(self) -> "PhoneRoutesSettings":
        if self.public_url is not None and self.signatures and not self.public_url.startswith("https://"):
            raise ValueError("public_url: must be https://, because streams are opened over wss:// only")
        if self.relay is not None and self.relay.carrier not in self.carriers:
            raise ValueError(f"relay: needs {self.relay.carrier} among the carriers")
        return self
