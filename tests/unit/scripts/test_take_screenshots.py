"""Pictures of the pages: the documents show all of them."""

from scripts.take_screenshots import FOLDER, PAGES, SCHEMES, SIZES

DOCUMENT = FOLDER.parent / "reference" / "pages.md"
NAMES = [f"{page}-{size}-{scheme}.webp" for page in PAGES for size in SIZES for scheme in SCHEMES]


def test_there_is_a_picture_of_every_page_and_the_document_shows_it() -> None:
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(NAMES)
    text = DOCUMENT.read_text()
    assert [name for name in NAMES if f"../screenshots/{name}" not in text] == []
