"""Classification of the bot's reaction to a sound over its voice."""

import pytest

from parley.evals.duplex_bench.clips import Event, Kind
from parley.evals.duplex_bench.overlaps import Behaviour, continues, needs_clean, overlap
from parley.evals.duplex_bench.spoken import Segment, Spoken, Word

EVENT = Event(Kind.BACKCHANNEL, 5_000, 5_500)
ANSWER = "you can block the card in the app at any time or at a branch on weekdays".split()


def spoken(*talk: tuple[int, int], said: list[tuple[str, int]] | None = None) -> Spoken:
    heard = None if said is None else tuple(Word(text, at, at + 200) for text, at in said)
    return Spoken(12_000, tuple(Segment(*each) for each in talk), heard)


def placed(words: list[str], from_ms: int) -> list[tuple[str, int]]:
    return [(word, from_ms + 250 * place) for place, word in enumerate(words)]


def test_who_talks_on_resumes_whatever_the_words() -> None:
    found = overlap(EVENT, spoken((3_000, 5_100), (5_500, 8_000)), None)
    assert found.behaviour is Behaviour.RESUME and found.stop_ms is None


def test_who_was_silent_has_nothing_to_resume() -> None:
    assert overlap(EVENT, spoken((6_500, 9_000)), None).behaviour is Behaviour.NOT_SPEAKING


def test_who_stops_for_good_is_silent() -> None:
    found = overlap(EVENT, spoken((3_000, 5_400)), None)
    assert found.behaviour is Behaviour.SILENT and found.stop_ms == 400


@pytest.mark.parametrize(
    ("after", "behaviour"),
    [
        (ANSWER[8:], Behaviour.RESUME),
        # From a few words before the cut.
        (ANSWER[5:], Behaviour.RESUME),
        ("I do not know that one what else can I tell you".split(), Behaviour.RESPOND),
    ],
)
def test_who_speaks_again_resumes_when_the_words_go_on(after: list[str], behaviour: Behaviour) -> None:
    said = placed(ANSWER[:8], 3_000) + placed(after, 7_000)
    heard = spoken((3_000, 5_200), (7_000, 10_000), said=said)
    assert needs_clean(EVENT, heard)
    found = overlap(EVENT, heard, ANSWER)
    assert found.behaviour is behaviour and (found.stop_ms, found.response_ms) == (200, 1_500)


def test_who_has_said_all_was_not_stopped() -> None:
    heard = spoken((3_000, 5_700), said=placed(ANSWER[:9], 3_000))
    assert needs_clean(EVENT, heard)
    assert overlap(EVENT, heard, ANSWER[:9]).behaviour is Behaviour.RESUME
    assert overlap(EVENT, heard, ANSWER).behaviour is Behaviour.SILENT


def test_another_answer_that_shares_some_words_is_another_answer() -> None:
    said = "from the guide you can change a transfer in the app until the day before".split()
    other = "from the guide you can cancel it at a branch or the app until four".split()
    assert not continues(said[:9], other, said + ANSWER)


def test_who_begins_again_from_the_first_word_does_not_go_on() -> None:
    long = [f"word{place}" for place in range(60)]
    assert not continues(long[:20], long[:12], long)
    assert continues(long[:20], long[20:32], long)


def test_without_words_it_is_uncertain() -> None:
    heard = spoken((3_000, 5_200), (7_000, 10_000))
    assert overlap(EVENT, heard, None).behaviour is Behaviour.UNCERTAIN
    assert not needs_clean(EVENT, heard)
