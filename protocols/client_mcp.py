"""MCP servers that a client brings along: what it declares, and what happens with them.

This server connects to them and calls their tools. The values in headers are secrets, and an address may
contain one. Neither is part of a representation, so that no log or traceback shows it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from parley.core.usage import Usage

# Ports of addresses that name none.
PORTS = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class McpToolFilter:
    """Choice among the tools of a server.

    Attributes:
        names: of the tools; None: any.
        is_read_only: what the server says of a tool, that it changes nothing; None: either.
    """

    names: frozenset[str] | None = None
    is_read_only: bool | None = None

    def matches(self, name: str, *, is_read_only: bool) -> bool:
        """Return whether a tool is chosen."""
        if self.names is not None and name not in self.names:
            return False
        return self.is_read_only is None or self.is_read_only == is_read_only


@dataclass(frozen=True, slots=True)
class McpApprovalRules:
    """Rules of which calls need the client's approval: all those that no rule exempts.

    Attributes:
        always: tools that need it, also where ``never`` names them.
        never: tools that do not.
    """

    always: McpToolFilter | None = None
    never: McpToolFilter | None = None

    def apply(self, name: str, *, is_read_only: bool) -> bool:
        """Return whether a call of a tool needs approval."""
        if self.always is not None and self.always.matches(name, is_read_only=is_read_only):
            return True
        return self.never is None or not self.never.matches(name, is_read_only=is_read_only)


@dataclass(frozen=True, slots=True)
class McpDeclaration:
    """MCP server that a client has declared.

    Attributes:
        label: the client's name for it.
        url: address, for streamable HTTP.
        headers: of each request; their values are secrets.
        description: of the server, for the model.
        allowed: tools that are offered; None: all.
        approval: rules of approval.
    """

    label: str
    url: str = field(repr=False)
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    description: str = ""
    allowed: McpToolFilter | None = None
    approval: McpApprovalRules = McpApprovalRules()

    @property
    def scheme(self) -> str:
        """Scheme of the address."""
        return urlsplit(self.url).scheme

    @property
    def host(self) -> str:
        """Host of the address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port of the address."""
        return urlsplit(self.url).port or PORTS[self.scheme]


@dataclass(frozen=True, slots=True)
class McpApproval:
    """Answer of a client to a request for approval.

    Attributes:
        approval_id: of the request.
        is_approved: the call may be made.
        reason: of the client; empty: none.
    """

    approval_id: str
    is_approved: bool
    reason: str = ""


# Happenings.


@dataclass(frozen=True, slots=True)
class McpListingBegan:
    """The tools of a client's server are being listed.

    Attributes:
        listing_id: unique id.
        label: of the server.
    """

    listing_id: str
    label: str


@dataclass(frozen=True, slots=True)
class McpListed:
    """The tools of a client's server are known and offered to the model.

    Attributes:
        listing_id: of the listing.
        tools: name, description, schema and hints of each, in the words of the Model Context Protocol.
        left_out: why tools of the server are not among them; empty: none is missing.
    """

    listing_id: str
    tools: tuple[Mapping[str, Any], ...]
    left_out: str = ""


@dataclass(frozen=True, slots=True)
class McpListingFailed:
    """A client's server cannot be used.

    Attributes:
        listing_id: of the listing.
        reason: for the client.
    """

    listing_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class McpCallBegan:
    """The model calls a tool of a client's server.

    Attributes:
        call_id: unique id.
        label: of the server.
        name: of the tool, at its server.
        arguments: as JSON.
        approval_id: id under which the client's approval is requested; empty where it is not needed.
        usage: tokens of the request, where it has no words of its own; None: not known.
    """

    call_id: str
    label: str
    name: str
    arguments: str
    approval_id: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class McpCallRuns:
    """The call is made now, after an approval where it needs one."""

    call_id: str


@dataclass(frozen=True, slots=True)
class McpFault:
    """Failure of a call.

    Attributes:
        message: for the client.
        http_status: with which the server answered; None: it is not one of HTTP.
        rpc_code: with which the server answered; None: it is not one of the protocol.
    """

    message: str
    http_status: int | None = None
    rpc_code: int | None = None


@dataclass(frozen=True, slots=True)
class McpCallEnded:
    """The call is over, or it was not approved.

    Attributes:
        call_id: of the call.
        output: of the tool, as text.
        fault: why there is no output; None: there is.
    """

    call_id: str
    output: str = ""
    fault: McpFault | None = None


McpHappening = McpListingBegan | McpListed | McpListingFailed | McpCallBegan | McpCallRuns | McpCallEnded
