from pathlib import Path

import pytest
from loguru import logger

from parley.core.errors import ConfigError
from parley.models.stt.language_model import (
    Dictionary,
    document_vocabulary,
    general_vocabulary,
    read_sentences,
    spoken_sentences,
)


@pytest.fixture
def dictionary(tmp_path: Path) -> Dictionary:
    path = tmp_path / "words.dict"
    path.write_text("pay P EY\nslips S L IH P S\nthe DH AH\nthe(2) DH IY\nun AH N\nlock L AA K\na AH\n")
    return Dictionary(path)


def words(path: Path) -> set[str]:
    return {line.split()[0] for line in path.read_text().splitlines()}


def test_text_becomes_clauses_of_plain_words() -> None:
    text = (
        "# Lost card\nCall us at once, day or night. "
        "It's the \u201cself-service\u201d line: don\u2019t wait!\n"
    )
    assert list(spoken_sentences(text)) == [
        "lost card",
        "call us at once",
        "day or night",
        "it's the self service line",
        "don't wait",
    ]


def test_digits_and_other_scripts_are_dropped() -> None:
    assert list(spoken_sentences("Call 0800 555 now. \u4f60\u597d.")) == ["call now"]


def test_sentences_of_a_folder_come_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("second.")
    (tmp_path / "a.txt").write_text("first.")
    (tmp_path / "c.png").write_bytes(b"\xff\x00")
    assert read_sentences(tmp_path) == ("first", "second")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no-such-place"):
        read_sentences(tmp_path / "no-such-place")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="a.md"):
        read_sentences(tmp_path)


def test_all_pronunciations_of_a_word_are_kept(dictionary: Dictionary) -> None:
    assert dictionary.entries("the") == [("the", "DH AH"), ("the(2)", "DH IY")]


def test_an_unknown_word_is_built_from_two_known_ones(dictionary: Dictionary) -> None:
    assert dictionary.compound("payslips") == "P EY S L IH P S"
    assert dictionary.compound("unlock") == "AH N L AA K"
    assert dictionary.compound("apay") is None


def test_the_general_vocabulary_holds_common_and_wanted_words(tmp_path: Path) -> None:
    chosen = general_vocabulary(["the overdraft of northwind"], 100, tmp_path)
    assert {"the", "and", "overdraft"} <= words(chosen.dictionary)
    assert 100 <= len({word.partition("(")[0] for word in words(chosen.dictionary)}) <= 102
    assert dict(chosen.extra) == {"northwind": "N AO R TH W AY N D"}


def test_words_without_a_pronunciation_are_dropped_and_counted(tmp_path: Path) -> None:
    lines: list[str] = []
    sink = logger.add(lines.append, level="WARNING")
    chosen = general_vocabulary(["qzxv card"], 10, tmp_path)
    logger.remove(sink)
    assert "card" in words(chosen.dictionary)
    assert "qzxv" not in words(chosen.dictionary)
    assert len(lines) == 1 and " 1 words" in lines[0]


def test_a_second_start_reads_what_the_first_wrote(tmp_path: Path) -> None:
    first = general_vocabulary(["lost card"], 50, tmp_path)
    written = first.dictionary.stat().st_mtime_ns
    assert general_vocabulary(["lost card"], 50, tmp_path) == first
    assert first.dictionary.stat().st_mtime_ns == written
    assert general_vocabulary(["lost pin"], 50, tmp_path).dictionary != first.dictionary


def test_the_document_model_knows_the_documents_and_how_callers_ask(tmp_path: Path) -> None:
    chosen = document_vocabulary(["changing your pin is free"], tmp_path)
    assert {"changing", "pin", "hello", "how"} <= words(chosen.dictionary)
    assert "banana" not in words(chosen.dictionary)
    assert "changing your pin" in chosen.language_model.read_text()


def test_an_unwritable_cache_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cache"):
        general_vocabulary(["card"], 10, tmp_path / "file")
