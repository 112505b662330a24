"""Passages from the deployment's documents: blocks of markdown under their headings.

Input: the markdown of one document. Output: ``Passage`` objects in reading order, each made
of statements that can be spoken by themselves. These are sentences of a paragraph, items of a list and cells
of a table. An item has the words that lead to it, because "cut cables" means the opposite of "the following
can't be returned: cut cables"; a cell has its row and column.

Pure.

CommonMark with tables, as markdown-it-py reads it. Pictures are left out. So is code in blocks, except for
one command after a paragraph that leads to it with a colon, and commands with a comment. Front matter names
the document and is not spoken.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from parley.core.errors import ConfigError
from parley.core.yaml_text import parse_yaml_value
from parley.models.retrieval import Passage, SpeakableStatement

_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)\n(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
# HTML tags that may be inside a sentence; any other name in angle brackets is a word, as in "<key>".
_TAG = re.compile(
    r"</?(?:a|abbr|b|br|code|del|div|em|font|i|img|ins|kbd|li|mark|ol|p|pre|q|s|small|span|"
    r"strong|sub|sup|table|td|th|tr|u|ul|var)\b[^>]*>",
    re.IGNORECASE,
)
_ANGLED = re.compile(r"[<>]")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]?\s+(?=[\"'(\[]?[A-Z0-9])")
_ABBREVIATED = re.compile(
    r"(?:\b(?:e\.g|i\.e|approx|no|nr|vs|fig|mr|mrs|ms|dr|st|max|min|incl|cf)|\b[A-Z])\.$", re.IGNORECASE
)
# A block of code that is one command can be read out; a longer one cannot.
_CODE_WORDS = 12
_SHELLS = frozenset(("", "sh", "bash", "shell", "console"))
_COMMENTED = re.compile(r"(\S.*?)\s+#\s+(\S.*)")
# An item that is not a sentence is meaningless without its heading.
_SENTENCE_WORDS = 4
_DEEPEST = 12
_PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


def parse_passages(markdown: str, *, default_source: str) -> list[Passage]:
    """Return the passages of one document.

    Args:
        markdown: the whole file.
        default_source: name of the document where neither a ``#`` heading nor the front matter has one.
    """
    markdown = markdown.replace("\r\n", "\n")
    front = _FRONT_MATTER.match(markdown)
    named = _front_matter_title(front[1]) if front else ""
    body = _COMMENT.sub("", markdown[front.end() :] if front else markdown)
    reader = _Reader(named or default_source)
    reader.read(SyntaxTreeNode(_PARSER.parse(body)).children)
    return [
        replace(passage, source=reader.source, number=number)
        for number, passage in enumerate(reader.passages, start=1)
    ]


def plain_text(markdown: str) -> str:
    """Return one line of markdown without its marks, ready to be spoken."""
    return _inline(SyntaxTreeNode(_PARSER.parseInline(markdown)))


def sentences(text: str) -> list[str]:
    """Split a text after full stops, question and exclamation marks that a capital or a digit follows."""
    parts: list[str] = []
    for piece in _SENTENCE_END.split(text):
        if parts and _ABBREVIATED.search(parts[-1]):
            parts[-1] = f"{parts[-1]} {piece}"
        else:
            parts.append(piece)
    return [part.strip() for part in parts if part.strip()]


class _Reader:
    """Visitor of the blocks of one document that collects its passages."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.passages: list[Passage] = []
        self._source_named = False
        # Open headings, as (level, text).
        self._headings: list[tuple[int, str]] = []
        self._tables = 0
        # A paragraph that leads to the next block: "The following cannot be returned:".
        self._lead = ""

    def read(self, blocks: Sequence[SyntaxTreeNode], depth: int = 0) -> None:
        for block in blocks:
            lead, self._lead = self._lead, ""
            if block.type == "heading":
                self._heading(int(block.tag[1]), _inline(block))
            elif block.type == "paragraph":
                self._paragraph(_inline(block))
            elif block.type in ("bullet_list", "ordered_list"):
                statements = list(_items(block, (lead.rstrip(":"),) if lead else (), self._title))
                self._add(statements, "steps" if block.type == "ordered_list" else "list", lead=lead)
            elif block.type == "table":
                self._table(block)
            elif block.type == "blockquote" and depth < _DEEPEST:
                self.read(block.children, depth + 1)
            elif block.type in ("fence", "code_block"):
                self._code(block.content, lead, is_shell=block.info.strip() in _SHELLS)
            elif block.type == "html_block":
                text = _words(_TAG.sub(" ", block.content))
                if text:
                    self._paragraph(text)

    def _code(self, code: str, lead: str, *, is_shell: bool) -> None:
        """Add one command with the words that lead to it, or commands with a comment on their purpose."""
        lines = [_ANGLED.sub("", line).strip() for line in code.strip().splitlines()]
        if lead and len(lines) == 1 and len(lines[0].split()) <= _CODE_WORDS:
            self._add([SpeakableStatement(f"{lead} {_closed(lines[0])}")], "text")
            return
        commented = [_COMMENTED.fullmatch(line) for line in lines if is_shell]
        self._add(
            [
                SpeakableStatement(_closed(f"{match[1]}: {match[2]}"))
                for match in commented
                if match is not None and len(match[1].split()) <= _CODE_WORDS
            ],
            "list",
        )

    @property
    def _title(self) -> str:
        return self._headings[-1][1] if self._headings else self.source

    def _heading(self, level: int, text: str) -> None:
        if level == 1 and not self._source_named:
            self.source, self._source_named = text or self.source, True
            self._headings = []
            return
        self._headings = [*(pair for pair in self._headings if pair[0] < level), (level, text)]

    def _paragraph(self, text: str) -> None:
        if text.startswith("|"):
            # A table without the line under its header is not parsed as one.
            text = ", ".join(filter(None, (cell.strip() for cell in text.split("|"))))
        parts = sentences(text)
        if parts and parts[-1].endswith(":"):
            # The sentence leads to a list and is meaningless by itself.
            self._lead = parts.pop()
        self._add([SpeakableStatement(part) for part in parts], "text")

    def _table(self, table: SyntaxTreeNode) -> None:
        rows = [
            [_inline(cell) for cell in row.children] for section in table.children for row in section.children
        ]
        header, self._tables = rows[0], self._tables + 1
        for row in rows[1:]:
            key, *cells = row
            filled = [
                (name, cell) for name, cell in zip(header[1:], cells, strict=False) if cell and cell != "-"
            ]
            if not key or not filled:
                continue
            self._add(
                [
                    SpeakableStatement(
                        _closed(f"{key}: {cell}" if len(header) == 2 else f"{key}, {_lower(name)}: {cell}"),
                        bare="" if len(header) == 2 else _closed(f"{_lower(name)}: {cell}"),
                        row=key,
                        column=name,
                        value=cell,
                    )
                    for name, cell in filled
                ],
                "row",
                table=self._tables,
                columns=tuple(header),
            )

    def _add(
        self,
        statements: list[SpeakableStatement],
        form: str,
        *,
        lead: str = "",
        table: int = 0,
        columns: tuple[str, ...] = (),
    ) -> None:
        if statements:
            self.passages.append(
                Passage(
                    text=" ".join(statement.text for statement in statements),
                    title=self._title,
                    source="",
                    above=tuple(text for _, text in self._headings[:-1]),
                    statements=tuple(statements),
                    form=form,
                    lead=lead,
                    table=table,
                    columns=columns,
                )
            )


