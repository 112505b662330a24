"""Plivo's XML and signatures: instructions for a call, and verification of its webhooks. Pure.

Signatures are of version 3. The signed text is the address as configured at Plivo, a dot, the form's fields
(each name with its value, sorted), another dot and a nonce. The signature is HMAC-SHA256 under the account's
auth token. A header may hold several signatures, of the account and of its parent. Fields in the query of the
address are sorted as well and stay in it.

Source: plivo.com/docs, "Audio Streaming" and "Signature validation"; ``signature_v3`` of Plivo's Python
library.
"""

import base64
import hashlib
import hmac
from urllib.parse import parse_qs, urlsplit, urlunsplit
from xml.etree import ElementTree

from parley.protocols import twiml
from parley.protocols.twilio_signature import Fields
from parley.protocols.twiml import document

MOST_SIGNATURES = 8
PLIVO = twiml.Verbs("Speak", "Wait")


def connect(address: str) -> str:
    """Return the document that connects the call to a media stream, both ways in mu-law.

    The call ends with its socket.
    """
    response = ElementTree.Element("Response")
    stream = ElementTree.SubElement(
        response,
        "Stream",
        bidirectional="true",
        # Otherwise Plivo continues with the elements after the stream at once: there are none, and it hangs
        # up.
        keepCallAlive="true",
        contentType="audio/x-mulaw;rate=8000",
    )
    stream.text = address
    return document(response)


def hold(words: str, pause_s: int, address: str) -> str:
    """Return the document that speaks to a waiting caller, pauses, and requests the next instructions."""
    return twiml.hold(words, pause_s, address, verbs=PLIVO)


def end(words: str = "") -> str:
    """Return the document that hangs up after these words."""
    return twiml.end(words, verbs=PLIVO)


def refuse(words: str) -> str:
    """Return the document that speaks and hangs up. Without words the caller hears a busy signal."""
    if words:
        return end(words)
    response = ElementTree.Element("Response")
    ElementTree.SubElement(response, "Hangup", reason="busy")
    return document(response)


def signature(token: str, address: str, fields: Fields, nonce: str) -> str:
    """Return the signature of a posted form, in base64."""
    parts = urlsplit(address)
    query = parse_qs(parts.query, keep_blank_values=True)
    pairs = "&".join(f"{name}={value}" for name in sorted(query) for value in sorted(query[name]))
    said = "".join(f"{name}{value}" for name in sorted(fields) for value in sorted(fields[name]))
    base = urlunsplit(parts._replace(query="", fragment=""))
    if pairs or said:
        base += f"?{pairs}" + ("." if pairs and said else "")
    digest = hmac.new(token.encode(), f"{base}{said}.{nonce}".encode(), hashlib.sha256).digest()
    return base64.b64encode(digest).decode("ascii")


def is_signed(token: str, address: str, fields: Fields, nonce: str, given: str) -> bool:
    """Return whether a holder of the token posted this form.

    Args:
        token: of the account.
        address: configured scheme and host, with the path and query of the request.
        fields: of the form.
        nonce, given: headers ``X-Plivo-Signature-V3-Nonce`` and ``X-Plivo-Signature-V3``.
    """
    if not nonce:
        return False
    expected = signature(token, address, fields, nonce).encode()
    found = False
    for each in given.split(",")[:MOST_SIGNATURES]:
        # All of them are compared, so that the time taken reveals nothing.
        found |= hmac.compare_digest(expected, each.strip().encode())
    return found
