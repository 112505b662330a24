"""Identity of the client of a call, and the grants that go with it.

Credentials are checked in ``serving.gateway``; the result travels with the call as a ``ClientIdentity``, so
that the layers below decide by grants and never by the kind of credential. A grant that is ``None`` sets no
limit of its own: the limits of the deployment hold for everyone.
"""

from dataclasses import dataclass
from enum import StrEnum

# Between the digest of a key and the name of a user in ``ClientIdentity.owner``.
USER_SEPARATOR = ":"
# Beginning of the owner that a browser without a credential is, by its cookie.
BROWSER_PREFIX = "browser."


class KeyScope(StrEnum):
    """Scope of a key: the kinds of requests that it permits."""

    TALK = "talk"
    """Begin and continue calls and sessions, type turns, report annotations, get codes for phone calls."""
    READ = "read"
    """Read sessions and their recordings."""
    OPERATE = "operate"
    """Delete and share sessions, comment on them, and remove their phone numbers."""
    REVEAL = "reveal"
    """Read words that redaction replaced, from the vault. Only a key that names this scope has it."""


@dataclass(frozen=True, slots=True)
class Grants:
    """Permissions of one client.

    Attributes:
        scopes: names of the scopes; None: all of them.
        surfaces: ids of the apps (``serving.gateway.admin.apps``) that may be opened; None: every enabled
            one.
        instructions: the client may add instructions after the deployment's prompt. A call in which it does,
            and a session with replies of such a call, never has the deployment's tools.
        client_tools: the client may declare tools, which it runs itself.
        client_mcp: the client may name MCP servers, to which this server makes requests.
        deployment_tools: names of the deployment's tools that the model may call for this client; None: all.
        sessions: ids of the sessions that may be read and continued; None: those that the owner has created.
        turns_per_minute: turns of this owner that a model answers, over all calls and typed turns. Further
            model requests within a turn, after tool results, are not counted.
        max_calls: concurrent calls of this owner.
        max_requests: total requests to a model, including those after tool results, of the token and of the
            tokens that renew it.
        budget: id under which ``max_requests`` is counted; empty without one.
        expires_s: Unix time after which the grants end; None: they end with the call.
    """

    scopes: frozenset[str] | None = None
    surfaces: frozenset[str] | None = None
    instructions: bool = False
    client_tools: bool = False
    client_mcp: bool = False
    deployment_tools: frozenset[str] | None = None
    sessions: frozenset[str] | None = None
    turns_per_minute: int | None = None
    max_calls: int | None = None
    max_requests: int | None = None
    budget: str = ""
    expires_s: float | None = None


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Client of one call or request.

    Attributes:
        owner: identifies the account that pays and owns new sessions: a digest of an application's key,
            optionally with the application's name for its user. Empty for an anonymous client.
        address: network address of the client, normalised for counting; empty where there is none.
        grants: permissions of the client.
        is_operator: true for the operator of the server, to whom no limit of a client applies.
        browser: digest of the cookie of an anonymous client, which owns the sessions that it creates. A
            client can obtain any number of cookies, so nothing is counted by it.
    """

    owner: str = ""
    address: str = ""
    grants: Grants = Grants()
    is_operator: bool = False
    browser: str = ""

    @property
    def application(self) -> str:
        """Digest of the key to whose account the client belongs; empty for an anonymous client."""
        return self.owner.partition(USER_SEPARATOR)[0]

    @property
    def is_application(self) -> bool:
        """True when the client has presented a key itself, and not a token of one of its users."""
        return bool(self.owner) and self.owner == self.application

    @property
    def session_owner(self) -> str | None:
        """Owner of the sessions that the client creates; None: the operator."""
        return self.owner or self.browser or None

    def owns(self, session_owner: str | None) -> bool:
        """Return whether a session of this owner belongs to the client.

        Sessions of an application's users belong to the application as well.
        """
        if not session_owner:
            return False
        own = session_owner in (self.owner, self.browser)
        return own or (self.is_application and session_owner.startswith(self.owner + USER_SEPARATOR))


def names_person(session_owner: str) -> bool:
    """Return whether an owner of sessions is a browser or one user, and not an application with its users."""
    return session_owner.startswith(BROWSER_PREFIX) or USER_SEPARATOR in session_owner


ANONYMOUS = ClientIdentity()
