"""Decide whether a face is turned to the camera or away from it, by the landmarks of its surface. Pure.

The turn is that of the plane through both cheeks, the forehead and the chin. The eyes are not judged: a
person who turns their head to the screen looks "here", wherever on it they look. A camera stands above or
below the screen, and a head that looks at the screen is then turned by up to 20 degrees; the limits are wider
than that.
"""

from dataclasses import dataclass

import numpy as np

from parley.models.specialists.vision_networks import FaceFound

FOREHEAD, CHIN, RIGHT_CHEEK, LEFT_CHEEK = 10, 152, 234, 454
# Turn to a side, and up or down, from which a face looks away. The plane of a face that looks straight ahead
# leans by ``LEAN_DEG``: the chin is nearer than the forehead.
MOST_YAW_DEG, MOST_PITCH_DEG, LEAN_DEG = 30.0, 20.0, -6.0
# Degrees over or under the limit from which the decision is sure.
SURE_DEG = 10.0
HERE, AWAY = "here", "away"


@dataclass(frozen=True, slots=True)
class Look:
    """Direction of a face.

    Attributes:
        towards: ``HERE`` or ``AWAY``.
        confidence: 0.5 at the limit, 1 far from it.
    """

    towards: str
    confidence: float


def turn_of(face: FaceFound) -> tuple[float, float]:
    """Return the degrees by which a face is turned to the right of the picture and downwards (negative)."""
    across = face.points[LEFT_CHEEK] - face.points[RIGHT_CHEEK]
    down = face.points[CHIN] - face.points[FOREHEAD]
    normal = np.cross(across, down)
    normal = normal / max(float(np.linalg.norm(normal)), 1e-9)
    yaw = np.degrees(np.arctan2(normal[0], normal[2]))
    return float(yaw), float(np.degrees(np.arcsin(np.clip(normal[1], -1, 1))))


def look_of(face: FaceFound) -> Look:
    """Return where a face is turned."""
    yaw, pitch = turn_of(face)
    over = max(abs(yaw) - MOST_YAW_DEG, abs(pitch - LEAN_DEG) - MOST_PITCH_DEG)
    return Look(AWAY if over > 0 else HERE, min(1.0, 0.5 + 0.5 * abs(over) / SURE_DEG))


def height_of(face: FaceFound) -> float:
    """Return the height of a face in pixels; its width shrinks when it turns away."""
    return float(np.linalg.norm(face.points[CHIN, :2] - face.points[FOREHEAD, :2]))
