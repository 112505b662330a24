"""Floor holding, by the bot's audio: the rules of Full-Duplex-Bench v1 on small examples."""

import numpy as np
import pytest

from parley.evals.duplex_bench.spoken import (
    RATE_HZ,
    Segment,
    Spoken,
    Word,
    by_level,
    first_talk,
    is_backchannel,
    takes_turn,
)


def words(*spans: tuple[int, int]) -> tuple[Word, ...]:
    return tuple(Word("word", began, ended) for began, ended in spans)


@pytest.mark.parametrize(
    ("heard", "turn"),
    [
        ((), False),
        # One word of 0.9 s, and one of a second.
        (((0, 900),), False),
        (((0, 1_000),), True),
        # From the first to the last, silence included.
        (((0, 100), (950, 1_050)), True),
        # Three words in 0.6 s, and four.
        (((0, 200), (200, 400), (400, 600)), False),
        (((0, 150), (150, 300), (300, 450), (450, 600)), True),
    ],
)
def test_a_turn_is_a_second_of_talk_or_more_than_three_words(
    heard: tuple[tuple[int, int], ...], turn: bool
) -> None:
    assert takes_turn(Spoken(5_000, (), words(*heard))) is turn


def test_without_words_the_voice_decides() -> None:
    assert not takes_turn(Spoken(5_000, (Segment(0, 400),)))
    assert takes_turn(Spoken(5_000, (Segment(0, 400), Segment(700, 1_000))))


def test_an_engine_that_writes_words_is_not_judged_by_a_voice_without_any() -> None:
    assert not takes_turn(Spoken(5_000, (Segment(0, 400), Segment(2_000, 2_400)), ()))


@pytest.mark.parametrize(
    ("length_ms", "count", "backchannel"),
    [(999, 2, True), (999, 3, False), (1_000, 1, False), (300, None, True)],
)
def test_a_backchannel_is_short_and_has_two_words_at_most(
    length_ms: int, count: int | None, backchannel: bool
) -> None:
    assert is_backchannel(Segment(0, length_ms), count) is backchannel


def test_talk_begins_after_the_hums() -> None:
    spoken = Spoken(9_000, (Segment(500, 900), Segment(3_000, 3_400), Segment(3_600, 5_000)))
    # The second backchannel is 0.2 s before speech: one stretch.
    assert first_talk(spoken) == Segment(3_000, 5_000)


def test_what_goes_on_at_a_moment_begins_there_for_who_looks_from_there_on() -> None:
    spoken = Spoken(5_000, (Segment(0, 1_000), Segment(1_500, 3_000)), words((0, 300), (1_600, 1_900)))
    since = spoken.since(2_000)
    assert since.segments == (Segment(2_000, 3_000),) and since.words == ()


def test_what_is_audible_has_its_edges() -> None:
    audio = np.zeros(3 * RATE_HZ, np.float32)
    audio[RATE_HZ : 2 * RATE_HZ] = 0.3 * np.sin(np.arange(RATE_HZ) * 0.1)
    (segment,) = by_level(audio)
    assert segment.began_ms == pytest.approx(1_000, abs=10) and segment.ended_ms == pytest.approx(
        2_000, abs=10
    )
