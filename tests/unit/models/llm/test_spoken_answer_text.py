import pytest

from parley.language.words import spoken_list
from parley.models.llm.spoken_text import clauses


def test_pieces_join_to_the_text() -> None:
    text = (
        "From the guide: Call us, or write, when you like; we answer. Really! Is it 2.40 dollars? Yes, it is"
    )
    assert "".join(clauses(text)) == text


def test_pieces_are_clauses_and_sentences() -> None:
    assert clauses("From the guide: It is free, and it is quick. Yes.") == [
        "From the guide: ",
        "It is free, ",
        "and it is quick. ",
        "Yes.",
    ]


def test_a_short_piece_is_joined_to_the_next() -> None:
    assert clauses("Then, at nine, the doors open.") == ["Then, at nine, ", "the doors open."]


@pytest.mark.parametrize("text", ["", "   "])
def test_nothing_is_no_piece(text: str) -> None:
    assert clauses(text) == []


def test_lists_are_spoken() -> None:
    assert spoken_list([], last="or") == ""
    assert spoken_list(["a"], last="or") == "a"
    assert spoken_list(["a", "b"], last="or") == "a or b"
    assert spoken_list(["a", "b", "c"], last="and") == "a, b and c"
