"""Words of an engine that writes tokens."""

from hypothesis import given
from hypothesis import strategies as st

from parley.processors.duplex.word_aligner import EngineWordTiming, WordAligner

RATE_HZ = 1_000


def test_words_share_the_time_of_their_unit_by_letters() -> None:
    saying = WordAligner()
    assert saying.add("hi there ", 90, RATE_HZ) == [
        EngineWordTiming("hi", 0, 20_000),
        EngineWordTiming("there", 30_000, 80_000),
    ]
    assert saying.add("you", 30, RATE_HZ) == []
    assert saying.end() == [EngineWordTiming("you", 90_000, 120_000)]
    assert saying.end() == []


def test_a_word_in_two_tokens_lies_in_both_units() -> None:
    saying = WordAligner()
    assert saying.add(" un", 80, RATE_HZ) == []
    [word] = saying.add("usual day", 80, RATE_HZ)
    assert (word.text, word.start_us, word.end_us) == ("unusual", 26_666, 80_000 + 44_444)
    [last] = saying.end()
    assert last.text == "day" and last.end_us == 160_000


def test_sound_without_words_moves_what_follows() -> None:
    saying = WordAligner()
    assert saying.add("", 500, RATE_HZ) == []
    assert saying.add("yes", 100, RATE_HZ) == []
    assert saying.end() == [EngineWordTiming("yes", 500_000, 600_000)]


def test_words_without_sound_lie_where_the_sound_stands() -> None:
    saying = WordAligner()
    saying.add("so ", 100, RATE_HZ)
    assert saying.add("well ", 0, RATE_HZ) == [EngineWordTiming("well", 100_000, 100_000)]


@given(st.lists(st.tuples(st.text("ab \n", max_size=8), st.integers(0, 1_000)), max_size=30))
def test_every_word_is_told_once_in_order_and_inside_of_the_sound(units: list[tuple[str, int]]) -> None:
    saying = WordAligner()
    words = [word for text, samples in units for word in saying.add(text, samples, RATE_HZ)] + saying.end()
    assert [word.text for word in words] == "".join(text for text, _ in units).split()
    places = [place for word in words for place in (word.start_us, word.end_us)]
    assert places == sorted(places)
    assert not places or places[-1] <= saying.audio_us