def _items(block: SyntaxTreeNode, above: tuple[str, ...], title: str) -> Iterator[SpeakableStatement]:
    """Yield the statements of a list, nested ones with the items above them."""
    ordered = block.type == "ordered_list"
    for item in block.children:
        own = ""
        for child in item.children:
            if child.type == "paragraph":
                text = _inline(child)
                own = own or text
                yield from _item(text, above, title, is_whole=ordered, leads=len(item.children) > 1)
            elif child.type in ("bullet_list", "ordered_list") and len(above) < _DEEPEST:
                yield from _items(child, (*above, own.rstrip(":. ")), title)


def _item(
    text: str, above: tuple[str, ...], title: str, *, is_whole: bool, leads: bool
) -> Iterator[SpeakableStatement]:
    parts = sentences(text)
    if leads and parts and parts[-1].endswith(":"):
        parts.pop()
    for number, part in enumerate(parts):
        before = [words for words in above if words]
        is_sentence = part.endswith((".", "!", "?")) and len(part.split()) >= _SENTENCE_WORDS
        if not before and not is_sentence and not is_whole:
            before = [title]
        if number or not before:
            yield SpeakableStatement(_closed(_upper(part)))
        else:
            yield SpeakableStatement(_closed(f"{', '.join(before)}: {part}"), bare=_closed(part))


def _inline(node: SyntaxTreeNode) -> str:
    """Return the text of a block without marks and pictures, and HTML only where it is a word."""
    return _words("".join(_pieces(node)))


def _pieces(node: SyntaxTreeNode) -> Iterator[str]:
    for child in node.children:
        if child.type == "image":
            # The alternative text describes a picture, which a caller cannot see.
            continue
        if child.children:
            yield from _pieces(child)
        elif child.type == "text":
            yield child.content
        elif child.type == "code_inline":
            yield _ANGLED.sub("", child.content)
        elif child.type in ("softbreak", "hardbreak"):
            yield " "
        elif child.type == "html_inline":
            yield _ANGLED.sub("", _TAG.sub("", child.content))


def _front_matter_title(text: str) -> str:
    try:
        values = parse_yaml_value(text, where="front matter")
    except ConfigError:
        # Front matter only names the document, so the document is read without it.
        return ""
    title = values.get("title") if isinstance(values, dict) else None
    return _words(str(title)) if title else ""


def _words(text: str) -> str:
    return " ".join(text.split())


def _closed(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text.rstrip(';,:')}."


def _upper(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _lower(name: str) -> str:
    """Return the name of a column for use inside a sentence: with a small letter, but not for "K100" or
    "DNS".
    """
    return f"{name[:1].lower()}{name[1:]}" if name[1:2].islower() or len(name) == 1 else name
