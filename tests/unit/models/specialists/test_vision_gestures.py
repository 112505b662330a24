"""Rules over the landmarks of a hand, on hands that are put together from the bends of their joints."""

import numpy as np
import pytest

from parley.models.specialists.vision_gestures import gesture_of
from parley.models.specialists.vision_networks import HAND_POINTS, HandFound

STRAIGHT, BENT = 10.0, 80.0
# Place of a finger's base on the palm and its length in centimetres, for an upright hand seen from its back.
BASES = ((-2.5, -8.0), (0.0, -8.5), (2.2, -8.0), (4.2, -7.0))
LENGTHS = (7.5, 8.3, 7.6, 6.0)


def hand(
    *bends_deg: float,
    thumb: tuple[float, float] = (1.5, -5.5),
    turn_deg: float = 0.0,
    tilt_deg: float = 0.0,
    score: float = 1.0,
) -> HandFound:
    """Return a hand.

    Args:
        bends_deg: bend at the two joints of each finger after the thumb.
        thumb: the place of the thumb's tip on the upright hand.
        turn_deg: turn of the hand in the picture, clockwise.
        tilt_deg: turn of the upright hand towards the camera.
        score: of the landmarks.
    """
    points = np.zeros((HAND_POINTS, 3))
    # The thumb is one straight line.
    points[1] = (-2.0, -2.0, 0.0)
    for number in range(1, 4):
        points[1 + number] = points[1] + (np.array([*thumb, 0.0]) - points[1]) * number / 3
    for finger, (base, length, bend) in enumerate(zip(BASES, LENGTHS, bends_deg, strict=True)):
        at, angle = np.array([*base, 0.0]), 0.0
        points[5 + 4 * finger] = at
        for joint, part in enumerate((0.5, 0.3, 0.2)):
            angle += 0.0 if joint == 0 else np.radians(bend)
            # Fingers bend away from a camera that sees the back of the hand.
            at = at + part * length * np.array([0.0, -np.cos(angle), np.sin(angle)])
            points[6 + 4 * finger + joint] = at
    tilt, turn = np.radians(tilt_deg), np.radians(turn_deg)
    tilted = np.array([[1, 0, 0], [0, np.cos(tilt), -np.sin(tilt)], [0, np.sin(tilt), np.cos(tilt)]])
    turned = np.array([[np.cos(turn), -np.sin(turn), 0], [np.sin(turn), np.cos(turn), 0], [0, 0, 1]])
    points = points @ tilted.T @ turned.T
    return HandFound(score, (points[:, :2] * 10 + 300).astype(np.float32), (points / 100).astype(np.float32))


FIST = (BENT, BENT, BENT, BENT)
POINTING = (STRAIGHT, BENT, BENT, BENT)
# A thumb that stands off, to the side of the index finger.
OFF = (-10.0, -3.0)


@pytest.mark.parametrize(
    ("turn_deg", "tilt_deg", "where"),
    [
        (0, 0, "up"),
        (90, 0, "to the right of the picture"),
        (180, 0, "down"),
        (-90, 0, "to the left of the picture"),
        (60, 0, "to the right of the picture"),
        (0, 80, "towards the camera"),
        (0, -80, "away from the camera"),
    ],
)
def test_a_stretched_index_finger_points(turn_deg: float, tilt_deg: float, where: str):
    shown = hand(*POINTING, turn_deg=turn_deg, tilt_deg=tilt_deg)
    found = gesture_of(shown)
    assert found is not None and found.name == f"pointing {where}"
    assert found.confidence == pytest.approx(1.0)
    assert found.tip == pytest.approx(tuple(shown.points[8]))


@pytest.mark.parametrize(
    ("shown", "name"),
    [
        (hand(*FIST, thumb=OFF, turn_deg=90), "thumbs up"),
        (hand(*FIST, thumb=OFF, turn_deg=-90), "thumbs down"),
        (hand(STRAIGHT, STRAIGHT, BENT, BENT), "2 fingers held up"),
        (hand(STRAIGHT, STRAIGHT, STRAIGHT, BENT), "3 fingers held up"),
        (hand(STRAIGHT, STRAIGHT, STRAIGHT, STRAIGHT, thumb=(-7.0, -5.0)), "open hand held up"),
    ],
)
def test_other_gestures_have_their_names(shown: HandFound, name: str):
    found = gesture_of(shown)
    assert found is not None and found.name == name and found.tip is None


@pytest.mark.parametrize(
    "shown",
    [
        hand(*FIST),
        # A thumb to the side says nothing.
        hand(*FIST, thumb=OFF),
        # Nor does one that lies along the fist.
        hand(*FIST, thumb=(-3.0, -10.0)),
        # A hand that rests: every finger half bent.
        hand(45, 45, 45, 45),
        # Fingers that hang down are not held up.
        hand(STRAIGHT, STRAIGHT, BENT, BENT, turn_deg=180),
        # The network is not sure that this is a hand.
        hand(*POINTING, score=0.3),
    ],
    ids=[
        "a fist",
        "a thumb to the side",
        "a thumb on the fist",
        "a hand at rest",
        "fingers that hang",
        "hardly a hand",
    ],
)
def test_a_hand_that_says_nothing_has_no_gesture(shown: HandFound):
    assert gesture_of(shown) is None


def test_a_finger_that_bends_is_less_certain():
    certain, less = gesture_of(hand(*POINTING)), gesture_of(hand(30, BENT, BENT, BENT))
    assert certain is not None and less is not None and less.confidence < certain.confidence
