import pytest

from parley.protocols.phone_numbers import is_attested, known_number, number_digest


@pytest.mark.parametrize(
    "said",
    [
        *("", "anonymous", "Restricted", "+266696687", "+7378742883", "+7378742833", "+2562533", "+8656696"),
        *("+86282452253", "+464", "sip:alice@example.org", "client:alice", "15550100", "+0155501000", "+1"),
        *("+1234567890123456", "+1555010x"),
    ],
)
def test_a_number_that_is_withheld_or_none_is_nobodys(said: str):
    assert known_number(said) is None


def test_a_number_is_the_same_however_it_is_written():
    assert known_number(" +1 (555) 010-0199 ") == "+15550100199"


@pytest.mark.parametrize(
    ("verstat", "vouched"),
    [
        ("TN-Validation-Passed-A", True),
        ("TN-Validation-Passed-A-Diverted", True),
        ("TN-Validation-Passed-B", False),
        ("TN-Validation-Failed-A", False),
        ("No-TN-Validation", False),
        ("", False),
    ],
)
def test_only_the_full_attestation_vouches_for_a_number(verstat: str, vouched: bool):
    assert is_attested(verstat) is vouched


def test_a_digest_is_of_the_key_the_caller_and_the_called():
    digests = {
        number_digest(key, caller, called)
        for key in (b"a", b"b")
        for caller in ("+1555010", "+15550101")
        for called in ("+15550199", "+15550198")
    }
    assert len(digests) == 8
