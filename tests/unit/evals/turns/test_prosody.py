"""Marks of pauses and ends, and the resynthesis that makes them."""

import numpy as np
import pytest

from parley.evals.turns.contours import Contour, final_contour
from parley.evals.turns.prosody import Ending, marked
from parley.evals.turns.psola import grains, resynthesise
from parley.turn_taking.endpointing.evidence_pitch import pitch_hz

RATE_HZ = 16_000


def buzz(hertz: float = 120.0, length_ms: int = 900) -> np.ndarray:
    """Return a voice of one vowel: a pulse train through two resonances."""
    size = length_ms * RATE_HZ // 1000
    source = np.zeros(size)
    source[:: round(RATE_HZ / hertz)] = 1.0
    seconds = np.arange(400) / RATE_HZ
    tract = np.exp(-400 * seconds) * (np.cos(2 * np.pi * 600 * seconds) + np.cos(2 * np.pi * 1_200 * seconds))
    return (0.3 * np.convolve(source, tract)[:size]).astype(np.float32)


def median_hz(sound: np.ndarray) -> float:
    return float(np.nanmedian(pitch_hz(sound, RATE_HZ)))


def same(at: float) -> float:
    return at


def test_grains_lie_one_period_apart():
    steps = np.diff([grain.at for grain in grains(buzz(), RATE_HZ) if grain.voiced])
    assert np.median(steps) == pytest.approx(RATE_HZ / 120, abs=2)


def test_nothing_changed_is_nearly_the_same_sound():
    sound = buzz()
    again = resynthesise(sound, RATE_HZ, len(sound), same, lambda _place: 1.0)
    inner = slice(1_600, -1_600)
    assert np.corrcoef(sound[inner], again[inner])[0, 1] > 0.95


@pytest.mark.parametrize("factor", [0.7, 1.4])
def test_the_pitch_is_multiplied_and_the_length_stays(factor: float):
    sound = buzz()
    higher = resynthesise(sound, RATE_HZ, len(sound), same, lambda _place: factor)
    assert len(higher) == len(sound)
    assert median_hz(higher) == pytest.approx(120 * factor, rel=0.04)


def test_the_length_is_multiplied_and_the_pitch_stays():
    sound = buzz()
    longer = resynthesise(sound, RATE_HZ, 2 * len(sound), lambda at: at / 2, lambda _place: 1.0)
    assert len(longer) == 2 * len(sound)
    assert median_hz(longer) == pytest.approx(120, rel=0.03)


def ending(
    *, end: bool = False, inside: bool = False, filler: bool = False, lengthened: float = 1.0
) -> Ending:
    return Ending(end=end, inside=inside, filler=filler, last_word_ms=300, lengthened=lengthened)


def test_no_strength_changes_nothing():
    sound = buzz()
    assert marked(sound, RATE_HZ, ending(), 0.0, np.random.default_rng(1)) is sound


def test_the_last_word_is_drawn_out_little_at_an_end_more_before_a_pause_and_most_before_a_filler():
    sound = buzz()
    kinds = (ending(end=True), ending(inside=True), ending(inside=True, filler=True))
    more = [
        np.mean([len(marked(sound, RATE_HZ, kind, 1.0, np.random.default_rng(seed))) for seed in range(12)])
        - len(sound)
        for kind in kinds
    ]
    # Approximately 80 ms, and 300 ms times 1.69 and 2.22.
    assert 800 < more[0] < 2_000
    assert 2_500 < more[1] < 5_500
    assert more[2] > more[1] + 1_500


@pytest.mark.parametrize("kind", [ending(lengthened=1.4), ending(filler=True, lengthened=1.4)])
def test_what_a_voice_lengthens_by_itself_counts_towards_the_mark(kind: Ending):
    times = 400 / 180 if kind.filler else 305 / 180
    assert kind.drawn_out(1.0) == pytest.approx(times / 1.4)
    assert kind.drawn_out(0.1) == 1.0


def test_a_voice_that_lengthens_the_end_of_a_turn_enough_is_left_alone():
    # 300 ms are 240 ms elsewhere: 60 of the 80 ms are included.
    assert ending(end=True, lengthened=1.25).drawn_out(1.0) == pytest.approx(320 / 300)
    assert ending(end=True, lengthened=1.4).drawn_out(1.0) == 1.0


def test_an_end_is_softer_than_its_beginning_and_falls_more_often_than_a_hold():
    sound = buzz()
    ends = [marked(sound, RATE_HZ, ending(end=True), 1.0, np.random.default_rng(seed)) for seed in range(30)]
    holds = [marked(sound, RATE_HZ, ending(), 1.0, np.random.default_rng(seed)) for seed in range(30)]
    assert np.mean([np.std(end[-1_600:]) / np.std(end[1_600:8_000]) for end in ends]) < 0.8
    falls = [
        sum(final_contour(sound, RATE_HZ) is Contour.FALL for sound in kind) / len(kind)
        for kind in (ends, holds)
    ]
    assert falls[0] > falls[1]


def test_what_is_drawn_does_not_depend_on_the_strength():
    one, other = np.random.default_rng(5), np.random.default_rng(5)
    marked(buzz(), RATE_HZ, ending(), 0.0, one)
    marked(buzz(), RATE_HZ, ending(), 2.0, other)
    assert one.random() == other.random()
