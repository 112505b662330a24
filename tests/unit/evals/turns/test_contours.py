"""The pitch at the end of a voice, in three classes."""

import numpy as np
import pytest

from parley.evals.turns.contours import Contour, final_contour
from tests.unit.turn_taking.test_evidence_pitch import RATE_HZ, voice


@pytest.mark.parametrize(
    ("first_hz", "last_hz", "contour"),
    [(110, 165, Contour.RISE), (220, 150, Contour.FALL), (130, 132, Contour.LEVEL)],
)
def test_a_glide_is_told_in_a_low_and_a_high_voice(first_hz: float, last_hz: float, contour: Contour):
    assert final_contour(voice(first_hz, last_hz), RATE_HZ) is contour
    assert final_contour(voice(first_hz * 1.6, last_hz * 1.6), RATE_HZ) is contour


def test_what_is_not_voiced_has_no_contour():
    assert final_contour(np.zeros(RATE_HZ, np.float32), RATE_HZ) is None
