"""Find names and headings with words that the glossary replaces by others.

    python -m scripts.check_terms

The table "Words not to use" of docs/glossary.md says which word is not used where. Read are the public
classes and the modules of the product, the fields of a deployment (from their reference) and the headings of
all documents. A name is split into its words: ``EngineEars`` is "engine" and "ears".

Exit status: 0 no such word is used, 1 one is.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from scripts.check_class_names import product
from scripts.foreign_assignments import ROOT
from scripts.syntax import definitions, parse

GLOSSARY = ROOT / "docs" / "glossary.md"
SETTINGS = ROOT / "docs" / "reference" / "settings.md"
# Documents that are material: read by the agent or by an evaluation.
MATERIAL = ("knowledge/", "evals/answers/documents/")
PLACES = ("classes", "modules", "settings", "headings")
_ROW = re.compile(r"^\| (`[^|]+`) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
_SETTING = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_FENCED = re.compile(r"```.*?```", re.DOTALL)
# In ``HTTPServer`` and ``call_manager``.
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


@dataclass(frozen=True, slots=True)
class ReplacedWord:
    """Word that is not used in some places.

    Attributes:
        word: in lower case.
        places: of ``PLACES``.
        instead: words to use.
    """

    word: str
    places: frozenset[str]
    instead: str


def replaced_words(glossary: str) -> tuple[ReplacedWord, ...]:
    """Return the words of the table.

    Raises:
        ValueError: there is no table, or it names an unknown place.
    """
    _, _, table = glossary.partition("## Words not to use")
    found = []
    for words, places, instead in _ROW.findall(table):
        where = frozenset(place.strip() for place in places.split(","))
        if not where <= set(PLACES):
            raise ValueError(f"{words}: unknown place in {places!r}; known: {', '.join(PLACES)}")
        found += [ReplacedWord(word, where, instead) for word in re.findall(r"`(\w+)`", words)]
    if not found:
        raise ValueError("the glossary has no table of words not to use")
    return tuple(found)


def findings(words: Iterable[ReplacedWord], names: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield a line for each name that has one of the words.

    Args:
        words: of the glossary.
        names: names in each place.
    """
    for place in PLACES:
        replaced = {each.word: each for each in words if place in each.places}
        for name in names.get(place, ()):
            for word in {part.lower() for part in _WORD.findall(name)} & replaced.keys():
                yield f"{place}: {name}: {word!r}; use: {replaced[word].instead}"


def classes(sources: Mapping[str, str]) -> Iterator[str]:
    """Yield the names of the public classes of some modules."""
    for source in sources.values():
        for node in definitions(parse(source).body):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def headings() -> Iterator[str]:
    """Yield the headings of the documents that git tracks, without code."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.split("\0"):
        if name and not name.startswith(MATERIAL) and (ROOT / name).is_file():
            text = _FENCED.sub("", (ROOT / name).read_text(encoding="utf-8"))
            yield from (re.sub(r"`[^`]*`", "", heading) for heading in _HEADING.findall(text))


def main() -> int:
    """Print the findings; return the exit status."""
    sources = product()
    names = {
        "classes": list(classes(sources)),
        "modules": [str(Path(path).with_suffix("")) for path in sources],
        "settings": _SETTING.findall(SETTINGS.read_text(encoding="utf-8")),
        "headings": list(headings()),
    }
    found = list(findings(replaced_words(GLOSSARY.read_text(encoding="utf-8")), names))
    for line in found:
        print(line)
    print(f"names and headings with words that the glossary replaces: {len(found)}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
