"""Settings of the grants of clients: defaults for each kind of credential."""

from typing import Annotated, Any

from pydantic import Field

from parley.core.grants import Grants
from parley.core.strict_model import StrictModel

# Settings load nothing of the server, so the apps of ``serving.gateway.admin.apps`` are not imported.
Names = tuple[str, ...]
HOST_PATTERN = r"^[A-Za-z0-9._-]+:[0-9]{1,5}$"


class GrantSettings(StrictModel):
    """Grants of one kind of client (``core.grants``)."""

    surfaces: Names | None = Field(
        None,
        description="ids of the apps that may be opened (docs/how-to/operations.md); null: all enabled ones",
    )
    instructions: bool = Field(
        False,
        description="the client may add instructions after the deployment's prompt. A call with such "
        "instructions, and its session from then on, never has the deployment's tools",
    )
    client_tools: bool = Field(False, description="the client may declare tools, which it runs itself")
    client_mcp: bool = Field(
        False,
        description="the client may name MCP servers by OpenAI's realtime protocol. This server makes "
        "requests to their addresses, which have to be public ones (mcp_hosts permits others)",
    )
    deployment_tools: Names | None = Field(
        None, description="tools of the deployment that the model may call for the client; null: all"
    )
    turns_per_minute: int = Field(
        240,
        ge=1,
        le=1_000_000,
        description="turns that a model answers, a quarter of them at once. Further model requests within a "
        "turn, after tool results, are not counted",
    )
    max_calls: int | None = Field(None, ge=1, le=10_000, description="concurrent calls")

    def grants(self, **changed: Any) -> Grants:
        """Return the grants of these settings, with some changed."""
        given: dict[str, Any] = {
            "surfaces": None if self.surfaces is None else frozenset(self.surfaces),
            "instructions": self.instructions,
            "client_tools": self.client_tools,
            "client_mcp": self.client_mcp,
            "deployment_tools": None if self.deployment_tools is None else frozenset(self.deployment_tools),
            "turns_per_minute": self.turns_per_minute,
            "max_calls": self.max_calls,
        }
        return Grants(**{**given, **changed})


class ClientsSettings(StrictModel):
    """Grants by the kind of credential."""

    anonymous: GrantSettings = Field(
        GrantSettings(),
        description="clients without a credential, counted by address; max_calls null: three quarters of "
        "the lines, so that one address never holds all of them",
    )
    key: GrantSettings = Field(
        GrantSettings(turns_per_minute=2_400),
        description="clients with a key of PARLEY_CALL_KEYS; the users of a key are counted with it; "
        "max_calls null: every line",
    )
    user: GrantSettings = Field(
        GrantSettings(turns_per_minute=60),
        description="clients with a token issued for a key, unless POST /api/token sets other values; never "
        "more than the key",
    )
    mcp_hosts: tuple[Annotated[str, Field(pattern=HOST_PATTERN)], ...] = Field(
        (),
        description="HOST:PORT of MCP servers that a client with client_mcp may name although their "
        "addresses are not public, also by http",
    )
    key_sessions_per_minute: int = Field(
        1_200,
        ge=1,
        le=1_000_000,
        description="new sessions of one key; clients without a key have sessions_per_minute",
    )
