import numpy as np
import pytest

from parley.audio.resample import FineReader, Resampler
from parley.core.errors import ShapeError


def tone(hz: float, rate_hz: int, samples: int) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(samples) / rate_hz).astype(np.float32)


@pytest.mark.parametrize(
    ("from_hz", "to_hz"),
    [(48_000, 16_000), (24_000, 16_000), (44_100, 16_000), (8_000, 16_000), (16_000, 8_000)],
)
def test_a_tone_comes_out_as_it_went_in_and_in_its_place(from_hz: int, to_hz: int) -> None:
    made = Resampler(from_hz, to_hz).feed(tone(1_000, from_hz, from_hz // 2))
    wanted = tone(1_000, to_hz, len(made))
    middle = slice(200, -200)
    assert np.max(np.abs(made[middle] - wanted[middle])) < 0.002


def test_what_would_fold_over_is_gone() -> None:
    made = Resampler(16_000, 8_000).feed(tone(6_000, 16_000, 8_000))
    assert np.max(np.abs(made[200:-200])) < 0.001


@pytest.mark.parametrize(("from_hz", "to_hz"), [(48_000, 16_000), (44_100, 16_000), (16_000, 16_000)])
def test_pieces_do_not_change_the_result(from_hz: int, to_hz: int) -> None:
    sound = np.random.default_rng(2).standard_normal(9_000).astype(np.float32)
    whole = Resampler(from_hz, to_hz).feed(sound)
    pieces = Resampler(from_hz, to_hz)
    edges = [0, 1, 3, 40, 41, 900, 901, 2_500, 7_000, 9_000]
    parts = [pieces.feed(sound[a:b]) for a, b in zip(edges, edges[1:], strict=False)]
    assert np.array_equal(np.concatenate(parts), whole)


def test_an_output_leaves_as_soon_as_its_surroundings_are_there() -> None:
    resampler = Resampler(48_000, 16_000)
    lags = []
    fed = made = 0
    for _ in range(50):
        made += len(resampler.feed(np.zeros(480, np.float32)))
        fed += 480
        lags.append(fed - 3 * made)
    assert resampler.delay_samples <= 48_000 * 2 // 1000
    assert max(lags) <= resampler.delay_samples + 3


def test_another_shape_is_refused() -> None:
    with pytest.raises(ShapeError):
        Resampler(48_000, 16_000).feed(np.zeros((2, 480), np.float32))


def test_a_rate_is_positive() -> None:
    with pytest.raises(ValueError, match="from 0"):
        Resampler(0, 16_000)


def test_places_between_samples_are_read() -> None:
    known = tone(2_000, 16_000, 400)
    made = FineReader().read(known, 50.3, 1.0002, 300)
    wanted = np.sin(2 * np.pi * 2_000 * (50.3 + 1.0002 * np.arange(300)) / 16_000)
    assert np.max(np.abs(made - wanted)) < 0.005


def test_reading_beyond_what_is_known_is_refused() -> None:
    with pytest.raises(ShapeError):
        FineReader().read(np.zeros(100, np.float32), 50.0, 1.0, 60)
