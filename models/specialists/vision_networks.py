"""Find faces and hands in a picture, with the landmarks of each: the four networks of MediaPipe.

Input: a picture, uint8, (height, width, 3), RGB. Output: ``FaceFound`` and ``HandFound``, with landmarks in
pixels of that picture. Each of the two kinds has a detector, which sees the whole picture in a small square,
and a network of landmarks, which sees a square around each thing that was found, turned upright.

The weights come from the package of MediaPipe 0.10.21 (``core.pinned_models``) and are run by LiteRT. The
steps around the networks (anchors, suppression, squares) follow the graphs of that release, whose files have
the numbers: modules/face_detection, face_landmark, palm_detection and hand_landmark. The package itself is
not installed: it needs numpy 1 and protobuf 4. ``tests/unit/models/specialists/test_vision.py`` compares the
results with those of the package.

The lite networks of hands are used: the full ones take 3 ms more, and missed the only photographed hand that
could be had behind a video encoder, which the lite ones saw in each frame.

About 3 ms for faces and 5 to 8 ms for hands, on one core; thread-safe by a lock.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from parley.core.errors import EngineError
from parley.core.installation import fetch_command

ENGINE = "vision"
FACE_DETECTOR, FACE_LANDMARKS = "face_detection_full_range_sparse.tflite", "face_landmark.tflite"
PALM_DETECTOR, HAND_LANDMARKS = "palm_detection_lite.tflite", "hand_landmark_lite.tflite"
FACE_POINTS, HAND_POINTS = 468, 21
# Cells of each detector: pixels of a side, and anchors (SsdAnchorsCalculator with the stride 4; with the
# strides 8, 16, 16 and 16, and two anchors in each layer).
FACE_CELLS, PALM_CELLS = ((4, 1),), ((8, 2), (16, 6))
# Least score of a detection, and of the landmarks' network that there is a face or a hand at all. The values
# of the graphs.
LEAST_SCORE = 0.5
# Overlap (intersection over union) from which two detections are one thing.
SAME_FROM = 0.3


@dataclass(frozen=True, slots=True)
class FaceFound:
    """Face in a picture.

    Attributes:
        score: 0..1, of the landmarks' network.
        points: float32, (468, 3), pixels; the depth in the same unit, smaller is nearer.
    """

    score: float
    points: np.ndarray


@dataclass(frozen=True, slots=True)
class HandFound:
    """Hand in a picture.

    Attributes:
        score: 0..1, of the landmarks' network.
        points: float32, (21, 2), pixels.
        shape: float32, (21, 3), metres around the middle of the hand, axes as those of the picture; the
            depth is smaller for what is nearer.
    """

    score: float
    points: np.ndarray
    shape: np.ndarray


@dataclass(frozen=True, slots=True)
class _Detection:
    """Detection in pixels: box (left, top, right, bottom) and key points, (count, 2)."""

    score: float
    box: np.ndarray
    points: np.ndarray


class _Network:
    """Network that LiteRT runs on one thread."""

    def __init__(self, path: Path) -> None:
        # Here, and not with the module: the package is optional, and takes 60 MB.
        from ai_edge_litert.interpreter import Interpreter

        self._runtime: Any = Interpreter(model_content=path.read_bytes(), num_threads=1)
        self._runtime.allocate_tensors()
        self._input = self._runtime.get_input_details()[0]
        self._outputs = [each["index"] for each in self._runtime.get_output_details()]
        self.side = int(self._input["shape"][1])

    def run(self, picture: np.ndarray) -> list[np.ndarray]:
        """Return the outputs for float32, (side, side, 3)."""
        self._runtime.set_tensor(self._input["index"], picture[np.newaxis])
        self._runtime.invoke()
        return [np.asarray(self._runtime.get_tensor(index), np.float32) for index in self._outputs]


class _Detector:
    """Network that finds one kind of thing in a whole picture.

    Args:
        path: of the weights.
        key_points: number of key points of a detection.
        low: value of black in the input; white is 1.
        cells: pixels of a cell's side and anchors in it, for each layer.
    """

    def __init__(self, path: Path, *, key_points: int, low: float, cells: Sequence[tuple[int, int]]) -> None:
        self._network = _Network(path)
        self._anchors = anchors(self._network.side, cells)
        self._key_points, self._low = key_points, low

    def find(self, picture: np.ndarray, most: int) -> list[_Detection]:
        """Return at most ``most`` things, the surest first."""
        side = self._network.side
        height, width = picture.shape[:2]
        scale = side / max(height, width)
        small = cv2.resize(
            picture,
            (max(1, round(width * scale)), max(1, round(height * scale))),
            interpolation=cv2.INTER_AREA if scale < 1 else cv2.INTER_LINEAR,
        )
        top, left = (side - small.shape[0]) // 2, (side - small.shape[1]) // 2
        square = np.full((side, side, 3), self._low, np.float32)
        square[top : top + small.shape[0], left : left + small.shape[1]] = (
            small.astype(np.float32) * ((1 - self._low) / 255) + self._low
        )
        outputs = self._network.run(square)
        raw, scores = sorted((each[0] for each in outputs), key=lambda each: -each.shape[-1])
        scores = _probability(scores[:, 0])
        likely = np.flatnonzero(scores >= LEAST_SCORE)
        # Centre, size and key points in units of the square, around their anchor.
        values = raw[likely].reshape(len(likely), raw.shape[-1] // 2, 2) / side
        values[:, [0, *range(2, 2 + self._key_points)]] += self._anchors[likely][:, np.newaxis]
        values[:, 1] /= 2
        boxes = np.concatenate([values[:, 0] - values[:, 1], values[:, 0] + values[:, 1]], axis=1)
        offset = np.array([left, top], np.float32)
        found = [
            _Detection(
                float(score),
                (box.reshape(2, 2) * side - offset).reshape(4) / scale,
                (points * side - offset) / scale,
            )
            for score, box, points in zip(scores[likely], boxes, values[:, 2:], strict=True)
        ]
        return _merged(found)[:most]


class VisionNetworks:
    """The four networks.

    Args:
        folder: holds the weights.

    Raises:
        EngineError: the package is not installed, or a file does not load.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = threading.Lock()
        try:
            self._face_detector = _Detector(folder / FACE_DETECTOR, key_points=6, low=-1.0, cells=FACE_CELLS)
            self._palm_detector = _Detector(folder / PALM_DETECTOR, key_points=7, low=0.0, cells=PALM_CELLS)
            self._face_landmarks = _Network(folder / FACE_LANDMARKS)
            self._hand_landmarks = _Network(folder / HAND_LANDMARKS)
        except (ImportError, OSError, ValueError, RuntimeError) as error:
            raise EngineError(
                f"the networks do not load ({error}): run `{fetch_command(ENGINE)}`",
                engine=ENGINE,
                retryable=False,
            ) from error

    def faces(self, picture: np.ndarray, most: int) -> list[FaceFound]:
        """Return the faces of a picture, at most ``most``."""
        with self._lock:
            found = [self._face(picture, each) for each in self._face_detector.find(picture, most)]
        return [each for each in found if each is not None]

    def hands(self, picture: np.ndarray, most: int) -> list[HandFound]:
        """Return the hands of a picture, at most ``most``."""
        with self._lock:
            found = [self._hand(picture, each) for each in self._palm_detector.find(picture, most)]
        return [each for each in found if each is not None]

    def _face(self, picture: np.ndarray, found: _Detection) -> FaceFound | None:
        right_eye, left_eye = found.points[:2]
        angle = float(np.arctan2(left_eye[1] - right_eye[1], left_eye[0] - right_eye[0]))
        centre = (found.box[:2] + found.box[2:]) / 2
        size = 1.5 * float(np.max(found.box[2:] - found.box[:2]))
        square, back = _square(picture, centre, size, angle, self._face_landmarks.side)
        outputs = self._face_landmarks.run(square)
        points, flag = sorted(outputs, key=lambda each: -each.size)
        score = float(_probability(flag.reshape(())))
        if score < LEAST_SCORE:
            return None
        return FaceFound(score, _placed(points.reshape(FACE_POINTS, 3), back))

    def _hand(self, picture: np.ndarray, found: _Detection) -> HandFound | None:
        wrist, middle = found.points[0], found.points[2]
        # The square's up is the way from the wrist to the middle finger.
        angle = float(np.arctan2(middle[1] - wrist[1], middle[0] - wrist[0]) + np.pi / 2)
        box_size = found.box[2:] - found.box[:2]
        # Half a box further, from the palm towards the fingers.
        shift = 0.5 * box_size[1] * np.array([np.sin(angle), -np.cos(angle)])
        centre = (found.box[:2] + found.box[2:]) / 2 + shift
        size = 2.6 * float(np.max(box_size))
        square, back = _square(picture, centre, size, angle, self._hand_landmarks.side)
        points, score, _, shape = self._hand_landmarks.run(square)
        if float(score.reshape(())) < LEAST_SCORE:
            return None
        turned = shape.reshape(HAND_POINTS, 3).copy()
        cos, sin = np.cos(angle), np.sin(angle)
        turned[:, :2] = turned[:, :2] @ np.array([[cos, sin], [-sin, cos]])
        return HandFound(
            float(score.reshape(())), _placed(points.reshape(HAND_POINTS, 3), back)[:, :2], turned
        )


