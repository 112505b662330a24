"""TeXML and signatures of Telnyx: instructions for a call, and verification of its webhooks. Pure.

TeXML has the verbs of TwiML for words, pauses and the end (``protocols.twiml``). A stream must be requested
explicitly for both directions, and with its codec. A webhook is signed by Ed25519 over its timestamp, a bar
and its body as sent.

Source: developers.telnyx.com, "Stream" of TeXML and "Webhook fundamentals".
"""

import base64
import binascii
from xml.etree import ElementTree

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from parley.core.errors import ConfigError
from parley.protocols.twiml import document

# As Telnyx recommends. A recorded webhook can be replayed for this long.
TOLERANCE_S = 300


def connect(address: str) -> str:
    """Return the document that connects the call to a media stream, both ways in mu-law.

    The call ends with its socket.
    """
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
    """Return the account's key from base64.

    Raises:
        ConfigError: not such a key.
    """
    try:
        return Ed25519PublicKey.from_public_bytes(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ConfigError("TELNYX_PUBLIC_KEY is not an Ed25519 public key in base64") from error


def is_signed(key: Ed25519PublicKey, signature: str, timestamp: str, body: bytes, *, now_s: float) -> bool:
    """Return whether Telnyx sent this request recently.

    Args:
        key: of the account.
        signature, timestamp: headers ``telnyx-signature-ed25519`` and ``telnyx-timestamp``.
        body: as received.
        now_s: Unix time.
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
