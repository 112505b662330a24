"""TeXML and signatures of Telnyx: what it is told to do with a call, and how its webhooks are known. Pure.

TeXML has the verbs of TwiML for words, pauses and the end (``protocols.twiml``); a stream has to be asked
for both ways, and for its codec. A webhook is signed by Ed25519 over its time, a bar and its body, as it
was sent.

Source: developers.telnyx.com, "Stream" of TeXML and "Webhook fundamentals".
"""

import base64
import binascii
from xml.etree import ElementTree

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from core.errors import ConfigError
from protocols.twiml import document

# What Telnyx recommends: a webhook that somebody has recorded is good for so long.
TOLERANCE_S = 300


def connect(address: str) -> str:
    """Connect the call to a media stream, both ways in mu-law; when its socket is closed the call is over."""
    response = ElementTree.Element("Response")
    ElementTree.SubElement(
        ElementTree.SubElement(response, "Connect"),
        "Stream",
        url=address,
        bidirectionalMode="rtp",
        bidirectionalCodec="PCMU",
    )
    return document(response)


def public_key(text: str) -> Ed25519PublicKey:
    """Return the account's key, which is written in base64.

    Raises:
        ConfigError: it is none.
    """
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ConfigError("TELNYX_PUBLIC_KEY is not an Ed25519 public key in base64") from error


def is_signed(key: Ed25519PublicKey, signature: str, timestamp: str, body: bytes, *, now_s: float) -> bool:
    """Return whether Telnyx has sent this, and lately.

    Args:
        key: of the account.
        signature, timestamp: of the headers ``telnyx-signature-ed25519`` and ``telnyx-timestamp``.
        body: as it came.
        now_s: seconds of the epoch.
    """
    if not (timestamp.isascii() and timestamp.isdigit() and len(timestamp) <= 12):
        return False
    if abs(now_s - int(timestamp)) > TOLERANCE_S:
        return False
    try:
        key.verify(base64.b64decode(signature, validate=True), f"{timestamp}|".encode() + body)
    except (InvalidSignature, binascii.Error, ValueError):
        return False
    return True
