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

LEAST_SECRET_BYTES = 16
# Of a name or an id.
LONGEST = 200
_FIELDS = ("worker", "incarnation", "session_id", "epoch", "expires_s")


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
        return {
            "worker": self.worker,
            "incarnation": self.incarnation,
            "session_id": self.session_id,
            "epoch": self.epoch,
            "expires_s": self.expires_s,
            "token": token,
        }


def claimed(facts: Mapping[str, Any]) -> tuple[Claim, str]:
    """What a first message claims, and its token.

    Raises:
        PeerError: it claims nothing that can be read.
    """
    claim = Claim(*(facts.get(name) for name in _FIELDS))  # type: ignore[arg-type]
    texts, numbers = (claim.worker, claim.incarnation, claim.session_id), (claim.epoch, claim.expires_s)
    token = facts.get("token")
    are_texts = all(isinstance(text, str) and len(text) <= LONGEST and text.isprintable() for text in texts)
    if not isinstance(token, str) or not are_texts:
        raise PeerError("a claim that cannot be read")
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in numbers):
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
