"""The check of prose, on small modules."""

from pathlib import Path

import pytest

from scripts.check_prose import Passage, passages


def read(folder: Path, text: str) -> list[Passage]:
    path = folder / "module.py"
    path.write_text(text)
    return passages([path])


@pytest.mark.parametrize(
    "first", ["What the caller heard.", "Of one call.", "`Whether` it ended.", "One line."]
)
def test_a_docstring_that_begins_with_a_relative_word_is_headless(tmp_path: Path, first: str) -> None:
    (found,) = read(tmp_path, f'"""{first}"""\n')
    assert found.is_headless


@pytest.mark.parametrize(
    "first", ["Return what was heard.", "Bounded queue of audio.", "``name`` of the call."]
)
def test_a_docstring_that_begins_with_a_verb_or_a_noun_is_not(tmp_path: Path, first: str) -> None:
    (found,) = read(tmp_path, f'def f():\n    """{first}"""\n')
    assert not found.is_headless


def test_banned_words_are_found_in_comments_and_docstrings_and_not_in_quotations(tmp_path: Path) -> None:
    found = read(
        tmp_path, '"""Drop audio.\n\n"nobody" is a word."""\n\n# Nobody waits\n# beside it.\nX = "somebody"\n'
    )
    assert [(passage.line, passage.banned) for passage in found] == [(1, ()), (5, ("nobody", "beside"))]


def test_a_comment_is_never_headless(tmp_path: Path) -> None:
    (found,) = read(tmp_path, "# Of one call.\n")
    assert not found.is_headless and not found.is_docstring


def test_sentences_end_at_a_full_stop_and_at_an_item_of_a_list(tmp_path: Path) -> None:
    (found,) = read(tmp_path, '"""Send audio. Wait for it.\n\n* one two three\n* four\n"""\n')
    assert found.sentences == (2, 3, 3, 1)


def test_a_document_is_read_without_its_code_tables_and_targets_of_links(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# Nobody reads headings\n\nNobody calls [one two](a/b c.md). It waits.\n\n"
        "```sh\nsomebody --runs it\n```\n| whoever | asks |\n\n1. three words here\n2. `code` ends\n"
    )
    (found,) = passages([path])
    assert found.banned == ("nobody",) and not found.is_headless
    assert found.sentences == (4, 2, 3, 2)
