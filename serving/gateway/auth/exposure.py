"""Check the exposure of a server: one that strangers can call does not start unless its settings allow it."""

import os

from parley.core.errors import ConfigError
from parley.serving.gateway.http.middleware import is_loopback
from parley.serving.gateway.settings import CALL_KEYS_ENV, ServerSettings


def exposed_by(settings: ServerSettings, *, public_url: str | None) -> str | None:
    """Return the setting by which other machines reach the server; None where there is none.

    A tunnel or proxy that no setting names cannot be detected here.
    """
    if public_url is not None:
        return "phone.public_url"
    if not is_loopback(settings.host):
        return f"server.host {settings.host}"
    for name in ("allowed_hosts", "trusted_proxies"):
        if getattr(settings, name):
            return f"server.{name}"
    return None


def describe_exposure(settings: ServerSettings, *, public_url: str | None) -> str:
    """Return a sentence for people about who may begin calls on this server."""
    if _has_keys(settings):
        return f"Calls and sessions need a key of {CALL_KEYS_ENV} or of a tenant, or a token of one."
    if exposed_by(settings, public_url=public_url) is not None:
        return "Open: anyone who reaches this server may begin calls, at the deployment's expense."
    return (
        "Calls need no key, and only this machine reaches the server. A tunnel or a proxy in front of it "
        "would let anyone in."
    )


def _has_keys(settings: ServerSettings) -> bool:
    tenants = () if settings.tenants is None else settings.tenants.named.values()
    variables = [CALL_KEYS_ENV, *(each.keys_env for each in tenants)]
    return any(os.environ.get(variable, "").strip(" ,") for variable in variables)


def check_exposure(settings: ServerSettings, *, public_url: str | None) -> None:
    """Check that a server which others can reach has client keys, or is open on purpose.

    Raises:
        ConfigError: neither; one line with the remedy.
    """
    exposed = exposed_by(settings, public_url=public_url)
    if exposed is None or settings.open or _has_keys(settings):
        return
    raise ConfigError(
        f"{exposed}: strangers can reach this server and begin calls at your expense. Set {CALL_KEYS_ENV} "
        "(create a key with: openssl rand -hex 24; see docs/how-to/operations.md), or set server.open: true "
        "to allow it"
    )
