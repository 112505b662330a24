"""Name what a hand does by rules over its landmarks: pointing and where to, thumbs up and down, counting.

Input: the landmarks of one hand (``HandFound``). Output: ``Gesture`` with a confidence, or None for a hand
that says nothing. Pure.

A finger is straight or bent by the angles at its joints in space, whatever the position of the hand: the
cosine is 1 for a straight joint and 0 for one at a right angle. A rule is as sure as its weakest finger,
times the score of the landmarks. The limits are chosen by the shape of a hand and not fitted: a stretched
finger bends by less than 20 degrees at each joint, a hand at rest by 45, a closed finger by more at one.

Directions are those of the picture, which the camera does not mirror: a hand that points to the left of the
picture points to the right of a person who faces the camera.
"""

from dataclasses import dataclass

import numpy as np

from parley.models.specialists.vision_networks import HandFound

WRIST, THUMB_TIP, INDEX_BASE, INDEX_TIP, MIDDLE_BASE, LITTLE_BASE = 0, 4, 5, 8, 9, 17
# Base, two joints and tip of each finger after the thumb.
FINGERS = ((5, 6, 7, 8), (9, 10, 11, 12), (13, 14, 15, 16), (17, 18, 19, 20))
THUMB = (1, 2, 3, 4)
# Cosine at the worse joint from which a finger is surely straight, and up to which it is surely bent.
STRAIGHT, BENT = 0.95, 0.6
# Largest angle between a direction and its name, as a cosine: 45 degrees.
TOWARDS = 0.707
# Least confidence of a gesture that is reported: a finger that is more straight than bent.
LEAST_CONFIDENCE = 0.5


@dataclass(frozen=True, slots=True)
class Gesture:
    """Gesture of one hand.

    Attributes:
        name: as the model reads it.
        confidence: 0..1.
        tip: the finger tip of a hand that points, in pixels; None for other gestures.
    """

    name: str
    confidence: float
    tip: tuple[float, float] | None = None


def gesture_of(hand: HandFound) -> Gesture | None:
    """Return the surest gesture of a hand; None when it makes none."""
    straight = [_straightness(hand.shape, finger) for finger in FINGERS]
    bent = [1 - each for each in straight]
    index, others = straight[0], bent[1:]
    thumb = _straightness(hand.shape, THUMB)
    found = [
        Gesture(
            f"pointing {direction_of(hand)}",
            min(index, *others),
            (float(hand.points[INDEX_TIP, 0]), float(hand.points[INDEX_TIP, 1])),
        )
    ]
    if (way := _thumb_way(hand)) is not None:
        found.append(Gesture(f"thumbs {way}", min(thumb, *bent)))
    if _points_up(hand):
        count = sum(each >= 0.5 for each in straight)
        sure = min(max(each, 1 - each) for each in straight)
        if count in (2, 3) and straight[0] >= 0.5:
            found.append(Gesture(f"{count} fingers held up", sure))
        elif count == 4:
            found.append(Gesture("open hand held up", min(sure, thumb)))
    best = max(found, key=lambda each: each.confidence)
    confidence = best.confidence * hand.score
    if confidence < LEAST_CONFIDENCE:
        return None
    return Gesture(best.name, confidence, best.tip)


def direction_of(hand: HandFound) -> str:
    """Return where the index finger points, in words of the picture."""
    way = hand.shape[INDEX_TIP] - hand.shape[INDEX_BASE]
    across, down, away = way / max(float(np.linalg.norm(way)), 1e-9)
    if away <= -TOWARDS:
        return "towards the camera"
    if away >= TOWARDS:
        return "away from the camera"
    if abs(across) >= abs(down):
        return f"to the {'right' if across > 0 else 'left'} of the picture"
    return "down" if down > 0 else "up"


def _straightness(shape: np.ndarray, joints: tuple[int, ...]) -> float:
    """Return how straight a finger is, 0..1, by the worse of its two joints."""
    parts = np.diff(shape[list(joints)], axis=0)
    parts /= np.maximum(np.linalg.norm(parts, axis=1, keepdims=True), 1e-9)
    cosine = float(np.min(np.sum(parts[1:] * parts[:-1], axis=1)))
    return float(np.clip((cosine - BENT) / (STRAIGHT - BENT), 0, 1))


def _thumb_way(hand: HandFound) -> str | None:
    """Return where the thumb points: "up", "down" or None."""
    way = hand.shape[THUMB_TIP] - hand.shape[THUMB[0]]
    way = way / max(float(np.linalg.norm(way)), 1e-9)
    side = hand.shape[INDEX_BASE] - hand.shape[LITTLE_BASE]
    # A thumb that lies on the fist, or along it, does not stand off to the side of the index finger.
    if float(way @ side) < TOWARDS * float(np.linalg.norm(side)):
        return None
    upwards = -float(way[1])
    return "up" if upwards >= TOWARDS else "down" if upwards <= -TOWARDS else None


def _points_up(hand: HandFound) -> bool:
    """Return whether the fingers are above the wrist."""
    way = hand.shape[MIDDLE_BASE] - hand.shape[WRIST]
    return bool(-way[1] >= TOWARDS * float(np.linalg.norm(way)))
