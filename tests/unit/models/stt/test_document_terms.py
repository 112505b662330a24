"""Terms of a deployment's documents."""

from pathlib import Path

import pytest

from parley.language import find_language
from parley.models.stt.document_terms import MOST_BYTES, document_terms, terms_of

ENGLISH = find_language()


def terms(*texts: str) -> tuple[str, ...]:
    return terms_of(texts, ENGLISH, most=100)


def test_content_words_and_pairs_of_them_are_terms():
    found = terms("A standing order moves money to another account.")
    assert {"standing", "order", "standing order", "money", "account", "order moves"} <= set(found)
    assert not {"a", "to", "order money"} & set(found)


def test_a_mark_or_a_little_word_ends_a_phrase():
    found = terms("Fees: cards, funds and savings")
    assert {"cards", "funds", "savings"} <= set(found)
    assert not any(" " in term for term in found)


def test_names_keep_their_capitals_and_beginnings_of_sentences_do_not():
    found = terms("Statements of Northwind arrive monthly.", "Read the statements of your IBAN.")
    assert {"statements", "Northwind", "IBAN"} <= set(found)


def test_questions_denials_and_numbers_are_no_terms():
    found = terms("Which card cannot be used for fifteen days without signing?")
    assert {"card", "signing"} <= set(found)
    assert not {"which", "cannot", "fifteen", "without"} & {term.lower() for term in found}


@pytest.mark.parametrize(
    ("word", "fixes"),
    [("not", True), ("cannot", True), ("which", True), ("fifteen", True), ("card", False), ("the", False)],
)
def test_denials_questions_and_numbers_fix_the_meaning(word: str, fixes: bool):
    assert ENGLISH.fixes_meaning(word) is fixes


def test_the_most_frequent_terms_are_kept():
    assert terms_of(["card. card. card. fund"], ENGLISH, most=1) == ("card",)


def test_documents_are_read_and_a_broken_one_is_left_out(tmp_path: Path):
    (tmp_path / "a.md").write_text("# Cards\n\n**Replacement** cards arrive by courier.\n")
    (tmp_path / "b.html").write_text("<h1>Loans</h1><p>A mortgage needs a guarantor.</p>")
    (tmp_path / "c.txt").write_bytes(b"\xff\xfe not text \xff")
    (tmp_path / "d.pdf").write_bytes(b"not read at all")
    found = {term.lower() for term in document_terms(tmp_path, ENGLISH, most=100)}
    assert {"replacement cards", "courier", "mortgage", "guarantor"} <= found
    assert not {"text", "read"} & found


def test_a_file_that_is_too_long_is_left_out(tmp_path: Path):
    (tmp_path / "a.txt").write_text("mortgage " * (MOST_BYTES // 8))
    (tmp_path / "b.md").write_text("A courier brings it.\n")
    assert document_terms(tmp_path, ENGLISH, most=100) == ("brings", "courier", "courier brings")


def test_a_folder_without_documents_has_no_terms(tmp_path: Path):
    assert document_terms(tmp_path, ENGLISH, most=100) == ()
