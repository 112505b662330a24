"""Vonage's call control objects (NCCO) and signed webhooks. Pure.

A webhook carries a JSON Web Token: HMAC-SHA256 under the account's signature secret over its claims, one of
which is the SHA-256 of the posted JSON. The token is parsed here and not by a library: one algorithm is
allowed, and nothing in the token can choose another.

Source: developer.vonage.com, "NCCO reference", "WebSockets" of the Voice API and "Signed webhooks".
"""

import base64
import binascii
import hashlib
import hmac
from typing import Any

import orjson

from parley.protocols.twiml import MOST_SAID_CHARS

# Telephone lines have 8 kHz.
CONTENT_TYPE = "audio/l16;rate=8000"
# Tolerance for the age of a token, in both directions: clocks differ, and a recorded webhook expires.
TOLERANCE_S = 300
MOST_TOKEN_CHARS = 4_096


def connect(address: str, call_id: str) -> str:
    """Return the actions that connect the call to a socket. The call ends with the socket.

    Args:
        address: wss://.
        call_id: returned in the first message of the socket, which names no call otherwise.
    """
    endpoint = {
        "type": "websocket",
        "uri": address,
        "content-type": CONTENT_TYPE,
        "headers": {"call": call_id},
    }
    return _text([{"action": "connect", "endpoint": [endpoint]}])


def end(words: str = "") -> str:
    """Return the actions that hang up after these words: a call ends with its last action."""
    return _text([{"action": "talk", "text": words[:MOST_SAID_CHARS]}] if words else [])


def is_signed(secret: str, authorization: str, body: bytes, *, now_s: float) -> bool:
    """Return whether Vonage sent this request recently.

    Args:
        secret: signature secret of the account.
        authorization: the header.
        body: as received.
        now_s: Unix time.
    """
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or len(token) > MOST_TOKEN_CHARS:
        return False
    claims = _claims(secret, token.strip())
    issued_s = claims.get("iat")
    if not isinstance(issued_s, int | float) or abs(now_s - issued_s) > TOLERANCE_S:
        return False
    given = claims.get("payload_hash")
    return isinstance(given, str) and _is_hash(given.lower(), body)


def _claims(secret: str, token: str) -> dict[str, Any]:
    """Return the claims of a token with a correct signature; otherwise an empty dict."""
    signed, _, given = token.rpartition(".")
    header, _, payload = signed.partition(".")
    try:
        is_known = orjson.loads(_bytes(header)).get("alg") == "HS256"
        found = hmac.compare_digest(
            hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest(), _bytes(given)
        )
        claims = orjson.loads(_bytes(payload)) if is_known and found else {}
    except (binascii.Error, ValueError, AttributeError):
        return {}
    return claims if isinstance(claims, dict) else {}


def _bytes(text: str) -> bytes:
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _is_hash(given: str, body: bytes) -> bool:
    """Return whether the hash is that of the body as posted, or of its JSON without spaces."""
    forms = [body]
    try:
        forms.append(orjson.dumps(orjson.loads(body)))
    except ValueError:
        return False
    return any(hmac.compare_digest(hashlib.sha256(form).hexdigest(), given) for form in forms)


def _text(actions: list[dict[str, Any]]) -> str:
    return orjson.dumps(actions).decode()
