"""Signatures of telephone carriers in the cases that their webhooks rarely show."""

import base64
import hashlib
import hmac
import time

import pytest

from parley.protocols import exotel, plivo, texml, vonage
from tests.carriers import TELNYX_KEY, VONAGE_SECRET, Vonage

NONCE = "12345"


def signed(text: str) -> str:
    return base64.b64encode(hmac.new(b"token", text.encode(), hashlib.sha256).digest()).decode()


@pytest.mark.parametrize(
    ("address", "fields", "text"),
    [
        ("https://a.example/plivo/voice", {}, "https://a.example/plivo/voice"),
        ("https://a.example/v", {"B": ["2"], "A": ["1"]}, "https://a.example/v?A1B2"),
        ("https://a.example/v?y=2&x=1", {}, "https://a.example/v?x=1&y=2"),
        ("https://a.example/v?y=2&x=1", {"A": ["b", "a"]}, "https://a.example/v?x=1&y=2.AaAb"),
    ],
)
def test_plivo_signs_the_address_the_sorted_query_and_the_sorted_form(
    address: str, fields: dict[str, list[str]], text: str
):
    given = signed(f"{text}.{NONCE}")
    assert plivo.is_signed("token", address, fields, NONCE, given)
    assert plivo.is_signed("token", address, fields, NONCE, f"other, {given}")
    assert not plivo.is_signed("token", address, fields, "", given)
    assert not plivo.is_signed("another", address, fields, NONCE, given)
    assert not plivo.is_signed("token", address, {**fields, "C": ["3"]}, NONCE, given)


def test_vonage_hashes_the_json_without_spaces_however_it_is_posted():
    now_s = time.time()
    compact = b'{"from":"15550100","uuid":"u"}'
    claims = {"iat": int(now_s), "payload_hash": hashlib.sha256(compact).hexdigest()}
    bearer = f"Bearer {Vonage.token(claims)}"
    assert vonage.is_signed(VONAGE_SECRET, bearer, compact, now_s=now_s)
    assert vonage.is_signed(VONAGE_SECRET, bearer, b'{"from": "15550100", "uuid": "u"}', now_s=now_s)
    assert not vonage.is_signed(VONAGE_SECRET, bearer, b'{"from": "15550101", "uuid": "u"}', now_s=now_s)
    assert not vonage.is_signed(VONAGE_SECRET, bearer, b"no JSON", now_s=now_s)


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c.d", "....", "\u00e9.\u00e9.\u00e9", "x" * 5_000])
def test_what_is_no_token_is_refused(token: str):
    assert not vonage.is_signed(VONAGE_SECRET, f"Bearer {token}", b"{}", now_s=0.0)


@pytest.mark.parametrize("timestamp", ["", "-1", "1e3", "\u0661", "9" * 20])
def test_what_is_no_time_is_refused(timestamp: str):
    signature = base64.b64encode(TELNYX_KEY.sign(f"{timestamp}|".encode())).decode()
    assert not texml.is_signed(TELNYX_KEY.public_key(), signature, timestamp, b"", now_s=0.0)


def test_a_name_and_a_password_are_compared_whole():
    known = "Basic " + base64.b64encode(b"user:pass:word").decode()
    assert exotel.is_known("user", "pass:word", known)
    assert not exotel.is_known("user", "pass", known) and not exotel.is_known("user:pass", "word!", known)
