"""What a client may do on a server: the identity of the one who opened a call, and the grants that go with it.

Credentials are checked in ``serving.gateway``; the result travels with the call as a ``ClientIdentity``, so that
the layers below decide by grants and never by the kind of credential. A grant that is ``None`` sets no limit of
its own: the limits of the deployment hold for everyone.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Grants:
    """Permissions of one client.

    Attributes:
        surfaces: ids of the apps (``serving.gateway.apps``) that may be opened; None: every one that is enabled.
        instructions: the client may add instructions after the deployment's prompt. A call in which it does
            never has the deployment's tools.
        client_tools: the client may declare tools, which it runs itself.
        deployment_tools: names of the deployment's tools that the model may call for this client; None: all.
        sessions: ids of the sessions that may be read and continued; None: those that the owner has created.
        turns_per_minute: model requests of this owner, over all calls and typed turns.
        max_calls: concurrent calls of this owner.
        expires_s: Unix time after which the grants end; None: with the call.
    """

    surfaces: frozenset[str] | None = None
    instructions: bool = False
    client_tools: bool = False
    deployment_tools: frozenset[str] | None = None
    sessions: frozenset[str] | None = None
    turns_per_minute: int | None = None
    max_calls: int | None = None
    expires_s: float | None = None


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """The client of one call or request.

    Attributes:
        owner: identifies who pays and who owns new sessions: a digest of an application's key, optionally with
            the application's name for its user; empty for an anonymous client.
        address: network address of the client, normalised for counting; empty where there is none.
        grants: what the client may do.
        is_operator: the operator of the server, to whom no limit of a client applies.
    """

    owner: str = ""
    address: str = ""
    grants: Grants = Grants()
    is_operator: bool = False


ANONYMOUS = ClientIdentity()
