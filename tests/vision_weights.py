"""Weights of the specialist of the camera, where ``parley models vision`` has fetched them."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from parley.core.errors import ModelFileError
from parley.models.specialists.vision import VisionSpecialistSettings
from tests.peers.server import ROOT

SETTINGS = VisionSpecialistSettings(models_dir=ROOT / "models-cache")


def require_weights() -> Path:
    """Return their folder; skip the test without them: they come in a package of 35 MB."""
    if find_spec("ai_edge_litert") is None:
        pytest.skip("LiteRT is not installed: run `parley models vision`")
    try:
        SETTINGS.check()
    except ModelFileError as error:
        pytest.skip(str(error))
    return SETTINGS.folder
