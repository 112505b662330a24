"""A drawn hand with a stretched index finger, which the networks of MediaPipe take for a pointing hand.

The proportions were found by a search for a drawing that the networks take for what it shows. So it proves
that frames, networks, rules and reports are connected rightly, and nothing about photographs.
"""

import cv2
import numpy as np

WIDTH, HEIGHT = 640, 360
SKIN, EDGE, NAIL, SLEEVE, WALL = (
    (224, 172, 138),
    (165, 112, 88),
    (240, 205, 185),
    (60, 70, 110),
    (120, 130, 140),
)
PALM, WRIST, FINGER, FOLDED, BACK, LEAN, LENGTH = 35, 51, 21, 30, 29, -8, 106
# Turn of the hand, which points up at first, clockwise in degrees.
UP, RIGHT, DOWN, LEFT = 0, 90, 180, 270
SCALE = 0.8


def empty() -> np.ndarray:
    """Return the picture without a hand: uint8, (HEIGHT, WIDTH, 3), RGB."""
    return np.full((HEIGHT, WIDTH, 3), WALL, np.uint8)


def pointing(turn_deg: int, *, at: tuple[int, int] = (WIDTH // 2, HEIGHT // 2)) -> np.ndarray:
    """Return a picture of a hand that points; ``at`` is the middle of hand and arm."""
    picture = empty()
    turn = np.radians(turn_deg)
    cos, sin = np.cos(turn), np.sin(turn)
    middle = (at[0] - sin * 60, at[1] + cos * 60)

    def place(x: float, y: float) -> tuple[int, int]:
        x, y = x * SCALE, y * SCALE
        return round(middle[0] + cos * x - sin * y), round(middle[1] + sin * x + cos * y)

    def limb(
        begin: tuple[float, float], end: tuple[float, float], width: int, colour: tuple[int, int, int] = SKIN
    ) -> None:
        wide = int(width * SCALE)
        cv2.line(picture, place(*begin), place(*end), EDGE, wide + 4, cv2.LINE_AA)
        cv2.line(picture, place(*begin), place(*end), colour, wide, cv2.LINE_AA)

    limb((0, 320), (0, 150), 66, SLEEVE)
    limb((0, 170), (0, 80), WRIST)
    corners = [(-PALM, 70), (PALM, 70), (PALM + 6, -10), (-PALM - 6, -14)]
    palm = np.array([place(*corner) for corner in corners], np.int32)
    cv2.fillConvexPoly(picture, palm, SKIN, cv2.LINE_AA)
    cv2.polylines(picture, [palm], True, SKIN, int(18 * SCALE), cv2.LINE_AA)
    for x, folded in ((-PALM / 3, FOLDED), (PALM / 3, FOLDED - 3), (PALM, FOLDED - 10)):
        limb((x, -14), (x, -14 - folded), FINGER)
        limb((x, -14 - folded), (x, -14 - folded + BACK), FINGER - 3)
    limb((-PALM, -14), (-PALM + LEAN, -14 - LENGTH), FINGER)
    cv2.line(picture, place(-PALM, 0), place(-PALM, -20), SKIN, int(FINGER * SCALE), cv2.LINE_AA)
    nail = int(5 * SCALE), int(7 * SCALE)
    cv2.ellipse(picture, place(-PALM + LEAN, -16 - LENGTH), nail, turn_deg, 0, 360, NAIL, -1, cv2.LINE_AA)
    limb((-PALM - 8, 40), (-PALM + 21, 40), FINGER + 2)
    limb((-PALM + 21, 40), (-PALM + 27, 34), FINGER)
    blurred: np.ndarray = cv2.GaussianBlur(picture, (5, 5), 0)
    return blurred
