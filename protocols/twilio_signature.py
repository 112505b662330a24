"""Twilio's signatures of webhooks and of the upgrades of media streams. Pure.

The signed text is the address as configured at Twilio, followed by the form's fields: sorted by name, each
name and value, without separators. The key is the account's auth token, and the hash SHA-1. A shared key has
its own secret and SHA-256, which ``X-Twilio-Webhooks-Signature-Settings`` names. The address holds the hash
of a body that is not a form (``bodySHA256``).

Twilio does not always sign the address as it was configured. The default port of the scheme may be present or
not, any other port is left out of the addresses of voice webhooks, and the path may end with a slash. All
these forms are tried; none of them is the address of another server. The address is the configured one, never
taken from a client's headers.

Source: twilio.com/docs/usage/security, and ``request_validator`` of Twilio's own Python library.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from enum import Enum
from urllib.parse import parse_qs, urlsplit, urlunsplit

PORTS: Mapping[str, int] = {"https": 443, "wss": 443, "http": 80, "ws": 80}
# Fields of a form: name to values, in any order.
Fields = Mapping[str, Sequence[str]]


class Algorithm(Enum):
    """Algorithm of a signature."""

    SHA1 = "HMAC_SHA1"
    SHA256 = "HMAC_SHA256"


_HASHES = {Algorithm.SHA1: hashlib.sha1, Algorithm.SHA256: hashlib.sha256}


def algorithm_of(settings: str) -> Algorithm | None:
    """Return the algorithm of the settings header: SHA-1 where it names none, None for an unknown one."""
    for part in settings.split(","):
        name, _, value = part.partition("=")
        if name.strip() == "algorithm" and value.strip():
            return next((each for each in Algorithm if each.value == value.strip().upper()), None)
    return Algorithm.SHA1


def signature(secret: str, address: str, fields: Fields, algorithm: Algorithm = Algorithm.SHA1) -> str:
    """Return the signature of a request, in base64."""
    text = address + "".join(
        f"{name}{value}" for name in sorted(fields) for value in sorted(set(fields[name]))
    )
    digest = hmac.new(secret.encode(), text.encode(), _HASHES[algorithm]).digest()
    return base64.b64encode(digest).decode("ascii")


def is_signed(
    secret: str,
    address: str,
    fields: Fields,
    given: str,
    *,
    algorithm: Algorithm = Algorithm.SHA1,
    body: bytes | None = None,
) -> bool:
    """Return whether a holder of the secret sent this request.

    Args:
        secret: auth token, or that of the shared key.
        address: configured scheme and host, with the path and query of the request.
        fields: of a form; empty for an upgrade.
        given: the header.
        algorithm: as the settings header names it.
        body: of a request that is not a form; its hash must be in the address.
    """
    if body is not None:
        hashes = parse_qs(urlsplit(address).query).get("bodySHA256", [""])
        if not hmac.compare_digest(hashes[0].encode(), hashlib.sha256(body).hexdigest().encode()):
            return False
    found = False
    for form in forms(address):
        # All of them are compared, so that the time taken reveals nothing.
        found |= hmac.compare_digest(signature(secret, form, fields, algorithm).encode(), given.encode())
    return found


def forms(address: str) -> tuple[str, ...]:
    """Return an address with and without its port or the scheme's, and with and without a final slash."""
    parts = urlsplit(address)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    usual = PORTS.get(parts.scheme)
    hosts = [parts.netloc]
    if parts.port is None and usual is not None:
        hosts.append(f"{host}:{usual}")
    else:
        hosts.append(host)
    paths = [parts.path, parts.path[:-1] if parts.path.endswith("/") else f"{parts.path}/"]
    return tuple(urlunsplit(parts._replace(netloc=netloc, path=path)) for netloc in hosts for path in paths)
