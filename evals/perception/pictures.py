"""Photographs of people that packages ship, with what a person sees in them.

The labels were written by looking at the pictures. No limit of the specialist was chosen on them: the limits
of a face's turn and of a mouth's width were compared with others (six group pictures of the npm package
``@vladmandic/face-api``), those of a finger's bend are anatomy. Each picture is judged mirrored as well,
which exchanges left and right. The pictures belong to their authors and are only fetched, into the cache of
``evals.human``.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from parley.core.errors import ConfigError
from parley.evals.human.archives import Archive, RegistryClient, fetch, members

# What a camera of a call sends, and the specialist gets.
LONGEST_PX = 640

ULTRALYTICS = Archive(
    "ultralytics",
    RegistryClient.PIP,
    "ultralytics==8.4.190",
    "ultralytics-8.4.190-py3-none-any.whl",
    "bd309728efa168af64d39040136828edd2dbcb4aeceb4510bdff4f3ca0ea01b8",
)
SCIKIT_IMAGE = Archive(
    "scikit-image",
    RegistryClient.PIP,
    "scikit-image==0.26.0",
    "scikit_image-0.26.0-cp311-cp311-manylinux_2_24_x86_64.manylinux_2_28_x86_64.whl",
    "74aa5518ccea28121f57a95374581d3b979839adc25bb03f289b1bc9b99c58af",
)
FACE_RECOGNITION = Archive(
    "face_recognition",
    RegistryClient.PIP_SOURCE,
    "face_recognition==1.3.0",
    "face_recognition-1.3.0.tar.gz",
    "5e5efdd1686aa566af0d3cc1313b131e4b197657a8ffd03669e6d3fad92705ec",
)
INSIGHTFACE = Archive(
    "insightface",
    RegistryClient.PIP,
    "insightface==2.1",
    "insightface-2.1-py3-none-any.whl",
    "dcd58ee79d99d689572477315f3149353afd65a36dc575f597cbb217a7bde399",
)
# Middle of the pointing hand in its photograph, in parts of its sides, and the hand's width.
HAND_AT, HAND_WIDTH = (0.83, 0.61), 0.105
POINTING = "pointing to the right of the picture"
MIRRORED = {POINTING: "pointing to the left of the picture"}


@dataclass(frozen=True, slots=True)
class Photograph:
    """Photograph and what it shows.

    Attributes:
        archive: holds it.
        member: end of its path in the archive.
        faces: number of people whose face can be seen, from the front or the side.
        looking: "here" or "away": the look of the largest face; None without a face.
        gesture: of a hand; None without one.
        smiles: the largest face smiles.
    """

    archive: Archive
    member: str
    faces: int
    looking: str | None = None
    gesture: str | None = None
    smiles: bool = False

    @property
    def name(self) -> str:
        """File name."""
        return self.member.rpartition("/")[2]


PHOTOGRAPHS = (
    Photograph(SCIKIT_IMAGE, "skimage/data/astronaut.png", 1, "here", smiles=True),
    Photograph(FACE_RECOGNITION, "test_images/biden.jpg", 1, "here"),
    Photograph(FACE_RECOGNITION, "test_images/obama.jpg", 1, "here", smiles=True),
    # He speaks to people next to the camera: his head is turned by some 20 degrees.
    Photograph(FACE_RECOGNITION, "test_images/obama2.jpg", 1, "away"),
    Photograph(FACE_RECOGNITION, "test_images/obama3.jpg", 1, "here"),
    Photograph(FACE_RECOGNITION, "test_images/obama_partial_face.jpg", 1, "here", smiles=True),
    Photograph(FACE_RECOGNITION, "test_images/obama_partial_face2.jpg", 1, "here", smiles=True),
    # Two men at some metres, the one in front in profile: he points.
    Photograph(ULTRALYTICS, "assets/zidane.jpg", 2, "away", POINTING),
    # People far away in a street, and six around a table.
    Photograph(ULTRALYTICS, "assets/bus.jpg", 3, "away"),
    Photograph(INSIGHTFACE, "data/images/t1.jpg", 6, "away"),
    # A cat, things and places.
    Photograph(SCIKIT_IMAGE, "skimage/data/chelsea.png", 0),
    Photograph(SCIKIT_IMAGE, "skimage/data/coffee.png", 0),
    Photograph(SCIKIT_IMAGE, "skimage/data/rocket.jpg", 0),
    Photograph(SCIKIT_IMAGE, "skimage/data/motorcycle_left.png", 0),
    Photograph(SCIKIT_IMAGE, "skimage/data/hubble_deep_field.jpg", 0),
    Photograph(SCIKIT_IMAGE, "skimage/data/page.png", 0),
)


def load(folder: Path) -> Iterator[tuple[Photograph, np.ndarray]]:
    """Yield each photograph with its pixels, uint8, (height, width, 3), RGB; fetch what is missing.

    Raises:
        ConfigError: an archive has another content than the pinned one.
        PeerError: an archive cannot be fetched.
    """
    contents: dict[tuple[str, str], bytes] = {}
    for archive in dict.fromkeys(each.archive for each in PHOTOGRAPHS):
        fetch(archive, folder)
        wanted = [each for each in PHOTOGRAPHS if each.archive is archive]
        for name, content in members(archive, folder):
            for each in wanted:
                if name.endswith(each.member):
                    contents[archive.name, each.member] = content
    for each in PHOTOGRAPHS:
        found = contents.get((each.archive.name, each.member))
        if found is None:
            raise ConfigError(f"{each.archive.file} has no {each.member}")
        with Image.open(io.BytesIO(found)) as opened:
            image = opened.convert("RGB")
        image.thumbnail((LONGEST_PX, LONGEST_PX))
        yield each, np.asarray(image)
