"""Vonage's call control objects (NCCO) and signed webhooks: what it is told, and how it is known. Pure.

A webhook brings a JSON Web Token: HMAC-SHA256 under the account's signature secret over its claims, one of
which is the SHA-256 of the posted JSON. The token is read here and by no library: one algorithm is allowed,
and nothing in the token chooses another.

Source: developer.vonage.com, "NCCO reference", "WebSockets" of the Voice API and "Signed webhooks".
"""

import base64
import binascii
import hashlib
import hmac
from typing import Any

import orjson

from protocols.twiml import MOST_SAID_CHARS

# The line is 8 kHz wherever it is a telephone.
CONTENT_TYPE = "audio/l16;rate=8000"
# Of a token, in both directions: clocks differ, and a recorded webhook is good for no longer.
TOLERANCE_S = 300
MOST_TOKEN_CHARS = 4_096


def connect(address: str, call_id: str) -> str:
    """Connect the call to a socket; when that is closed the call is over.

    Args:
        address: wss://.
        call_id: comes back in the first message of the socket, which names no call by itself.
    """
    endpoint = {
        "type": "websocket",
        "uri": address,
        "content-type": CONTENT_TYPE,
        "headers": {"call": call_id},
    }
    return _text([{"action": "connect", "endpoint": [endpoint]}])


def end(words: str = "") -> str:
    """Hang up, behind these words: a call whose actions are over is ended."""
    return _text([{"action": "talk", "text": words[:MOST_SAID_CHARS]}] if words else [])


def is_signed(secret: str, authorization: str, body: bytes, *, now_s: float) -> bool:
    """Return whether Vonage has sent this, and lately.

    Args:
        secret: the signature secret of the account.
        authorization: of the header.
        body: as it came.
        now_s: seconds of the epoch.
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
    """Return the claims of a token with a right signature; nothing for another one."""
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
    """The hash is of the JSON without spaces, which is what is posted, or what it is to be made of that."""
    forms = [body]
    try:
        forms.append(orjson.dumps(orjson.loads(body)))
    except ValueError:
        return False
    return any(hmac.compare_digest(hashlib.sha256(form).hexdigest(), given) for form in forms)


def _text(actions: list[dict[str, Any]]) -> str:
    return orjson.dumps(actions).decode()
