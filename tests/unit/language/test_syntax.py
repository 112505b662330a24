"""Signs of an incomplete sentence."""

import pytest

from parley.language.cue_words import SyntaxSign
from parley.language.english.syntax import syntax_signs

WHOLE = (
    "what are your opening hours",
    "when do you open on sunday",
    "i lost my card yesterday",
    "my card was stolen",
    "if i lose my card what should i do",
    "to block the card please call me",
    "can you help me with my account",
)


@pytest.mark.parametrize(
    ("text", "sign"),
    [
        ("i would like another", SyntaxSign.MODIFIER),
        ("that is very", SyntaxSign.MODIFIER),
        ("i want", SyntaxSign.VERB),
        ("could you tell", SyntaxSign.VERB),
        ("if i lose my card", SyntaxSign.CLAUSE),
        ("well because my card was stolen", SyntaxSign.CLAUSE),
        ("when i call the branch", SyntaxSign.CLAUSE),
        ("the account of my daughter", SyntaxSign.NOUN_PHRASE),
        ("the account", SyntaxSign.NOUN_PHRASE),
    ],
)
def test_what_is_open_is_found(text: str, sign: SyntaxSign):
    assert sign in syntax_signs(text)
    # Case and punctuation come from the recogniser.
    assert syntax_signs(f"{text.capitalize()},") == syntax_signs(text)


@pytest.mark.parametrize("text", WHOLE)
def test_what_is_whole_has_no_sign(text: str):
    assert syntax_signs(text) == frozenset()


def test_without_words_and_in_a_short_answer_there_is_no_sign():
    assert syntax_signs("") == frozenset()
    assert syntax_signs("yes please") == frozenset()
    assert syntax_signs("on monday") == frozenset()
