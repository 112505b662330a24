"""Collect the files of changes/ into CHANGELOG.md.

    python -m scripts.collect_changes            # print the entries, and check the files
    python -m scripts.collect_changes 0.3.0      # write the section of a version, and delete the files

``changes/README.md`` describes the files. Entries of a version that the changelog has already are added to
its section. Exit status: 0 done, 1 a file has a wrong name or no text.
"""

import argparse
import datetime
import re
import sys
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "changes"
CHANGELOG = ROOT / "CHANGELOG.md"
# In the order of the changelog.
KINDS = ("added", "changed", "removed", "fixed", "security")
README = "README.md"
WIDTH = 150
_NAME = re.compile(rf"[a-z0-9_]+\.({'|'.join(KINDS)})\.md")


class ChangeFileError(Exception):
    """A file of changes/ cannot be collected."""


@dataclass(frozen=True, slots=True)
class Change:
    """Entry of the next release.

    Attributes:
        path: of its file.
        kind: one of ``KINDS``.
        text: of the entry, without its bullet.
    """

    path: Path
    kind: str
    text: str


def changes(folder: Path = FOLDER) -> tuple[Change, ...]:
    """Return the entries of a folder, by name.

    Raises:
        ChangeFileError: a file has a wrong name or no text.
    """
    found = []
    for path in sorted(folder.iterdir()):
        if path.name == README:
            continue
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ChangeFileError(f"{path.name}: expected WHAT.KIND.md, with a kind of {', '.join(KINDS)}")
        text = " ".join(path.read_text(encoding="utf-8").split())
        if not text or text.startswith(("* ", "- ", "#")):
            raise ChangeFileError(f"{path.name}: expected one entry, without a bullet or a heading")
        found.append(Change(path, match[1], text))
    return tuple(found)


def entries(found: Iterable[Change]) -> dict[str, str]:
    """Return the bullets of each kind that has any, in the order of ``KINDS``."""
    listed = list(found)
    bullets = {
        kind: "\n".join(
            textwrap.fill(
                each.text,
                WIDTH,
                initial_indent="* ",
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            )
            for each in listed
            if each.kind == kind
        )
        for kind in KINDS
    }
    return {kind: text for kind, text in bullets.items() if text}


def collected(changelog: str, version: str, date: str, bullets: Mapping[str, str]) -> str:
    """Return the changelog with the entries of a version.

    Args:
        changelog: as it is.
        version: whose section has the entries; it is made above the others where there is none.
        date: of a new section.
        bullets: of each kind.
    """
    head, *sections = re.split(r"(?m)^(?=## )", changelog)
    of_version = re.compile(rf"## {re.escape(version)}\b")
    place = next((index for index, each in enumerate(sections) if of_version.match(each)), None)
    if place is None:
        sections.insert(0, f"## {version} - {date}\n\n")
        place = 0
    title, *parts = re.split(r"(?m)^(?=### )", sections[place])
    by_kind = {part.split("\n", 1)[0].removeprefix("### ").strip().lower(): part for part in parts}
    for kind, text in bullets.items():
        part = by_kind.get(kind, f"### {kind.capitalize()}\n\n").rstrip("\n")
        # A part that has only its heading so far keeps an empty line below it.
        gap = "\n\n" if part.startswith("### ") and "\n" not in part else "\n"
        by_kind[kind] = f"{part}{gap}{text}\n\n"
    order = [*KINDS, *(kind for kind in by_kind if kind not in KINDS)]
    sections[place] = title + "".join(f"{by_kind[kind].rstrip()}\n\n" for kind in order if kind in by_kind)
    return (head + "".join(sections)).rstrip() + "\n"


def main() -> int:
    """Print or write the entries; return the exit status."""
    parser = argparse.ArgumentParser(prog="collect_changes", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("version", nargs="?", help="write the section of this version; default: print only")
    parser.add_argument("--date", default=datetime.date.today().isoformat(), help="of a new section")
    options = parser.parse_args()
    try:
        found = changes()
    except ChangeFileError as error:
        print(error, file=sys.stderr)
        return 1
    bullets = entries(found)
    if options.version is None:
        print("\n\n".join(f"### {kind.capitalize()}\n\n{text}" for kind, text in bullets.items()))
        return 0
    text = CHANGELOG.read_text(encoding="utf-8")
    CHANGELOG.write_text(collected(text, options.version, options.date, bullets), encoding="utf-8")
    for each in found:
        each.path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
