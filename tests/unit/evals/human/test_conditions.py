"""Rooms, noise and lines."""

import numpy as np
import pytest

from parley.core.errors import ConfigError
from parley.evals.human.conditions import (
    BURST_PACKETS,
    CONDITIONS,
    RATE_HZ,
    Surroundings,
    active_power,
    by_phone,
    losses,
)
from parley.evals.human.rooms import FAR, impulse_response, in_room, reverb_s
from parley.evals.human.split import TuningSet
from tests.recorded_speech import clip


def surroundings() -> Surroundings:
    one = clip()
    other = type(one)(
        "readings/x", one.samples[::-1].copy(), one.rate_hz, "", "moonshine-clone-test", "readings", "en", ()
    )
    return Surroundings(TuningSet([one, other]))


@pytest.mark.parametrize("condition", ["pink-10", "pink-20", "fan-10", "babble-10", "babble-5"])
def test_noise_is_as_far_below_the_speech_as_it_says(condition: str):
    speech = clip().at_rate(RATE_HZ) * 0.5
    heard = surroundings().heard(
        speech, CONDITIONS[condition], np.random.default_rng(1), speaker="librivox-austen"
    )
    scale = np.dot(heard, speech) / np.dot(speech, speech)
    noise = heard / min(1.0, scale) - speech if scale < 0.99 else heard - speech
    ratio_db = 10 * np.log10(active_power(speech) / np.mean(noise**2))
    assert ratio_db == pytest.approx(CONDITIONS[condition].snr_db, abs=0.7)


def test_babble_is_of_other_speakers():
    alone = Surroundings(TuningSet([clip()]))
    with pytest.raises(ConfigError, match="another speaker"):
        alone.heard(
            clip().samples, CONDITIONS["babble-10"], np.random.default_rng(1), speaker="librivox-austen"
        )


def test_a_line_has_the_band_of_a_telephone():
    noise = np.random.default_rng(1).normal(0, 0.1, RATE_HZ * 2).astype(np.float32)
    power = np.abs(np.fft.rfft(by_phone(noise, 0.0, np.random.default_rng(1)))) ** 2
    hertz = np.fft.rfftfreq(len(noise), 1 / RATE_HZ)

    def band(low: float, high: float) -> float:
        return float(power[(hertz >= low) & (hertz < high)].mean())

    inside = band(500, 3_000)
    assert band(4_200, 8_000) < 1e-4 * inside
    assert band(20, 150) < 0.02 * inside


def test_packets_are_lost_in_bursts_and_as_often_as_asked():
    lost = losses(100_000, 0.05, np.random.default_rng(1))
    assert lost.mean() == pytest.approx(0.05, abs=0.005)
    bursts = np.count_nonzero(np.diff(lost.astype(int)) == 1)
    assert lost.sum() / bursts == pytest.approx(BURST_PACKETS, abs=0.1)
    assert not losses(1_000, 0.0, np.random.default_rng(1)).any()


def test_a_line_that_loses_packets_is_as_long():
    speech = clip().at_rate(RATE_HZ)
    heard = by_phone(speech, 0.1, np.random.default_rng(1))
    assert len(heard) == len(speech)
    assert not (heard == by_phone(speech, 0.0, np.random.default_rng(1))).all()


def test_a_room_begins_with_the_direct_sound_and_dies_out_in_its_time():
    response = impulse_response(FAR, RATE_HZ)
    assert response[0] == pytest.approx(1.0)
    assert 1_000 * reverb_s(response, RATE_HZ) == pytest.approx(FAR.reverb_ms, rel=0.1)


def test_speech_in_a_room_is_as_loud_as_without():
    speech = clip().at_rate(RATE_HZ)
    heard = in_room(speech, FAR, RATE_HZ)
    assert np.sum(heard.astype(float) ** 2) == pytest.approx(np.sum(speech.astype(float) ** 2), rel=1e-3)


def test_nothing_is_heard_in_a_room_before_it_is_said():
    click = np.zeros(RATE_HZ, np.float32)
    click[4_000] = 1.0
    heard = in_room(click, FAR, RATE_HZ)
    loudest = np.abs(heard).max()
    assert np.abs(heard[:4_000]).max() < 1e-5 * loudest
    assert abs(heard[4_000]) == pytest.approx(loudest, rel=1e-4)
