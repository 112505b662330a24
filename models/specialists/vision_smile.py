"""Decide how likely a face smiles, by the landmarks of its mouth. Pure.

A smile pulls the corners of the mouth apart and keeps them near the height of the upper lip; a mouth that
speaks or shouts takes them down with the jaw. At rest a mouth is 0.57 to 0.60 times as wide as the outer
corners of the eyes are apart, give or take 0.04 (Farkas, Anthropometry of the Head and Face, 1994). In six
group pictures (npm package ``@vladmandic/face-api``) 16 faces without an open smile have up to 0.65, and two
with one that face the camera have 0.72 and 0.76. The limit is between them, so a faint smile is none.

A smile of the mouth is no mood, and a face that is turned away is not judged. Brows are not judged: the
pictures at hand show no frown on which a limit could be checked.
"""

import numpy as np

from parley.models.specialists.vision_faces import CHIN, FOREHEAD, HERE, look_of
from parley.models.specialists.vision_networks import FaceFound

RIGHT_EYE, LEFT_EYE, RIGHT_CORNER, LEFT_CORNER, UPPER_LIP = 33, 263, 61, 291, 0
# Width of the mouth, in distances of the eyes, that is as likely a smile as not, and surely one.
UNSURE_WIDTH, SURE_WIDTH = 0.66, 0.76
# Greatest depth of the mouth's corners under the upper lip, in the same unit.
MOST_DROP = 0.12


def smile_of(face: FaceFound) -> float:
    """Return the confidence that a face smiles: 0.5 to 1; 0 for one that does not, or is turned away."""
    if look_of(face).towards != HERE:
        return 0.0
    points = face.points.astype(np.float64)
    across = points[LEFT_EYE] - points[RIGHT_EYE]
    apart = max(float(np.linalg.norm(across)), 1e-9)
    across = across / apart
    down = points[CHIN] - points[FOREHEAD]
    down = down - (down @ across) * across
    down = down / max(float(np.linalg.norm(down)), 1e-9)
    corners = points[[RIGHT_CORNER, LEFT_CORNER]]
    width = float(np.linalg.norm(corners[1] - corners[0])) / apart
    drop = float(np.mean((corners - points[UPPER_LIP]) @ down)) / apart
    if width < UNSURE_WIDTH or drop > MOST_DROP:
        return 0.0
    return min(1.0, 0.5 + 0.5 * (width - UNSURE_WIDTH) / (SURE_WIDTH - UNSURE_WIDTH))
