"""Similarity of words by their sound."""

import pytest

from parley.language.english.sounds import phones_of
from parley.models.retrieval.sounds import SoundAlikes

PHRASES = (("down", "payment"), ("express", "delivery"), ("mortgage",), ("statement",), ("pin",))


@pytest.fixture
def alikes() -> SoundAlikes:
    return SoundAlikes(PHRASES, least_phones=5)


def nearest(alikes: SoundAlikes, heard: str) -> tuple[str, ...]:
    found = alikes.near([heard.split()], most=0.4)
    return alikes.phrases[min(found, key=lambda each: each[2])[1]] if found else ()


@pytest.mark.parametrize(
    ("heard", "said"),
    [
        ("young payment", ("down", "payment")),
        ("restily vary", ("express", "delivery")),
        ("more gauge", ("mortgage",)),
        ("station meant", ("statement",)),
    ],
)
def test_the_phrase_that_sounds_most_alike_is_found_across_word_boundaries(
    alikes: SoundAlikes, heard: str, said: tuple[str, ...]
) -> None:
    assert nearest(alikes, heard) == said


@pytest.mark.parametrize("heard", ["colour", "weather forecast", "the", "", "zzzzzzzz"])
def test_other_words_are_near_nothing(alikes: SoundAlikes, heard: str) -> None:
    assert nearest(alikes, heard) == ()


def test_short_phrases_are_left_out_on_both_sides(alikes: SoundAlikes) -> None:
    assert ("pin",) not in alikes.phrases
    assert alikes.near([["bin"], ["pin"]], most=1.0) == []


def test_the_distance_is_the_cost_of_the_changes_per_sound_and_the_same_both_ways() -> None:
    one, other = ("fixed", "deposit"), ("mixed", "the", "posit")
    forth = SoundAlikes([one], least_phones=1).near([other], most=1.0)
    back = SoundAlikes([other], least_phones=1).near([one], most=1.0)
    assert forth[0][2] == pytest.approx(back[0][2])
    assert 0.0 < forth[0][2] < 0.3
    assert SoundAlikes([one], least_phones=1).near([one], most=1.0) == [(0, 0, 0.0)]


def test_several_pieces_are_compared_at_once_like_one_by_one(alikes: SoundAlikes) -> None:
    pieces = [["young", "payment"], ["more", "gauge"], ["statements"]]
    together = alikes.near(pieces, most=0.5)
    alone = [
        (place, number, distance)
        for place, piece in enumerate(pieces)
        for _, number, distance in alikes.near([piece], most=0.5)
    ]
    assert [each[:2] for each in together] == [each[:2] for each in alone]
    assert [each[2] for each in together] == pytest.approx([each[2] for each in alone])


def test_nothing_is_near_without_phrases() -> None:
    assert SoundAlikes([], least_phones=1).near([["payment"]], most=1.0) == []


def test_spelling_does_not_count() -> None:
    assert phones_of(["knight"]) == phones_of(["night"])
    assert phones_of(["phone"]) == phones_of(["fone"])
    assert phones_of(["1234", "été"]) == phones_of(["t"])
