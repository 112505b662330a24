"""Check the prose of the code: first words of docstrings, banned words, length of sentences.

Reads the docstrings and comments of every Python file under the folders that are given (all that git tracks
without one) and prints each finding with its place. Rules:

* A docstring begins with an imperative verb or with the noun it describes. At most ``HEADLESS_SHARE`` of all
  begin with a word of ``HEADLESS``.
* No word of ``BANNED`` in docstrings and comments.
* 95 % of sentences have at most ``SENTENCE_WORDS`` words.

Exit status: 0 all rules hold, 1 one does not.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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
# What is quoted is code or an example, and has other rules.
_QUOTED = re.compile(r"``[^`]*``|\"[^\"\n]*\"|`[^`\n]*`")


@dataclass(frozen=True, slots=True)
class Passage:
    """A docstring or a comment.

    Attributes:
        path: of the file.
        line: number of its first line, from 1.
        text: of the passage.
        is_docstring: false for a comment.
    """

    path: Path
    line: int
    text: str
    is_docstring: bool

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
        lengths = (len(_WORD.findall(sentence)) for sentence in _SENTENCE_END.split(self.text))
        return tuple(length for length in lengths if length)


def docstrings(path: Path, source: str) -> Iterator[Passage]:
    """Yield the docstrings of a module in the order of a tree walk."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
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


def passages(paths: list[Path]) -> list[Passage]:
    """Return all docstrings and comments of Python files."""
    found: list[Passage] = []
    for path in paths:
        source = path.read_text(encoding="utf-8")
        found += [*docstrings(path, source), *comments(path, source)]
    return found


def tracked(folders: list[str]) -> list[Path]:
    """Return the Python files that git tracks in folders, or everywhere."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--", *(folders or ["."])], capture_output=True, text=True, check=True
    ).stdout
    return [Path(name) for name in listed.split("\0") if name.endswith(".py") and Path(name).is_file()]


def main() -> int:
    """Print the findings; return the exit status."""
    parser = argparse.ArgumentParser(prog="check_prose", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folders", nargs="*", help="folders or files to check; default: all")
    parser.add_argument("--long", action="store_true", help="also list sentences that are too long")
    options = parser.parse_args()
    found = passages(tracked(options.folders))
    documented = [passage for passage in found if passage.is_docstring]
    headless = [passage for passage in documented if passage.is_headless]
    banned = [passage for passage in found if passage.banned]
    lengths = sorted(length for passage in documented for length in passage.sentences)
    longest = lengths[int(SENTENCE_SHARE * (len(lengths) - 1))] if lengths else 0
    share = len(headless) / max(1, len(documented))
    for passage in headless:
        print(f"{passage.path}:{passage.line}: headless: {passage.text.splitlines()[0]}")
    for passage in banned:
        print(f"{passage.path}:{passage.line}: banned: {', '.join(passage.banned)}")
    if options.long:
        for passage in documented:
            if max(passage.sentences, default=0) > SENTENCE_WORDS:
                print(f"{passage.path}:{passage.line}: long: {max(passage.sentences)} words")
    print(
        f"{len(documented)} docstrings, {100 * share:.1f} % headless (at most {100 * HEADLESS_SHARE:.0f}); "
        f"{len(banned)} passages with banned words; 95 % of sentences within {longest} words "
        f"(at most {SENTENCE_WORDS})"
    )
    return int(share >= HEADLESS_SHARE or bool(banned) or longest > SENTENCE_WORDS)


if __name__ == "__main__":
    sys.exit(main())
