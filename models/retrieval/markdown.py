"""Decides what a passage of the deployment's documents is: a paragraph of markdown under a heading.

In: a folder of ``*.md`` files, read recursively in name order. Out: ``Passage`` objects in reading order.
Blocking file access, done once at start; nothing here keeps state. A folder without documents is a
``ConfigError``, because a server that can only say "I don't know" is a mistake and not a deployment.
"""

import re
from pathlib import Path

from core.errors import ConfigError
from models.retrieval import Passage

_FENCE = re.compile(r"^\s*(```|~~~)")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_LIST_ITEM = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_QUOTE = re.compile(r"^\s*>\s?")
_RULE = re.compile(r"^\s*([-*_])(\s*\1){2,}\s*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_IMAGE = re.compile(r"!\[([^\]]*)\]\([^)]*\)")
_LINK = re.compile(r"\[([^\]]+)\](?:\([^)]*\)|\[[^\]]*\])")
_TAG = re.compile(r"</?[A-Za-z][^>]*>")
_EMPHASIS = re.compile(r"(\*\*|__|\*|`|~~)(\S(?:.*?\S)?)\1")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[]?[A-Z0-9])")


def load_passages(folder: Path) -> list[Passage]:
    """Every paragraph below ``folder``, in the order of file names and lines.

    The first ``#`` heading of a file names the source (else the file name does), deeper headings are titles.
    Code
    blocks, tables and pictures are left out: they cannot be spoken.

    Raises:
        ConfigError: the folder is missing, unreadable, not UTF-8, or holds no passage; names the path.
    """
    if not folder.is_dir():
        raise ConfigError(f"documents folder {folder} does not exist or is not a folder")
    passages: list[Passage] = []
    for path in sorted(folder.rglob("*.md")):
        try:
            text = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the document {path}: {error}") from error
        passages.extend(parse_passages(text, default_source=path.stem.replace("_", " ").replace("-", " ")))
    if not passages:
        raise ConfigError(f"documents folder {folder} holds no passage: it needs *.md files with paragraphs")
    return passages


def parse_passages(markdown: str, *, default_source: str) -> list[Passage]:
    """The paragraphs of one document.

    Args:
        markdown: the whole file.
        default_source: what the document is called when no ``#`` heading says so.
    """
    source, title = default_source, ""
    paragraph: list[str] = []
    found: list[tuple[str, str]] = []
    fenced = False

    def close() -> None:
        text = plain_text(" ".join(paragraph))
        paragraph.clear()
        if text:
            found.append((text, title))

    source_named = False
    for line in _COMMENT.sub("", markdown).splitlines():
        if _FENCE.match(line):
            close()
            fenced = not fenced
            continue
        if fenced:
            continue
        heading = _HEADING.match(line)
        if heading:
            close()
            name = plain_text(heading[2])
            if len(heading[1]) == 1 and not source_named:
                source, source_named = name or source, True
            else:
                title = name
        elif not line.strip() or _RULE.match(line) or line.lstrip().startswith("|"):
            close()
        else:
            paragraph.append(_list_item_as_sentence(line))
    close()
    return [Passage(text=text, title=heading or source, source=source) for text, heading in found]


def plain_text(markdown: str) -> str:
    """One line of markdown without its marks, ready to be spoken."""
    text = _IMAGE.sub("", markdown)
    text = _LINK.sub(r"\1", text)
    text = _TAG.sub("", text)
    for _ in range(2):  # bold around italics nests once
        text = _EMPHASIS.sub(r"\2", text)
    return " ".join(text.split())


def sentences(text: str) -> list[str]:
    """``text`` cut after full stops, question and exclamation marks that a capital or a digit follows."""
    return [part for part in (piece.strip() for piece in _SENTENCE_END.split(text)) if part]


def _list_item_as_sentence(line: str) -> str:
    """A bullet becomes a sentence of its own: read aloud, a list without stops is one breathless line."""
    bare = _QUOTE.sub("", line)
    item = _LIST_ITEM.sub("", bare).strip()
    if item == bare.strip() or item.endswith((".", "!", "?", ":", ";", ",")):
        return item
    return f"{item[:1].upper()}{item[1:]}."
