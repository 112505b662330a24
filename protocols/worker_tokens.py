"""Tokens that authorise access to a worker, signed by the process that placed the conversation. Pure.

A token is ``HMAC-SHA256(secret, worker, incarnation, session, epoch, expiry)``. Each field is preceded by its
length, so that no two sets of fields have the same bytes. A token is valid for one process, one owner of one
session and a few seconds. It is a bearer token: its holder acts as that owner.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parley.core.errors import PeerError
from parley.protocols.facts import from_facts, to_facts

LEAST_SECRET_BYTES = 16
# Maximum length of a name or an id.
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """Contents of a token.

    Attributes:
        worker: its name.
        incarnation: of its process.
        session_id: of the conversation; empty for a connection that watches the worker.
        epoch: of the session.
        expires_s: Unix time.
    """

    worker: str
    incarnation: str
    session_id: str
    epoch: int
    expires_s: int

    def facts(self, token: str) -> dict[str, Any]:
        """Return the claim and its token, as the facts of a first message."""
        return to_facts(self) | {"token": token}


def claimed(facts: Mapping[str, Any]) -> tuple[Claim, str]:
    """Return the claim of a first message, and its token.

    Raises:
        PeerError: no readable claim.
    """
    claim, token = from_facts(Claim, facts), facts.get("token")
    texts = (claim.worker, claim.incarnation, claim.session_id)
    if not isinstance(token, str) or not all(len(each) <= LONGEST and each.isprintable() for each in texts):
        raise PeerError("unreadable claim")
    return claim, token


def sign(secret: bytes, claim: Claim) -> str:
    """Return the token of a claim, in hexadecimal.

    Raises:
        ValueError: the secret is too short.
    """
    if len(secret) < LEAST_SECRET_BYTES:
        raise ValueError(f"a secret of {len(secret)} bytes; expected at least {LEAST_SECRET_BYTES}")
    fields = (claim.worker, claim.incarnation, claim.session_id, str(claim.epoch), str(claim.expires_s))
    message = b"".join(len(field.encode()).to_bytes(4) + field.encode() for field in fields)
    return hmac.new(secret, message, hashlib.sha256).hexdigest()


def is_signed(secret: bytes, claim: Claim, token: str, now_s: float) -> bool:
    """Return whether the token belongs to this claim and has not expired."""
    return now_s < claim.expires_s and hmac.compare_digest(sign(secret, claim).encode(), token.encode())
