"""The networks of the camera's specialist, on a photograph and on drawn hands.

The landmarks to which these are compared are those of MediaPipe 0.10.21 itself, on the same pictures. The
photograph is NASA's portrait of Eileen Collins (public domain), as scikit-image ships it, reduced.
"""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from parley.core.errors import EngineError, ModelFileError
from parley.core.timeline import Source, VisionPayload
from parley.models.specialists import CameraFrame
from parley.models.specialists.vision import VisionSpecialist, VisionSpecialistSettings, VisionStream
from parley.models.specialists.vision_networks import FACE_CELLS, PALM_CELLS, VisionNetworks, anchors
from tests.drawn_hand import LEFT, RIGHT, UP, empty, pointing
from tests.vision_weights import SETTINGS, require_weights

PORTRAIT = Path(__file__).parents[3] / "golden" / "astronaut.jpg"
# Nose, forehead, chin and both cheeks.
FACE = {
    1: (113.7, 94.8),
    10: (116.9, 43.0),
    152: (112.0, 132.5),
    234: (76.0, 77.4),
    454: (154.3, 81.1),
}
# Wrist, base and tip of the index finger, tip of the little finger.
HANDS = {
    UP: {0: (320.6, 305.3), 5: (293.7, 229.8), 8: (286.4, 145.2), 20: (344.3, 241.3)},
    RIGHT: {0: (199.8, 177.8), 5: (272.8, 153.7), 8: (354.9, 145.8), 20: (259.1, 203.8)},
    LEFT: {0: (440.9, 181.0), 5: (367.6, 207.5), 8: (283.9, 215.3), 20: (382.7, 155.4)},
}


@pytest.fixture(scope="module")
def networks() -> VisionNetworks:
    return VisionNetworks(require_weights())


@pytest.fixture(scope="module")
def portrait() -> np.ndarray:
    with Image.open(PORTRAIT) as opened:
        return np.asarray(opened.convert("RGB"))


def seen(networks: VisionNetworks, pixels: np.ndarray) -> VisionPayload:
    (found,) = VisionStream(networks).look(CameraFrame(pixels, 5))
    assert found.source is Source.VISION and found.visual is not None and 0 < found.confidence <= 1
    assert (found.visual.start_us, found.visual.end_us) == (5, 5)
    return found.visual


def test_a_face_has_the_landmarks_that_mediapipe_finds(networks: VisionNetworks, portrait: np.ndarray):
    (face,) = networks.faces(portrait, 6)
    for point, place in FACE.items():
        assert face.points[point, :2] == pytest.approx(place, abs=3)


@pytest.mark.parametrize("turn_deg", HANDS)
def test_a_hand_has_the_landmarks_that_mediapipe_finds(turn_deg: int, networks: VisionNetworks):
    (hand,) = networks.hands(pointing(turn_deg), 3)
    for point, place in HANDS[turn_deg].items():
        # On photographs they agree within 2 to 10 px; a drawing is further from what the networks learned.
        assert hand.points[point] == pytest.approx(place, abs=14)


def test_a_face_that_looks_into_the_camera_looks_here(networks: VisionNetworks, portrait: np.ndarray):
    found = seen(networks, portrait)
    assert (found.faces, found.looking, found.gesture) == (1, "here", None)


def test_a_smile_is_reported_from_its_confidence_on(networks: VisionNetworks, portrait: np.ndarray):
    assert seen(networks, portrait).facial_affect == "smiling"
    frame = CameraFrame(portrait, 5)
    for smile_from in (1.0, None):
        (found,) = VisionStream(networks, smile_from).look(frame)
        assert found.visual is not None and found.visual.facial_affect is None


def test_two_faces_are_counted(networks: VisionNetworks, portrait: np.ndarray):
    assert seen(networks, np.hstack([portrait, portrait])).faces == 2


@pytest.mark.parametrize(
    ("turn_deg", "where", "at"),
    [
        (UP, "up", (0.45, 0.41)),
        (RIGHT, "to the right of the picture", (0.55, 0.41)),
        (LEFT, "to the left of the picture", (0.44, 0.59)),
    ],
)
def test_a_hand_points_where_its_finger_is(
    turn_deg: int, where: str, at: tuple[float, float], networks: VisionNetworks
):
    found = seen(networks, pointing(turn_deg))
    assert found.gesture == f"pointing {where}" and found.at == pytest.approx(at, abs=0.03)
    assert (found.faces, found.looking) == (0, None)


@pytest.mark.parametrize("size", [(1, 1), (2, 2_000), (640, 360)])
def test_a_picture_without_faces_and_hands_says_nothing(size: tuple[int, int], networks: VisionNetworks):
    found = seen(networks, np.full((size[1], size[0], 3), 130, np.uint8))
    assert found == VisionPayload(5, 5, faces=0)
    assert seen(networks, empty()).gesture is None


@pytest.mark.parametrize(
    "pixels", [np.zeros((0, 4, 3), np.uint8), np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), np.float32)]
)
def test_what_is_no_picture_is_an_error(pixels: np.ndarray, networks: VisionNetworks):
    with pytest.raises(EngineError):
        VisionStream(networks).look(CameraFrame(pixels, 0))


def test_the_specialist_loads_the_pinned_files():
    require_weights()
    stream = VisionSpecialist(SETTINGS).open_stream()
    assert stream.look(CameraFrame(empty(), 0))
    stream.close()


def test_missing_and_altered_weights_are_named_with_the_command(tmp_path: Path):
    settings = VisionSpecialistSettings(models_dir=tmp_path)
    with pytest.raises(ModelFileError, match="models .*vision"):
        VisionSpecialist(settings)
    settings.folder.mkdir(parents=True)
    for name in (
        "face_detection_full_range_sparse",
        "face_landmark",
        "palm_detection_lite",
        "hand_landmark_lite",
    ):
        (settings.folder / f"{name}.tflite").write_bytes(b"something else")
    with pytest.raises(ModelFileError, match="models .*vision"):
        VisionSpecialist(settings)
    with pytest.raises(EngineError, match="models .*vision"):
        VisionNetworks(settings.folder)


def test_anchors_are_in_the_middle_of_their_cells():
    palms, faces = anchors(192, PALM_CELLS), anchors(192, FACE_CELLS)
    assert palms.shape == (2_016, 2) and faces.shape == (2_304, 2)
    assert palms[0] == pytest.approx((4 / 192, 4 / 192)) and faces[0] == pytest.approx((2 / 192, 2 / 192))
    # The second row begins after two anchors for each of 24 cells.
    assert palms[48] == pytest.approx((4 / 192, 12 / 192))
    assert palms[-1] == pytest.approx((184 / 192, 184 / 192))
