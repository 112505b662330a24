"""Settings of the tenants of a deployment: their keys and their limits."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel

MOST_TENANTS = 200
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,39}$")]
# Limits of what is stored, which needs an owner that can be recognised.
OF_STORAGE = ("sessions", "storage_mb")


class TenantLimits(StrictModel):
    """Limits of one tenant over all processes. A limit that is null does not exist."""

    concurrent_calls: int | None = Field(None, ge=0, le=100_000, description="calls that run at a time")
    calls_per_hour: int | None = Field(None, ge=0, description="calls that begin in an hour of UTC")
    calls_per_day: int | None = Field(None, ge=0, description="calls that begin on a day of UTC")
    minutes_per_day: float | None = Field(None, ge=0, description="minutes of calls on a day")
    minutes_per_month: float | None = Field(None, ge=0, description="minutes of calls in a month")
    tokens_per_day: int | None = Field(
        None, ge=0, description="tokens that language models read and write on a day"
    )
    tokens_per_month: int | None = Field(None, ge=0, description="the same in a month")
    cost_per_day: float | None = Field(
        None, ge=0, description="known cost of calls on a day, in the currency of ``prices``"
    )
    cost_per_month: float | None = Field(None, ge=0, description="the same in a month")
    sessions: int | None = Field(None, ge=0, description="stored sessions")
    storage_mb: float | None = Field(
        None, ge=0, description="size of the events of its stored sessions, in megabytes"
    )

    def of_storage(self) -> list[str]:
        """Return the names of the limits of what is stored that are set."""
        return [name for name in OF_STORAGE if getattr(self, name) is not None]


class NamedTenant(StrictModel):
    """Tenant with keys of its own."""

    keys_env: str = Field(
        pattern=r"^[A-Z][A-Z0-9_]{0,99}$",
        description="variable of the environment with its keys, separated by commas; they need not be in "
        "PARLEY_CALL_KEYS",
    )
    limits: TenantLimits = Field(TenantLimits(), description="its limits")


class TenantsSettings(StrictModel):
    """Tenants, whose use is counted over all processes with one session store."""

    named: dict[Name, NamedTenant] = Field(
        default_factory=dict, max_length=MOST_TENANTS, description="tenants by name"
    )
    each: TenantLimits | None = Field(
        None,
        description="limits of each key of PARLEY_CALL_KEYS, which is then a tenant with the beginning of "
        "its digest as its name; null: they have none",
    )
    others: TenantLimits | None = Field(
        None,
        description="limits of all phone calls and clients without a key together, as the tenant ``others``; "
        "null: they have none",
    )
    at_limit: Literal["end", "finish"] = Field(
        "end",
        description="calls that run when the minutes, tokens or cost of their tenant are used up. end: after "
        "a goodbye; finish: when their caller leaves",
    )
    phrase: str = Field(
        "I am sorry, I have to end our call now. Goodbye.",
        max_length=250,
        description="last words of a call that ends so; empty: none",
    )

    @model_validator(mode="after")
    def _are_told_apart(self) -> "TenantsSettings":
        if "others" in self.named:
            raise ValueError("named: `others` is the tenant of clients without a key; choose another name")
        variables = [each.keys_env for each in self.named.values()]
        if len(set(variables)) < len(variables):
            raise ValueError("named: two tenants have one keys_env; give each a variable of its own")
        if self.others is not None and (wrong := self.others.of_storage()):
            raise ValueError(
                f"others: {wrong[0]} cannot be counted for clients without a key; set store.retention_days"
            )
        return self
