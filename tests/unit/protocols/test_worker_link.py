"""Messages of the worker link, and what lets somebody send them."""

import dataclasses
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.errors import PeerError
from protocols.worker_link import MOST_FACTS_BYTES, LinkMessage, Type, decode, encode
from protocols.worker_tokens import Claim, claimed, is_signed, sign

FACTS = st.dictionaries(
    st.text().filter(lambda name: name not in ("type", "number")),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(), lambda each: st.lists(each), max_leaves=5
    ),
    max_size=4,
)


@given(st.sampled_from(Type), st.integers(0, 2**40), FACTS, st.binary(max_size=200))
def test_what_was_sent_arrives(type_: Type, number: int, facts: dict[str, object], payload: bytes) -> None:
    message = LinkMessage(type_, number, facts, payload)
    sent = encode(message)
    assert decode(sent) == message
    assert isinstance(sent, bytes) is bool(payload)


@given(st.text() | st.binary())
def test_what_is_no_message_is_refused(data: str | bytes) -> None:
    with pytest.raises(PeerError):
        decode(data)


@pytest.mark.parametrize(
    "data",
    [
        '{"type": "prefill", "number": -1}',
        '{"type": "prefill", "number": true}',
        '{"type": "prefill", "number": "1"}',
        '{"type": "format", "number": 1}',
        '{"number": 1}',
        "[]",
        "null",
        "[" * 100_000,
        struct.pack("<I", 2**31) + b"{}",
        struct.pack("<I", 3) + b"{}",
        struct.pack("<I", MOST_FACTS_BYTES + 1) + b" " * (MOST_FACTS_BYTES + 1),
    ],
)
def test_a_message_that_claims_what_it_is_not_is_refused(data: str | bytes) -> None:
    with pytest.raises(PeerError):
        decode(data)


@pytest.mark.parametrize("facts", [{"type": "x"}, {"number": 2}, {"text": "x" * (MOST_FACTS_BYTES + 1)}])
def test_what_would_not_arrive_is_not_sent(facts: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        encode(LinkMessage(Type.PREPARE, 1, facts))


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
