"""Tokens that admit a client to a worker."""

import dataclasses
import json

import pytest

from parley.core.errors import PeerError
from parley.protocols.worker_tokens import Claim, claimed, is_signed, sign

CLAIM = Claim("w", "i1", "session", 3, 1_000)
SECRET = b"sixteen bytes or more"


def test_a_token_is_of_its_claim_alone() -> None:
    token = sign(SECRET, CLAIM)
    assert is_signed(SECRET, CLAIM, token, 999.9)
    assert not is_signed(SECRET, CLAIM, token, 1_000.0)
    assert not is_signed(b"another secret of 16", CLAIM, token, 0)
    others = {"worker": "v", "incarnation": "i2", "session_id": "x", "epoch": 4, "expires_s": 9_999}
    for name, value in others.items():
        assert not is_signed(SECRET, dataclasses.replace(CLAIM, **{name: value}), token, 0)
    # No two sets of fields are the same bytes.
    moved = dataclasses.replace(CLAIM, worker="wi", incarnation="1")
    assert not is_signed(SECRET, moved, token, 0)
    assert not is_signed(SECRET, CLAIM, token + "ü", 0)


def test_a_secret_that_is_none_signs_nothing() -> None:
    with pytest.raises(ValueError, match="15 bytes"):
        sign(b"x" * 15, CLAIM)


def test_a_claim_crosses_the_wire() -> None:
    facts = json.loads(json.dumps(CLAIM.facts("token")))
    assert claimed(facts) == (CLAIM, "token")


@pytest.mark.parametrize(
    "change",
    [
        {"worker": 1},
        {"worker": "x" * 201},
        {"epoch": "3"},
        {"epoch": True},
        {"expires_s": 1.5},
        {"token": None},
    ],
)
def test_a_claim_that_is_none_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(PeerError):
        claimed(CLAIM.facts("token") | change)
