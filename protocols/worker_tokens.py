"""What lets somebody speak to a worker: a signature of whoever placed the conversation. Pure.

``HMAC-SHA256(secret, worker, incarnation, session, epoch, expiry)``, each field with its length in front, so
that no two sets of fields are the same bytes. A token is for one process, one owner of one session and a few
seconds; whoever has it can be that owner, and nobody else.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from core.errors import PeerError
from protocols.facts import from_facts, to_facts

LEAST_SECRET_BYTES = 16
# Of a name or an id.
LONGEST = 200


@dataclass(frozen=True, slots=True)
class Claim:
    """What a token says.

    Attributes:
        worker: its name.
        incarnation: of its process.
        session_id: whose conversation; empty for whoever watches the worker.
        epoch: of the session.
        expires_s: Unix time.
    """

    worker: str
    incarnation: str
    session_id: str
    epoch: int
    expires_s: int

    def facts(self, token: str) -> dict[str, Any]:
        """The claim and its token, as the facts of a first message."""
        return to_facts(self) | {"token": token}


def claimed(facts: Mapping[str, Any]) -> tuple[Claim, str]:
    """What a first message claims, and its token.

    Raises:
        PeerError: it claims nothing that can be read.
    """
    claim, token = from_facts(Claim, facts), facts.get("token")
    texts = (claim.worker, claim.incarnation, claim.session_id)
    if not isinstance(token, str) or not all(len(each) <= LONGEST and each.isprintable() for each in texts):
        raise PeerError("a claim that cannot be read")
    return claim, token


def sign(secret: bytes, claim: Claim) -> str:
    """The token of a claim: hexadecimal.

    Raises:
        ValueError: the secret is too short to be one.
    """
    if len(secret) < LEAST_SECRET_BYTES:
        raise ValueError(f"a secret of {len(secret)} bytes; expected at least {LEAST_SECRET_BYTES}")
    fields = (claim.worker, claim.incarnation, claim.session_id, str(claim.epoch), str(claim.expires_s))
    message = b"".join(len(field.encode()).to_bytes(4) + field.encode() for field in fields)
    return hmac.new(secret, message, hashlib.sha256).hexdigest()


def is_signed(secret: bytes, claim: Claim, token: str, now_s: float) -> bool:
    """Whether the token is of this claim, and not too old."""
    return now_s < claim.expires_s and hmac.compare_digest(sign(secret, claim).encode(), token.encode())
