"""Detection of personal data: figures on held-out texts, and the decision about words."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.core.privacy import PersonalData, PrivacySettings
from parley.language import find_language
from parley.language.personal_data import MARKS, Redactor, WrittenPersonalData, has_card
from tests.processor_deadline import processor_deadline

GOLDEN = Path(__file__).parents[2] / "golden"
ALL = PrivacySettings(redact=tuple(PersonalData), names=("Ada Lovelace",))
CARDS = PrivacySettings(redact=("payment_card",))


def redactor(settings: PrivacySettings = ALL) -> Redactor:
    return Redactor(settings, find_language("en").personal)


def table(name: str) -> list[tuple[str, str, str]]:
    """Return kind, text and private part of each line."""
    lines = (GOLDEN / name).read_text().splitlines()
    rows = [line.split(" | ", 1) for line in lines if line and not line.startswith("#")]
    return [(kind, re.sub("[{}]", "", text), _private(text)) for kind, text in rows]


def _private(text: str) -> str:
    return re.sub("[{}]", "", "".join(re.findall("{.*}", text)))


def measured(name: str) -> tuple[Counter[str], list[str]]:
    """Return counts of hits and misses by kind, and the texts that were missed."""
    counts: Counter[str] = Counter()
    missed = []
    for kind, text, private in table(name):
        found = redactor().found(text, tuple(PersonalData))
        start = text.find(private) if private else 0
        hidden = [(each.start, each.end) for each in found]
        if not private:
            hit = not hidden
        else:
            hit = any(first <= start and start + len(private) <= end for first, end in hidden)
        counts[f"{kind}.{'hit' if hit else 'miss'}"] += 1
        if not hit:
            missed.append(f"{kind}: {text} -> {redactor().of_caller(text)}")
    return counts, missed


def test_figures_of_the_held_out_texts_are_those_that_the_documents_state():
    """The first figures on texts that the rules were not made with; docs/explanation/privacy.md has them."""
    counts, missed = measured("personal_data_report.txt")
    print(dict(sorted(counts.items())), *missed, sep="\n")
    assert sum(number for name, number in counts.items() if name.endswith("hit")) == 64
    assert counts["none.miss"] == 1
    assert counts["phone_number.miss"] == 1


def test_texts_with_which_the_rules_were_made_are_all_decided_as_marked():
    assert measured("personal_data_tuning.txt")[1] == []


@pytest.mark.parametrize(
    "number", ["4111111111111111", "378282246310005", "30569309025904", "6011111111111117"]
)
def test_numbers_of_cards_are_told_from_others_by_their_check_digit(number):
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert has_card([number])
    assert not has_card([wrong])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('{"card":"4242424242424242"}', '{"card":"[card]"}'),
        ('{"card":"4242 4242 4242 4242"}', '{"card":"[card]"}'),
        ("card:4242424242424242", "card:[card]"),
        ("Visa-4242424242424242", "Visa-[card]"),
        ("4242–4242–4242–4242", "[card]"),
        ("(415)555-2671", "([phone]"),
        ("tel:+493012345678", "tel:[phone]"),
        ("tel:+49 30 1234 5678", "tel:[phone]"),
        ('{"order":12345678}', '{"order":[number]}'),
        ("account=123456789012;", "account=[number];"),
    ],
)
def test_numbers_within_other_characters_are_hidden(text, wanted):
    assert redactor().of_caller(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "at:2026-11-28T10:30:00.000Z",
        "in the years 1999–2001",
        "it costs:$12345678",
        '{"lat":52.5200065999,"lon":13.404953999}',
        "host=192.168.100.200",
        "room:4119, floor:12",
    ],
)
def test_dates_amounts_and_places_within_other_characters_stay(text):
    assert redactor().of_caller(text) == text


def test_only_the_kinds_that_are_set_are_hidden():
    text = "call 415 555 0132 or pay with 4242 4242 4242 4242"
    assert redactor(CARDS).of_caller(text) == "call 415 555 0132 or pay with [card]"
    assert redactor(PrivacySettings()).of_caller(text) == text


def test_a_misheard_digit_does_not_show_a_card_that_was_announced():
    text = "my card number is four two four two four two four two four two four two four two four three"
    assert redactor(CARDS).of_caller(text) == "my card number is [card]"


def test_agent_says_its_own_addresses_unless_they_are_set():
    text = "write to help@example.com or pay with 4242424242424242"
    cautious = PrivacySettings(redact=("payment_card", "email"))
    assert redactor(cautious).of_agent(text) == "write to help@example.com or pay with [card]"
    strict = PrivacySettings(redact=("payment_card", "email"), redact_agent=("email",))
    assert redactor(strict).of_agent(text) == "write to [e-mail] or pay with 4242424242424242"


def test_a_language_without_rules_has_what_is_written_in_digits():
    rules = Redactor(ALL, WrittenPersonalData())
    assert rules.of_caller("meine Karte: 4242 4242 4242 4242.") == "meine Karte: [card]."
    assert rules.of_caller("ruf an: +49 30 123456, oder anna@example.de") == "ruf an: [phone], oder [e-mail]"
    assert rules.of_caller("am 28.11. um 10 Uhr") == "am 28.11. um 10 Uhr"


@pytest.mark.parametrize("given", [{"redact": ["name"]}, {"names": ["Ada"]}, {"redact": ["iban"]}])
def test_settings_that_cannot_be_kept_are_refused(given):
    with pytest.raises(ValidationError):
        PrivacySettings(**given)


def test_marks_are_single_words():
    assert all(len(mark.split()) == 1 for mark in MARKS.values())


@pytest.mark.parametrize(
    "unit",
    ["at dot ", "a", "1234567 a ", "4242-", "a@b", "4242424242424242 on ", "a.", "card:4242 ", "+4 ", "(1)"],
)
def test_time_is_linear_in_the_length_of_a_text(unit):
    with processor_deadline():
        redactor().of_caller(unit * (80_000 // len(unit)))


_FRAGMENTS = (
    "my email is john dot smith at example dot com four two double three oh plus +49 4242 4242424242424242 , "
    ". a@b.co @ at dot number is [card] [phone] [number] [e-mail] x1 100 000 12-34 forty"
).split()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(_FRAGMENTS), min_size=1, max_size=14))
def test_what_is_redacted_twice_is_as_it_was(words: list[str]):
    once = redactor().of_caller(" ".join(words))
    assert redactor().of_caller(once) == once


def test_a_mark_is_no_cue_for_the_number_after_it():
    assert redactor().of_caller("Sorry, 12345678 is 1234567 now.") == "Sorry, [number] is 1234567 now."
