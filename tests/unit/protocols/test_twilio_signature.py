"""Signatures: those of Twilio's own library are accepted, and no others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from twilio.request_validator import RequestValidator

from parley.protocols.twilio_signature import Algorithm, algorithm_of, forms, is_signed, signature

TOKEN = "12345678901234567890123456789012"
ADDRESS = "https://talk.example.org/twilio/voice"
FIELDS = {"CallSid": ["CA1"], "From": ["+15550100"], "To": ["+15550199"], "Digits": [""]}


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_what_twilio_signs_is_signed(algorithm: Algorithm) -> None:
    given_ = RequestValidator(TOKEN).compute_signature(
        ADDRESS, {name: values[0] for name, values in FIELDS.items()}, algorithm.value
    )
    assert is_signed(TOKEN, ADDRESS, FIELDS, given_, algorithm=algorithm)
    assert not is_signed("another", ADDRESS, FIELDS, given_, algorithm=algorithm)
    assert not is_signed(TOKEN, ADDRESS + "s", FIELDS, given_, algorithm=algorithm)
    assert not is_signed(TOKEN, ADDRESS, FIELDS | {"From": ["+15550101"]}, given_, algorithm=algorithm)
    assert not is_signed(TOKEN, ADDRESS, FIELDS | {"More": ["1"]}, given_, algorithm=algorithm)
    other = next(each for each in Algorithm if each is not algorithm)
    assert not is_signed(TOKEN, ADDRESS, FIELDS, given_, algorithm=other)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.text(max_size=8), max_size=6))
def test_any_form_is_signed_as_twilio_signs_it(fields: dict[str, str]) -> None:
    assert signature(TOKEN, ADDRESS, {name: [value] for name, value in fields.items()}) == (
        RequestValidator(TOKEN).compute_signature(ADDRESS, fields)
    )


@pytest.mark.parametrize(
    "address",
    [
        "wss://talk.example.org/twilio/media/abc",
        "wss://talk.example.org:443/twilio/media/abc",
        "wss://talk.example.org/twilio/media/abc/",
        "wss://talk.example.org:443/twilio/media/abc/",
    ],
)
def test_the_port_of_the_scheme_and_a_slash_make_no_other_address(address: str) -> None:
    ours = "wss://talk.example.org/twilio/media/abc"
    assert is_signed(TOKEN, ours, {}, signature(TOKEN, address, {}))


@pytest.mark.parametrize(
    "address",
    [
        "https://talk.example.org/twilio/media/abc",
        "wss://talk.example.org:8443/twilio/media/abc",
        "wss://evil.example.org/twilio/media/abc",
        "wss://talk.example.org/twilio/media/abd",
        "wss://talk.example.org/twilio/media/abc?x=1",
    ],
)
def test_another_address_is_another(address: str) -> None:
    assert not is_signed(TOKEN, "wss://talk.example.org/twilio/media/abc", {}, signature(TOKEN, address, {}))


def test_forms_of_addresses_with_brackets_and_without_a_path() -> None:
    assert "wss://[::1]:443/" in forms("wss://[::1]")
    assert "http://localhost/x" in forms("http://localhost:80/x")


def test_a_body_is_signed_by_its_hash_in_the_address() -> None:
    body = b'{"StreamEvent": "stream-started"}'
    address = f"{ADDRESS}?bodySHA256={RequestValidator(TOKEN).compute_hash(body.decode())}"
    given_ = RequestValidator(TOKEN).compute_signature(address, {})
    assert is_signed(TOKEN, address, {}, given_, body=body)
    assert not is_signed(TOKEN, address, {}, given_, body=body + b" ")
    plain = RequestValidator(TOKEN).compute_signature(ADDRESS, {})
    assert not is_signed(TOKEN, ADDRESS, {}, plain, body=body)


def test_which_algorithm_a_header_names() -> None:
    assert algorithm_of("") is Algorithm.SHA1
    assert algorithm_of("key=webhooks_1,algorithm=HMAC_SHA256") is Algorithm.SHA256
    assert algorithm_of("key=webhooks_1, algorithm=hmac_sha1") is Algorithm.SHA1
    assert algorithm_of("key=webhooks_1,algorithm=HMAC_MD5") is None


def test_webhooks_to_another_port_are_signed_without_it() -> None:
    ours = "https://talk.example.org:8443/twilio/voice"
    for signed in (ours, ADDRESS):
        assert is_signed(TOKEN, ours, FIELDS, signature(TOKEN, signed, FIELDS))
    assert not is_signed(TOKEN, ours, FIELDS, signature(TOKEN, ours.replace("8443", "8444"), FIELDS))
    assert not is_signed(TOKEN, ADDRESS, FIELDS, signature(TOKEN, ours, FIELDS))