def anchors(side: int, cells: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the middles of the cells that a detector judges, float32, (count, 2), in units of the square."""
    found = []
    for pixels, each in cells:
        count = side // pixels
        middles = (np.arange(count, dtype=np.float32) + 0.5) / count
        grid = np.stack(np.meshgrid(middles, middles), axis=-1).reshape(-1, 2)
        found.append(np.repeat(grid, each, axis=0))
    return np.concatenate(found)


def _probability(logits: np.ndarray) -> np.ndarray:
    """Return probabilities of float32 log odds."""
    result: np.ndarray = 1 / (1 + np.exp(-np.clip(logits, -80, 80)))
    return result


def _merged(found: Sequence[_Detection]) -> list[_Detection]:
    """Return one detection for each thing: the mean of those that overlap, weighted by their scores."""
    waiting = sorted(found, key=lambda each: -each.score)
    merged = []
    while waiting:
        best = waiting[0]
        same = [each for each in waiting if each is best or _overlap(best.box, each.box) > SAME_FROM]
        weights = np.array([each.score for each in same])
        weights /= weights.sum()
        box = sum((w * each.box for w, each in zip(weights, same, strict=True)), np.zeros(4))
        points = sum(
            (w * each.points for w, each in zip(weights, same, strict=True)), np.zeros(best.points.shape)
        )
        merged.append(_Detection(best.score, np.asarray(box), np.asarray(points)))
        waiting = [each for each in waiting if not any(each is one for one in same)]
    return merged


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    """Return the intersection of two boxes over their union."""
    shared = np.minimum(one[2:], other[2:]) - np.maximum(one[:2], other[:2])
    if (shared <= 0).any():
        return 0.0
    inside = float(np.prod(shared))
    return inside / float(np.prod(one[2:] - one[:2]) + np.prod(other[2:] - other[:2]) - inside)


def _square(
    picture: np.ndarray, centre: np.ndarray, size: float, angle: float, side: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return a turned square of a picture, float32 0..1, (side, side, 3), and the way back, (2, 3)."""
    scale = size / side
    cos, sin = np.cos(angle) * scale, np.sin(angle) * scale
    half = side / 2
    back = np.array(
        [
            [cos, -sin, centre[0] - half * (cos - sin)],
            [sin, cos, centre[1] - half * (sin + cos)],
        ]
    )
    square = cv2.warpAffine(
        picture,
        back,
        (side, side),
        flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
        borderMode=cv2.BORDER_REPLICATE,
    )
    return square.astype(np.float32) / 255, back


def _placed(points: np.ndarray, back: np.ndarray) -> np.ndarray:
    """Return points of a square, (count, 3), in pixels of the picture; the depth in the same unit."""
    placed: np.ndarray = np.empty_like(points)
    placed[:, :2] = points[:, :2] @ back[:, :2].T.astype(np.float32) + back[:, 2].astype(np.float32)
    placed[:, 2] = points[:, 2] * float(np.hypot(back[0, 0], back[1, 0]))
    return placed
