import pytest

from parley.models.stt.moonshine_network import looping, read_tokenizer


@pytest.mark.parametrize(
    ("tokens", "surplus"),
    [
        ([5, 6, 7, 8], 0),
        # A caller says a phrase twice, and a word four times.
        ([1, 5, 6, 7, 5, 6, 7], 0),
        ([9, 4, 4, 4, 4], 0),
        ([1, 5, 6, 7, 5, 6, 7, 5, 6, 7], 6),
        ([9, 4, 4, 4, 4, 4, 4], 5),
        ([5, 6, 7, 5, 6, 7, 5, 6, 7, 8], 0),
        # "What, what, what," of a person who stutters.
        ([5, 6, 5, 6, 5, 6, 5, 6], 0),
        ([5, 6] * 6, 10),
        (list(range(24)) * 3, 48),
    ],
)
def test_a_phrase_that_comes_three_times_in_a_row_is_a_loop(tokens: list[int], surplus: int):
    assert looping(tokens) == surplus


def test_a_tokenizer_has_pieces_of_short_and_long_lengths():
    long = b"x" * 300
    data = b"\x03one" + bytes([300 % 128 + 128, 300 // 128]) + long + b"\x00" + b"\x01z"
    assert read_tokenizer(data) == [b"one", long, b"", b"z"]


@pytest.mark.parametrize("data", [b"\x03on", b"\x83"])
def test_a_tokenizer_that_breaks_off_is_refused(data: bytes):
    with pytest.raises(ValueError, match="truncated"):
        read_tokenizer(data)
