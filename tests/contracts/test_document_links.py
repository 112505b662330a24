"""Links between documents: each leads to a file and a heading, and the index lists every document.

The documents are all Markdown files that git tracks, except material: documents that the agent answers from,
and copies that an evaluation reads.
"""

import re
import subprocess
from itertools import count
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
INDEX = ROOT / "docs" / "index.md"
MATERIAL = ("knowledge/", "evals/answers/documents/")
FENCED = re.compile(r"```.*?```", re.DOTALL)
INLINE = re.compile(r"`[^`]*`")
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s#]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = sorted(set(listed.split("\0")) - {""})
    return [ROOT / name for name in names if not name.startswith(MATERIAL) and (ROOT / name).is_file()]


def anchors(document: Path) -> set[str]:
    """Return the names under which GitHub links to the headings of a document."""
    found: set[str] = set()
    for heading in HEADING.findall(FENCED.sub("", document.read_text(encoding="utf-8"))):
        name = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        # A heading that repeats another gets a number.
        number = next(number for number in count() if (f"{name}-{number}" if number else name) not in found)
        found.add(f"{name}-{number}" if number else name)
    return found


def links(document: Path) -> list[tuple[str, str]]:
    """Return (file, heading) of each relative link outside of code."""
    text = INLINE.sub("", FENCED.sub("", document.read_text(encoding="utf-8")))
    return LINK.findall(text)


@pytest.mark.parametrize("document", documents(), ids=lambda document: str(document.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading(document: Path) -> None:
    broken = []
    for file, heading in links(document):
        target = document.parent / file if file else document
        if not target.exists() or (heading and heading not in anchors(target)):
            broken.append(f"{file}#{heading}" if heading else file)
    assert broken == []


def test_the_index_lists_every_document_once() -> None:
    listed = [(INDEX.parent / file).resolve() for file, _ in links(INDEX) if file]
    written = {path for path in documents() if path.is_relative_to(INDEX.parent) and path != INDEX}
    assert sorted(path for path in listed if path in written) == sorted(written)
