"""Smiles, on faces whose mouth has known proportions."""

from dataclasses import replace

import numpy as np
import pytest

from parley.models.specialists.vision_faces import LEAN_DEG
from parley.models.specialists.vision_networks import FaceFound
from parley.models.specialists.vision_smile import (
    LEFT_CORNER,
    LEFT_EYE,
    MOST_DROP,
    RIGHT_CORNER,
    RIGHT_EYE,
    SURE_WIDTH,
    UNSURE_WIDTH,
    UPPER_LIP,
    smile_of,
)
from tests.unit.models.specialists.test_vision_faces import face

APART = 90.0


def mouth(width: float, *, drop: float = 0.08, yaw_deg: float = 0, roll_deg: float = 0) -> FaceFound:
    """Return a face by the width of its mouth and the drop of its corners, in distances of the eyes."""
    turned = face(yaw_deg, LEAN_DEG)
    points = turned.points.copy()
    across = (points[454] - points[234]) / np.linalg.norm(points[454] - points[234])
    down = (points[152] - points[10]) / np.linalg.norm(points[152] - points[10])
    points[RIGHT_EYE], points[LEFT_EYE] = -across * APART / 2 - down * 20, across * APART / 2 - down * 20
    points[UPPER_LIP] = down * 40
    corner = points[UPPER_LIP] + down * drop * APART
    points[RIGHT_CORNER], points[LEFT_CORNER] = (
        corner + side * across * width * APART / 2 for side in (-1, 1)
    )
    roll = np.radians(roll_deg)
    rolled = np.array([[np.cos(roll), -np.sin(roll), 0], [np.sin(roll), np.cos(roll), 0], [0, 0, 1]])
    return replace(turned, points=(points @ rolled.T).astype(np.float32))


@pytest.mark.parametrize("roll_deg", [0, 25])
@pytest.mark.parametrize(
    ("width", "confidence"),
    [(0.58, 0.0), (UNSURE_WIDTH + 0.001, 0.505), (0.71, 0.75), (SURE_WIDTH, 1.0), (0.9, 1.0)],
)
def test_a_wide_mouth_smiles_the_surer_the_wider(width: float, confidence: float, roll_deg: float):
    assert smile_of(mouth(width, roll_deg=roll_deg)) == pytest.approx(confidence, abs=0.01)


def test_a_wide_mouth_that_shouts_does_not_smile():
    assert smile_of(mouth(0.9, drop=MOST_DROP + 0.02)) == 0.0
    assert smile_of(mouth(0.9, drop=MOST_DROP - 0.02)) == 1.0


def test_a_face_that_is_turned_away_is_not_judged():
    assert smile_of(mouth(0.9, yaw_deg=25)) == 1.0
    assert smile_of(mouth(0.9, yaw_deg=45)) == 0.0
