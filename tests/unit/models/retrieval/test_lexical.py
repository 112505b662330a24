import numpy as np

from parley.models.retrieval.lexical import Lexicon

LEXICON = Lexicon([["pump", "weight"], ["pump", "price"], ["pump"]])


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    assert LEXICON.weight("price") > LEXICON.weight("pump") > 0
    covered = LEXICON.covered(["pump", "price"])
    assert covered[1] > 0.999 and covered[0] == covered[2] < 0.5


def test_a_word_that_no_document_has_leaves_a_part_of_the_question_open() -> None:
    assert not LEXICON.knows("colour")
    assert max(LEXICON.covered(["pump", "colour"])) < 0.5


def test_a_question_without_terms_is_covered_by_nothing() -> None:
    assert np.array_equal(LEXICON.covered([]), np.zeros(3))
