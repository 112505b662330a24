"""Exotel's answer to a call, and how its requests are known. Pure.

Exotel signs nothing. Its Voicebot applet asks an HTTPS address for the socket of a call, and sends the name
and the password that stand in that address by HTTP's basic authentication (RFC 7617).

Source: developer.exotel.com, "Working with the Stream and Voicebot Applet".
"""

import base64
import binascii
import hmac

import orjson


def connect(address: str) -> str:
    """Return the answer that names the socket of a call."""
    return orjson.dumps({"url": address}).decode()


def is_known(user: str, password: str, authorization: str) -> bool:
    """Return whether a request brings the name and the password."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        shown = base64.b64decode(given.strip(), validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(shown, f"{user}:{password}".encode())
