"""Check the prose of code and documents: first words of docstrings, banned words, length of sentences.

Reads the docstrings and comments of every Python file, and the text of every Markdown document, under the
folders that are given (all that git tracks without one) and prints each finding with its place. Rules:

* A docstring begins with an imperative verb or with the noun it describes. At most ``HEADLESS_SHARE`` of all
  begin with a word of ``HEADLESS``.
* No word of ``BANNED`` in docstrings, comments and documents.
* 95 % of sentences of docstrings have at most ``SENTENCE_WORDS`` words, and so have those of documents.

Exit status: 0 all rules hold, 1 one does not.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.syntax import definitions, parse

HEADLESS = frozenset(
    "what who whom whose whether which how where when why of one those that".split()
    + "nobody somebody whoever behind".split()
)
HEADLESS_SHARE = 0.03
BANNED = frozenset("nobody somebody whoever beside".split())
SENTENCE_WORDS = 30
SENTENCE_SHARE = 0.95
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
# A sentence ends at a full stop before a capital, and at an empty line or the next item of a list.
_SENTENCE_END = re.compile(r"(?<=[.!?:;])\s+(?=[\"'`(*A-Z])|\n\s*\n|\n\s*[*-] ")
# A sentence of a document also ends before an item of a numbered list.
_DOCUMENT_SENTENCE_END = re.compile(_SENTENCE_END.pattern + r"|\n\s*\d+\. ")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK_TARGET = re.compile(r"\]\([^)]*\)")
# Texts that callers are answered from and that tests ask about, and lists of changes, which quote old names.
NO_DOCUMENTS = ("knowledge/", "evals/", "tests/", "changes/", "CHANGELOG.md")
# What is quoted is code or an example, and has other rules.
_QUOTED = re.compile(r"``[^`]*``|\"[^\"\n]*\"|`[^`\n]*`")


@dataclass(frozen=True, slots=True)
class Passage:
    """A docstring, a comment or a document.

    Attributes:
        path: of the file.
        line: number of its first line, from 1.
        text: of the passage.
        is_docstring: false for a comment and a document.
        is_document: true for the text of a whole document.
    """

    path: Path
    line: int
    text: str
    is_docstring: bool
    is_document: bool = False

    @property
    def is_headless(self) -> bool:
        """True when a docstring begins with a relative or interrogative word."""
        words = _WORD.findall(self.text)
        return self.is_docstring and bool(words) and words[0].lower() in HEADLESS

    @property
    def banned(self) -> tuple[str, ...]:
        """Banned words outside of quotations."""
        return tuple(word for word in _WORD.findall(_QUOTED.sub("", self.text).lower()) if word in BANNED)

    @property
    def sentences(self) -> tuple[int, ...]:
        """Number of words of each sentence."""
        text, end = self.text, _SENTENCE_END
        if self.is_document:
            text, end = _QUOTED.sub("X", _LINK_TARGET.sub("]", text)), _DOCUMENT_SENTENCE_END
        lengths = (len(_WORD.findall(sentence)) for sentence in end.split(text))
        return tuple(length for length in lengths if length)


def docstrings(path: Path, source: str) -> Iterator[Passage]:
    """Yield the docstrings of a module in their order."""
    tree = parse(source)
    for node in (tree, *definitions(tree.body)):
        text = ast.get_docstring(node)
        if text:
            yield Passage(path, node.body[0].lineno, text, True)


def comments(path: Path, source: str) -> Iterator[Passage]:
    """Yield the comments of a module; lines that follow each other are one."""
    lines: list[str] = []
    first = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT or token.string.startswith("#!"):
            continue
        line = token.start[0]
        if lines and line != last + 1:
            yield Passage(path, first, "\n".join(lines), False)
            lines = []
        if not lines:
            first = line
        lines.append(token.string.lstrip("# "))
        last = line
    if lines:
        yield Passage(path, first, "\n".join(lines), False)


def document(path: Path, source: str) -> Passage:
    """Return the text of a Markdown document without its code, tables and headings."""
    prose = _FENCED.sub("\n\n", source)
    lines = [line for line in prose.split("\n") if not line.lstrip().startswith(("|", "#", "<"))]
    return Passage(path, 1, "\n".join(lines), False, is_document=True)


def passages(paths: list[Path]) -> list[Passage]:
    """Return all docstrings and comments of Python files, and all documents."""
    found: list[Passage] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        if path.suffix == ".md":
            found.append(document(path, source))
        else:
            found += [*docstrings(path, source), *comments(path, source)]
    return found


def tracked(folders: list[str]) -> list[Path]:
    """Return the Python files and documents that git tracks in folders, or everywhere."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *(folders or ["."])], capture_output=True, text=True, check=True
    ).stdout
    return [
        Path(name)
        for name in listed.split("\0")
        if (name.endswith(".py") or (name.endswith(".md") and not name.startswith(NO_DOCUMENTS)))
        and Path(name).is_file()
    ]


def longest_of_most(passages: list[Passage]) -> int:
    """Return the number of words that a share of ``SENTENCE_SHARE`` of all sentences do not exceed."""
    lengths = sorted(length for passage in passages for length in passage.sentences)
    return lengths[int(SENTENCE_SHARE * (len(lengths) - 1))] if lengths else 0


def main(argv: Sequence[str] | None = None) -> int:
    """Print the findings; return the exit status."""
    parser = argparse.ArgumentParser(prog="check_prose", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", help="folders or files to check; default: all")
    parser.add_argument("--long", action="store_true", help="also list sentences that are too long")
    options = parser.parse_args(argv)
    found = passages(tracked(options.folders))
    documented = [passage for passage in found if passage.is_docstring]
    headless = [passage for passage in documented if passage.is_headless]
    banned = [passage for passage in found if passage.banned]
    documents = [passage for passage in found if passage.is_document]
    longest, longest_of_documents = longest_of_most(documented), longest_of_most(documents)
    share = len(headless) / max(1, len(documented))
    for passage in headless:
        print(f"{passage.path}:{passage.line}: headless: {passage.text.splitlines()[0]}")
    for passage in banned:
        print(f"{passage.path}:{passage.line}: banned: {', '.join(passage.banned)}")
    if options.long:
        for passage in [*documented, *documents]:
            if max(passage.sentences, default=0) > SENTENCE_WORDS:
                print(f"{passage.path}:{passage.line}: long: {max(passage.sentences)} words")
    print(
        f"{len(documented)} docstrings, {100 * share:.1f} % headless (at most {100 * HEADLESS_SHARE:.0f}); "
        f"{len(banned)} passages with banned words; 95 % of sentences within {longest} words, "
        f"of {len(documents)} documents within {longest_of_documents} (at most {SENTENCE_WORDS})"
    )
    too_long = max(longest, longest_of_documents) > SENTENCE_WORDS
    return int(share >= HEADLESS_SHARE or bool(banned) or too_long)


if __name__ == "__main__":
    sys.exit(main())
