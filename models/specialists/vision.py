"""See the caller through their camera: how many faces, looking here or away, a smile, what a hand does.

Input: frames of one caller's camera. Output: one ``VisionPayload`` for each frame. Of several hands the one
with the surest gesture counts, of several faces the largest one. ``models.specialists.vision_networks`` finds
faces and hands, ``vision_faces``, ``vision_smile`` and ``vision_gestures`` interpret them. Faces are
judged every ``FACES_EVERY_US``, since a look lasts longer than a gesture begins; frames in between have the
faces of the last one. What lasts, begins and ends is decided by ``processors.fusion.seen_states``.

Nothing of a picture is kept, and no person is recognised.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydantic import Field

from parley.core.errors import EngineError
from parley.core.files import require_hashes
from parley.core.pinned_models import PINNED_MODELS
from parley.core.strict_model import StrictModel
from parley.core.timeline import Source, VisionPayload
from parley.models.specialists import CameraFrame, Finding
from parley.models.specialists.vision_faces import height_of, look_of
from parley.models.specialists.vision_gestures import gesture_of
from parley.models.specialists.vision_networks import ENGINE, VisionNetworks
from parley.models.specialists.vision_smile import smile_of

# Both hands of the caller and of one person next to them; of faces, a family in front of one camera.
MOST_FACES, MOST_HANDS = 6, 3
# Less than two intervals of frames while the caller speaks.
FACES_EVERY_US = 350_000
SMILING = "smiling"
# Confidence from which a smile is reported: a mouth 0.69 times as wide as the eyes are apart.
SMILE_FROM = 0.65


class VisionSpecialistSettings(StrictModel):
    """Weights of the specialist, and what it reports."""

    models_dir: Path = Field(
        Path("models-cache"), description="folder of the weights (``make models ARGS=vision``)"
    )
    smile_from: float | None = Field(
        SMILE_FROM,
        ge=0.5,
        le=1,
        description="confidence from which the largest face is reported as smiling; `null`: never",
    )

    @property
    def folder(self) -> Path:
        """Folder of the weights."""
        return self.models_dir / PINNED_MODELS[ENGINE].folder

    def check(self) -> None:
        """Check the files, as ``core.files.Checked`` requires.

        Raises:
            ModelFileError: one is missing, or differs from the one that was tested.
        """
        require_hashes(ENGINE, self.folder, PINNED_MODELS[ENGINE].sha256)


class VisionSpecialist:
    """Specialist of the row ``vision``. Thread-safe.

    Raises:
        ModelFileError: a file of the weights is missing or altered.
        EngineError: the networks do not load.
    """

    source = Source.VISION

    def __init__(self, settings: VisionSpecialistSettings | None = None) -> None:
        chosen = settings or VisionSpecialistSettings()
        chosen.check()
        self._networks = VisionNetworks(chosen.folder)
        self._smile_from = chosen.smile_from
        # The first run of a network prepares it.
        VisionStream(self._networks).look(CameraFrame(np.zeros((48, 64, 3), np.uint8), 0))

    def open_stream(self) -> "VisionStream":
        """Return a stream for a caller."""
        return VisionStream(self._networks, self._smile_from)


@dataclass(frozen=True, slots=True)
class _Faces:
    """Faces of a frame: their number, and the look and the expression of the largest one."""

    at_us: int
    count: int
    looking: str | None
    confidence: float
    affect: str | None = None


class VisionStream:
    """Judgement of one caller's frames.

    Args:
        networks: find faces and hands.
        smile_from: confidence from which a smile is reported; None: never.
    """

    def __init__(self, networks: VisionNetworks, smile_from: float | None = SMILE_FROM) -> None:
        self._networks, self._smile_from = networks, smile_from
        self._faces: _Faces | None = None

    def look(self, frame: CameraFrame) -> tuple[Finding, ...]:
        """Return the finding about a frame.

        Raises:
            EngineError: the frame is no picture.
        """
        pixels, at_us = frame.pixels, frame.captured_us
        if pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size or pixels.dtype != np.uint8:
            raise EngineError(f"{pixels.shape} is no RGB picture", engine=ENGINE, retryable=False)
        height, width = pixels.shape[:2]
        faces = self._faces
        if faces is None or not 0 <= at_us - faces.at_us < FACES_EVERY_US:
            faces = self._faces = self._found_faces(pixels, at_us)
        gestures = [gesture_of(hand) for hand in self._networks.hands(pixels, MOST_HANDS)]
        gesture = max(
            (each for each in gestures if each is not None), key=lambda each: each.confidence, default=None
        )
        at = None
        if gesture is not None and gesture.tip is not None:
            at = _part(gesture.tip[0], width), _part(gesture.tip[1], height)
        seen = VisionPayload(
            at_us,
            at_us,
            gesture=None if gesture is None else gesture.name,
            facial_affect=faces.affect,
            faces=faces.count,
            looking=faces.looking,
            at=at,
        )
        if gesture is not None:
            return (Finding(gesture.confidence, visual=seen),)
        return (Finding(faces.confidence, visual=seen),)

    def _found_faces(self, pixels: np.ndarray, at_us: int) -> "_Faces":
        found = sorted(self._networks.faces(pixels, MOST_FACES), key=height_of)
        if not found:
            # That no face was found is not sure: one in profile or in the dark is missed.
            return _Faces(at_us, 0, None, 0.5)
        largest = found[-1]
        look = look_of(largest)
        smiles = self._smile_from is not None and smile_of(largest) * largest.score >= self._smile_from
        affect = SMILING if smiles else None
        return _Faces(at_us, len(found), look.towards, look.confidence * largest.score, affect)

    def close(self) -> None:
        """Forget the caller."""
        self._faces = None


def _part(pixels: float, whole: int) -> float:
    """Return a place as a part of the picture: a finger tip may be outside of it."""
    return round(min(1.0, max(0.0, pixels / whole)), 3)
