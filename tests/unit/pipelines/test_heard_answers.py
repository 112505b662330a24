"""Part of an answer that was heard, by the words that a client reports."""

import pytest

from parley.pipelines.text.heard_answers import split_heard

ANSWER = "Life is a complex set of choices. It costs five euros, and the garden is open."


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ("Life is a complex set of", "Life is a complex set of"),
        # Case and punctuation are the voice's own.
        ("life is, a complex SET OF choices", "Life is a complex set of choices."),
        # Only the last utterance is reported.
        ("It costs five", "Life is a complex set of choices. It costs five"),
        # The end of what was reported was not written so.
        ("Life is a complex sat of", "Life is a complex"),
        ("", ""),
        ("nothing of the kind", ""),
    ],
)
def test_the_answer_is_divided_after_the_words_that_were_heard(heard: str, said: str):
    found, rest = split_heard(ANSWER, heard)
    assert found == said and f"{found} {rest}".strip() == ANSWER


def test_an_answer_that_was_heard_whole_has_no_rest():
    assert split_heard(ANSWER, ANSWER) == (ANSWER, "")
