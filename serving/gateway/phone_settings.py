"""Settings of telephone calls."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from core.phrases import checked_phrase
from core.strict_model import StrictModel
from protocols.phone_numbers import NUMBER
from serving.gateway.caller_settings import CallCodeSettings, CallerSettings
from serving.gateway.carriers import CARRIERS
from serving.gateway.phone_queue import PhoneQueueSettings

# A number, or a SIP address.
REACHED = r"^(\+[1-9]\d{4,14}|sip:[^\s@]{1,100}@[^\s@]{1,100})$"
CallPrefix = Annotated[str, Field(pattern=r"^(\+[1-9]\d{0,14}|sip:[^\s@]{1,100}@[^\s@]{1,100})$")]


class PhoneRoutesSettings(StrictModel):
    """Telephone calls of this server."""

    carriers: tuple[str, ...] = Field(
        ("twilio",),
        min_length=1,
        description="telephone networks that are served: twilio, telnyx, plivo, vonage, exotel",
    )
    public_url: str | None = Field(
        None,
        description="https://NAME[:PORT][/PATH] by which the networks reach this server; signatures are of "
        "this address, whatever a request says of itself",
    )
    signatures: bool = Field(
        True,
        description="false: requests need no signature; for a local run with a simulated caller alone, so "
        "only where nobody else can ask: on an address of this machine, without a public_url",
    )
    api_url: str = Field("https://api.twilio.com", description="of the REST interface; a region's, say")
    call_prefixes: tuple[CallPrefix, ...] = Field(
        (),
        description="numbers that may be called begin with one of these, as +1555 or +49; a SIP address is "
        "named whole; empty: no call is begun",
    )
    calls_per_minute: int = Field(6, ge=1, le=10_000, description="calls that are begun; more get 429")
    calls_per_hour: int = Field(60, ge=1, le=100_000, description="calls that are begun; more get 429")
    ring_s: int = Field(30, ge=5, le=600, description="a call that is begun rings so long")
    transfer_to: str | None = Field(
        None, pattern=REACHED, description="who takes calls that are passed on; null: nobody"
    )
    person: str = Field("a colleague", description="what this one is called to callers")
    connecting: str = Field(
        "One moment, I am getting {person} on the line.", description="said to a caller who is passed on"
    )
    nobody: str = Field(
        "Sorry, {person} is not available at the moment. Can I help you with something else?",
        description="said when nobody takes the call",
    )
    person_key: str = Field("0", pattern=r"^[0-9*#]?$", description="asks for a person; empty: none does")
    ends_on_goodbye: bool = Field(
        True, description="a caller who says goodbye and nothing else has ended the call"
    )
    mode: str | None = Field(None, pattern=r"^(cascade|duplex)$", description="null: the server's")
    queue: PhoneQueueSettings | None = Field(
        PhoneQueueSettings(), description="callers for whom there is no line wait for one; null: they do not"
    )
    busy: str = Field(
        "All lines are busy. Please call again later.",
        description="said to a caller for whom there is no line, and no place in the queue; empty: the line "
        "is engaged",
    )

    number: str | None = Field(
        None,
        pattern=f"^{NUMBER.pattern}$",
        description="that people call, as +15550199: for pages, and for those whom this side calls",
    )
    remember_callers: CallerSettings | None = Field(
        None, description="a caller's number goes on with its session; null: every call is a new one"
    )
    call_codes: CallCodeSettings | None = Field(
        CallCodeSettings(),
        description="a caller goes on with a session by a code that its page or program gets; null: never",
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
                raise ValueError(f"{name!r} is not known (known: {', '.join(CARRIERS.names())})")
        if len(set(carriers)) < len(carriers):
            raise ValueError("a network is named twice")
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
            raise ValueError("expected https://NAME, with a port and a path where there are any")
        return url.rstrip("/")

    @field_validator("connecting", "nobody")
    @classmethod
    def _names_nothing_else(cls, phrase: str) -> str:
        return checked_phrase(phrase, "person")

    @model_validator(mode="after")
    def _can_be_checked(self) -> "PhoneRoutesSettings":
        if self.public_url is not None and self.signatures and not self.public_url.startswith("https://"):
            raise ValueError("public_url: streams are opened by wss:// only, so it has to be https://")
        return self
