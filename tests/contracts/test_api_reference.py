"""docs/reference/api.md agrees with the application."""

from scripts.write_api_reference import DOCUMENT, SECTIONS, written


def test_the_document_is_current() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == written(), "run: python -m scripts.write_api_reference"


def test_every_section_has_a_route() -> None:
    for title in SECTIONS:
        _, _, rest = written().partition(f"## {title}\n")
        section = rest.partition("\n## ")[0]
        assert "| `" in section, title
