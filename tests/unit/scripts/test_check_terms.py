"""Words that the glossary replaces, and where they are found."""

import pytest

from scripts.check_terms import GLOSSARY, classes, findings, replaced_words

TABLE = """# Glossary

| term | meaning |
|---|---|
| `dialect` | settings | not of the table |

## Words not to use

| word | where | use instead |
|---|---|---|
| `dialect` | classes, headings | client protocol |
| `ear`, `ears` | classes, settings | recogniser |
"""


def test_the_words_of_the_table_are_read_with_their_places():
    found = {each.word: each for each in replaced_words(TABLE)}
    assert found.keys() == {"dialect", "ear", "ears"}
    assert found["dialect"].places == {"classes", "headings"}
    assert found["ears"].instead == "recogniser"


def test_a_glossary_without_the_table_is_an_error():
    with pytest.raises(ValueError, match="no table"):
        replaced_words("# Glossary\n")


def test_an_unknown_place_is_an_error():
    with pytest.raises(ValueError, match="unknown place"):
        replaced_words("## Words not to use\n| `ear` | functions | recogniser |\n")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        ("classes", "EngineEars"),
        ("classes", "WSDialect"),
        ("settings", "ear_ms"),
        ("headings", "A dialect of its own"),
    ],
)
def test_a_word_is_found_as_a_part_of_a_name(place: str, name: str):
    [line] = findings(replaced_words(TABLE), {place: [name]})
    assert line.startswith(f"{place}: {name}: ")


@pytest.mark.parametrize(
    ("place", "name"),
    [
        # A part of another word.
        ("classes", "EarlyPeer"),
        ("classes", "SearchIndex"),
        # Another place.
        ("headings", "Ears of the server"),
        ("settings", "dialect"),
    ],
)
def test_other_words_and_places_are_left_alone(place: str, name: str):
    assert list(findings(replaced_words(TABLE), {place: [name]})) == []


def test_only_public_classes_count():
    source = "class Dialect: ...\nclass _Ears: ...\ndef ears(): ...\n"
    assert list(classes({"a.py": source})) == ["Dialect"]


def test_the_glossary_has_the_table():
    assert {"dialect", "surface", "telephone"} <= {
        each.word for each in replaced_words(GLOSSARY.read_text(encoding="utf-8"))
    }
