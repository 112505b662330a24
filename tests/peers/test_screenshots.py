"""Pictures of a page of a running server."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from scripts.take_screenshots import SCHEMES, SIZES, take_all
from tests.system import missing


@pytest.mark.browser
async def test_a_page_is_taken_at_each_size_and_in_each_scheme(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        missing("chromium")
    await take_all(tmp_path, ["omni"])
    taken = {path.name: Image.open(path).convert("L") for path in tmp_path.iterdir()}
    assert sorted(taken) == sorted(f"omni-{size}-{scheme}.webp" for size in SIZES for scheme in SCHEMES)
    for size, viewport in SIZES.items():
        light, dark = (taken[f"omni-{size}-{scheme}.webp"] for scheme in SCHEMES)
        assert light.size == dark.size == (viewport["width"], viewport["height"])
        edge = (5, viewport["height"] // 2)
        assert light.getpixel(edge) > dark.getpixel(edge) + 100
