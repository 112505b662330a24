"""Regularity of a stretch of audio, by packets and times."""

import numpy as np
import pytest

from parley.evals.harness.phone_caller import Piece
from parley.evals.harness.phone_speech import PACKET, packets
from parley.evals.phone.pacing import Pacing, pacing

TONE = packets((0.3 * 32_767 * np.sin(np.arange(16_000) * 0.3)).astype("<i2").tobytes())


def measured(came: list[Piece]) -> Pacing:
    found = pacing(came, 0.0, 100.0)
    assert found is not None
    return found


def test_packets_on_their_grid_have_no_error():
    found = measured([Piece(1 + 0.02 * place, packet) for place, packet in enumerate(TONE)])
    assert max(found.errors_ms) == pytest.approx(0, abs=1e-6)
    assert found.starved_ms == pytest.approx(0, abs=1e-6)


def test_two_packets_in_one_message_are_on_the_grid_too():
    pairs = [TONE[at] + TONE[at + 1] for at in range(0, 50, 2)]
    assert max(measured([Piece(1 + 0.04 * n, pair) for n, pair in enumerate(pairs)]).errors_ms) < 1e-6


def test_a_late_packet_is_an_error_and_starves_a_listener():
    came = [Piece(1 + 0.02 * place + 0.03 * (place == 25), packet) for place, packet in enumerate(TONE)]
    found = measured(came)
    assert max(found.errors_ms) == pytest.approx(30)
    assert found.starved_ms == pytest.approx(30)


def test_a_burst_is_an_error_and_starves_nobody():
    came = [Piece(1 + 0.02 * (place - place % 5), packet) for place, packet in enumerate(TONE)]
    found = measured(came)
    assert max(found.errors_ms) == pytest.approx(40)
    assert found.starved_ms == pytest.approx(0, abs=1e-6)


def test_comfort_noise_before_the_speech_is_no_part_of_it():
    noise = [Piece(0.5 + 0.013 * place, PACKET) for place in range(10)]
    speech = [Piece(1 + 0.02 * place, packet) for place, packet in enumerate(TONE)]
    found = measured([*noise, *speech])
    assert (len(found.errors_ms), round(max(found.errors_ms), 3)) == (50, 0)
