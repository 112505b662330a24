"""The rule by which a turn counts as heard."""

from parley.evals.phone.bad_line import Turn, quoted

TYPED = "On Saturdays they are open from ten until two."
SAME = "On Saturdays they are open from ten until two. On Sundays: no."
OTHER = "A replacement card costs five dollars."
UNKNOWN = "I don't know that one. I can tell you about cards."


def turn(heard_as: str, answer: str) -> Turn:
    return Turn("when are you open on saturday", heard_as, answer, TYPED)


def test_the_same_sentence_of_a_document_is_the_same_answer():
    assert quoted(TYPED) & quoted(SAME)
    assert not quoted(TYPED) & quoted(OTHER)
    assert quoted(UNKNOWN) == set()


def test_a_turn_is_heard_by_its_answer_and_not_by_its_words():
    assert turn("when are you on saturday", SAME).is_heard
    assert not turn("when are you open on saturday", OTHER).is_heard
    assert not turn("", "").is_heard


def test_at_least_the_words_of_the_clean_line_count_whatever_is_answered():
    clean = turn("are you open", SAME)
    assert turn("oh are you open", OTHER).is_as_good_as(clean)
    assert not turn("are you", OTHER).is_as_good_as(clean)
    assert turn("saturday", TYPED).is_as_good_as(clean)
