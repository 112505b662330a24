"""Gaps of a caller's audio: which of them are stalls."""

from parley.evals.abuse.gaps import Arrival, gaps_ms, largest_ms


def packets(*at_ms: int, length_ms: int = 20) -> list[Arrival]:
    return [Arrival(at / 1000, length_ms / 1000) for at in at_ms]


def test_an_even_stream_has_no_gap():
    assert [round(gap) for gap in gaps_ms(packets(0, 20, 40))] == [0, 0]


def test_a_stall_is_as_long_as_the_time_without_sound():
    assert [round(gap) for gap in gaps_ms(packets(0, 20, 340, 341))] == [0, 300, 0]


def test_pieces_of_other_lengths_are_judged_by_their_own():
    assert round(largest_ms([packets(0, 500, 1_080, length_ms=500)]) or -1) == 80


def test_silence_between_two_stretches_is_no_gap():
    assert round(largest_ms([packets(0, 20), packets(5_000, 5_020)]) or 0) == 0


def test_a_call_without_audio_has_no_figure():
    assert largest_ms([[], packets(3)]) is None
