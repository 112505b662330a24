"""Find where a face is turned, on faces that are turned by known angles."""

import numpy as np
import pytest

from parley.models.specialists.vision_faces import AWAY, HERE, LEAN_DEG, height_of, look_of, turn_of
from parley.models.specialists.vision_networks import FACE_POINTS, FaceFound


def face(yaw_deg: float, pitch_deg: float) -> FaceFound:
    """Return a face turned to the right of the picture and up."""
    points = np.zeros((FACE_POINTS, 3))
    points[10], points[152], points[234], points[454] = (0, -80, 0), (0, 80, 0), (-60, 0, 0), (60, 0, 0)
    yaw, pitch = np.radians(yaw_deg), np.radians(pitch_deg)
    nodded = np.array([[1, 0, 0], [0, np.cos(pitch), np.sin(pitch)], [0, -np.sin(pitch), np.cos(pitch)]])
    turned = np.array([[np.cos(yaw), 0, np.sin(yaw)], [0, 1, 0], [-np.sin(yaw), 0, np.cos(yaw)]])
    return FaceFound(1.0, (points @ nodded.T @ turned.T).astype(np.float32))


@pytest.mark.parametrize(("yaw_deg", "pitch_deg"), [(0, 0), (40, 0), (-25, 0), (0, 20), (0, -30)])
def test_the_turn_of_a_face_is_measured(yaw_deg: float, pitch_deg: float):
    assert turn_of(face(yaw_deg, pitch_deg)) == pytest.approx((yaw_deg, pitch_deg), abs=0.01)


@pytest.mark.parametrize(
    ("yaw_deg", "pitch_deg", "towards"),
    [
        (0, LEAN_DEG, HERE),
        (20, LEAN_DEG, HERE),
        (0, LEAN_DEG - 15, HERE),
        (45, LEAN_DEG, AWAY),
        (-45, LEAN_DEG, AWAY),
        (0, LEAN_DEG - 35, AWAY),
        (0, LEAN_DEG + 35, AWAY),
    ],
)
def test_a_face_looks_here_within_limits(yaw_deg: float, pitch_deg: float, towards: str):
    look = look_of(face(yaw_deg, pitch_deg))
    assert look.towards == towards and 0.5 < look.confidence <= 1


def test_a_face_at_the_limit_is_judged_with_the_least_confidence():
    assert look_of(face(30.1, LEAN_DEG)).confidence == pytest.approx(0.5, abs=0.02)
    assert look_of(face(60, LEAN_DEG)).confidence == 1.0


def test_the_size_of_a_face_does_not_shrink_when_it_turns_away():
    assert height_of(face(0, 0)) == height_of(face(60, 0)) == pytest.approx(160)
