"""Exotel's answer to a call, and the authentication of its requests. Pure.

Exotel signs nothing. Its Voicebot applet requests the socket of a call from an HTTPS address. It sends the
user name and the password of that address by HTTP basic authentication (RFC 7617).

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
    """Return whether a request carries the user name and the password."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "basic":
        return False
    try:
        shown = base64.b64decode(given.strip(), validate=True)
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(shown, f"{user}:{password}".encode())
