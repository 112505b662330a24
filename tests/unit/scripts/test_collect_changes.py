"""Files of changes/, and the section of the changelog that they become."""

from pathlib import Path

import pytest

from scripts.collect_changes import ChangeFileError, changes, collected, entries

CHANGELOG = """# Changelog

What changed.

## 0.2.0 - 2026-11-26

### Added

* An old entry.

### Fixed

* Another one.
"""


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_the_files_of_the_repository_can_be_collected() -> None:
    assert all(each.text for each in changes())


def test_entries_are_grouped_by_kind_in_the_order_of_the_changelog(tmp_path: Path) -> None:
    files = {"b.fixed.md": "It hung.\n", "a.added.md": "A page,\nwith a map.\n", "README.md": "# About\n"}
    found = changes(written(tmp_path, files))
    assert entries(found) == {"added": "* A page, with a map.", "fixed": "* It hung."}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("map.new.md", "A page."),
        ("map.md", "A page."),
        ("Map.added.txt", "A page."),
        ("map.added.md", "\n"),
        ("map.added.md", "* A page."),
    ],
)
def test_a_wrong_file_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(ChangeFileError, match=name):
        changes(written(tmp_path, {name: text}))


def test_a_new_version_gets_a_section_above_the_others() -> None:
    text = collected(CHANGELOG, "0.3.0", "2027-01-02", {"fixed": "* It hung.", "added": "* A page."})
    assert text == CHANGELOG.replace(
        "## 0.2.0",
        "## 0.3.0 - 2027-01-02\n\n### Added\n\n* A page.\n\n### Fixed\n\n* It hung.\n\n## 0.2.0",
    )


def test_entries_of_a_known_version_are_added_to_its_parts() -> None:
    text = collected(CHANGELOG, "0.2.0", "2027-01-02", {"added": "* A page.", "security": "* A lock."})
    expected = CHANGELOG.replace("* An old entry.\n", "* An old entry.\n* A page.\n")
    assert text == expected + "\n### Security\n\n* A lock.\n"
