import pytest

from parley.language.english.terms import Names, is_negated, stem, terms, words_of

DOCUMENT = "The K200 shows E05 when a sensor is lost. The p50 is 40 ms."


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("cancelled", "cancel"),
        ("returns", "returned"),
        ("sundays", "Sunday"),
        ("weigh", "weight"),
        ("heavy", "weight"),
        ("cheap", "price"),
        ("costs", "price"),
        ("fees", "price"),
        ("stolen", "steal"),
        ("compacted", "compaction"),
    ],
)
def test_words_of_one_meaning_are_one_term(one: str, other: str) -> None:
    assert stem(one) == stem(other.lower())


def test_numbers_are_one_term_however_they_are_written() -> None:
    assert terms(words_of("thirty metres")) == terms(words_of("30 metres"))
    assert words_of("12,142 events, 40%") == ["12142", "events", "40", "percent"]


def test_one_is_a_number_only_where_it_counts() -> None:
    assert words_of("how do i get a new one") == "how do i get a new ones".split()
    assert words_of("it costs one dollar") == "it costs 1 dollar".split()


@pytest.mark.parametrize("said", ["E05", "e5", "e five", "e zero five", "E 05", "e-05", "ee five"])
def test_a_name_is_recognised_however_it_is_spoken(said: str) -> None:
    names = Names([DOCUMENT])
    assert names.of(names.joined(words_of(f"what does {said} mean"))) == {"e5"}


def test_a_name_that_no_document_has_is_still_a_name() -> None:
    names = Names([DOCUMENT])
    assert names.of(names.joined(words_of("what is e ninety nine"))) == {"e99"}
    assert names.of(names.joined(words_of("what is x9"))) == set()


def test_a_letter_may_be_written_as_it_is_called_only_where_that_is_a_name() -> None:
    names = Names([DOCUMENT])
    assert names.joined(words_of("the kay two hundred")) == ["the", "k200"]
    assert names.joined(words_of("are 200 enough")) == ["are", "200", "enough"]


def test_an_article_before_a_number_is_no_name() -> None:
    names = Names([DOCUMENT])
    assert names.of(names.joined(words_of("a 5 litre tank and i 2"))) == set()


def test_a_denial_is_recognised() -> None:
    assert is_negated("which pumps can't be used".split())
    assert not is_negated("which pumps can be used".split())
