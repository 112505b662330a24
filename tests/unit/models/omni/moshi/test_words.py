"""Text of tokens that come one per unit."""

from parley.models.omni.moshi.words import WordDecoder

PIECES = ("<unk>", "<pad>", "▁we", "▁o", "pen", "<0xC3>", "<0xA9>", "<0xE2>")
SILENT = frozenset({0, 1})


def text(*tokens: int) -> str:
    words = WordDecoder(PIECES, SILENT)
    return "".join(words.text(token) for token in tokens)


def test_pieces_join_to_words_across_silence() -> None:
    assert text(0, 2, 1, 1, 3, 4, 1) == " we open"


def test_a_character_of_several_bytes_is_text_when_it_is_whole() -> None:
    words = WordDecoder(PIECES, SILENT)
    assert [words.text(token) for token in (5, 1, 6)] == ["", "", "é"]


def test_a_character_that_breaks_off_does_not_spoil_the_next_word() -> None:
    assert text(7, 2, 5, 6) == " weé"
