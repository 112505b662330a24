"""Pictures of the pages: they are taken of a running server, and the documents show all of them."""

import shutil
from pathlib import Path

import pytest
from PIL import Image

from scripts.take_screenshots import FOLDER, PAGES, SCHEMES, SIZES, take_all
from tests.system import missing

DOCUMENT = FOLDER.parent / "reference" / "pages.md"
NAMES = [f"{page}-{size}-{scheme}.webp" for page in PAGES for size in SIZES for scheme in SCHEMES]


def test_there_is_a_picture_of_every_page_and_the_document_shows_it() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)
    text = DOCUMENT.read_text()
    assert [name for name in NAMES if f"../screenshots/{name}" not in text] == []


@pytest.mark.browser
async def test_a_page_is_taken_at_each_size_and_in_each_scheme(tmp_path: Path) -> None:
    if shutil.which("chromium") is None:
        missing("chromium")
    await take_all(tmp_path, ["omni"])
    taken = {path.name: Image.open(path).convert("L") for path in tmp_path.iterdir()}
    assert sorted(taken) == sorted(name for name in NAMES if name.startswith("omni-"))
    for size, viewport in SIZES.items():
        light, dark = (taken[f"omni-{size}-{scheme}.webp"] for scheme in SCHEMES)
        assert light.size == dark.size == (viewport["width"], viewport["height"])
        edge = (5, viewport["height"] // 2)
        assert light.getpixel(edge) > dark.getpixel(edge) + 100
