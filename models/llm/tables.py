"""Answers from the cells of tables: another row or column, all rows of a kind, the largest value.

Read-only after construction, thread-safe. Inputs: words and terms of a question, and the cells of earlier
answers. Output: numbers of statements of the index; when it is empty, the question is for the whole index.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from parley.models.retrieval.index import PassageIndex

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MOST_ROWS = 5
_ROW_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class _Table:
    """Table with its columns, and the statement of each cell by row and column."""

    columns: tuple[str, ...]
    rows: Mapping[str, Mapping[str, int]]


class Tables:
    """Tables of an index, as a source of answers.

    Args:
        index: the passages.
    """

    def __init__(self, index: PassageIndex) -> None:
        self._index = index
        self._asking = index.language.questions
        self._table_of: dict[int, _Table] = {}
        tables: dict[tuple[str, int], dict[str, dict[str, int]]] = {}
        columns: dict[tuple[str, int], tuple[str, ...]] = {}
        for number, passage in enumerate(index.passages):
            if passage.form != "row":
                continue
            key = (passage.source, passage.table)
            rows = tables.setdefault(key, {})
            columns.setdefault(key, passage.columns)
            for sentence in index.sentence_numbers(number):
                statement = index.statements[sentence]
                rows.setdefault(statement.row, {})[statement.column] = sentence
        self._tables = [_Table(columns[key], rows) for key, rows in tables.items()]
        names = {name for table in self._tables for name in (*table.rows, *table.columns)}
        self._terms = {name: frozenset(index.terms(name)) for name in names}
        for table in self._tables:
            for cells in table.rows.values():
                for sentence in cells.values():
                    self._table_of[sentence] = table

    def follow(self, said: Sequence[int], words: Sequence[str]) -> list[int]:
        """Return the cells of a follow-up: "and the K100?" asks for the same column of another row."""
        cells = [number for number in said if number in self._table_of]
        if not cells:
            return []
        table = self._table_of[cells[-1]]
        last = self._index.statements[cells[-1]]
        asked = set(self._index.terms(" ".join(words)))
        row = self._named(asked, table.rows)
        column = self._named(asked, table.columns[1:])
        if row is None and column is None:
            return []
        if row == last.row and column in (None, last.column):
            return []
        found = table.rows.get(row or last.row, {})
        statements = self._index.statements
        columns = (
            [column] if column else [statements[n].column for n in cells if statements[n].row == last.row]
        )
        return [found[name] for name in columns if name in found]

    def look_up(self, words: Sequence[str]) -> list[int]:
        """Return the cells of the rows and the column that a question names, if it names nothing else."""
        asked = set(self._index.terms(" ".join(words)))
        for table in self._tables:
            rows = [row for row in table.rows if self._terms[row] <= asked]
            columns = [name for name in table.columns[1:] if self._is_about(name, asked, frozenset())]
            named = {term for name in (*rows, *columns) for term in self._terms[name]}
            if rows and len(columns) == 1 and self._is_rest_about(table, asked - named):
                cells = [table.rows[row][columns[0]] for row in rows if columns[0] in table.rows[row]]
                return cells[:_MOST_ROWS]
        return []

    def list_rows(self, words: Sequence[str]) -> list[int]:
        """Return the cells that answer "which pumps are not ...": those of a yes-no column with the wanted
        value.
        """
        if not words or words[0] not in self._asking.lists:
            return []
        asked = set(self._index.terms(" ".join(words)))
        wanted = self._asking.no if self._index.language.content.is_negated(words) else self._asking.yes
        answers = self._asking.yes | self._asking.no
        best: tuple[float, list[int]] = (0.0, [])
        for table in self._tables:
            for column in table.columns[1:]:
                cells = [row[column] for row in table.rows.values() if column in row]
                values = [self._value(cell).lower() for cell in cells]
                named = self._terms[column]
                if not named <= asked or not named or not all(value in answers for value in values):
                    continue
                if self._named(asked - named, table.rows) is not None:
                    # "Which pumps may run with sea water" names a row: that is a question for its cells.
                    continue
                if not self._is_rest_about(table, asked - named):
                    continue
                found = [cell for cell, value in zip(cells, values, strict=True) if value in wanted]
                score = sum(self._index.weight(term) for term in named)
                if found and score > best[0]:
                    best = (score, found)
        if not best[1]:
            best = (0.0, self._list_columns(asked, wanted))
        return best[1][:_MOST_ROWS]

    def compare(self, words: Sequence[str], said: Sequence[int]) -> list[int]:
        """Return the cells by which rows can be compared, the best one first where there is one."""
        text = " ".join(words)
        small, concepts = self._superlative(words)
        asked = set(self._index.terms(text))
        cells = [number for number in said if number in self._table_of]
        if not cells:
            return self._extreme(asked, small, concepts) if small is not None else []
        if self._asking.choice.search(text) is None and small is None:
            return []
        table = self._table_of[cells[-1]]
        rows = list(dict.fromkeys(self._index.statements[n].row for n in cells if self._table_of[n] is table))
        if len(rows) < 2:
            rows = list(table.rows)
        columns = [name for name in table.columns[1:] if self._is_about(name, asked, concepts)]
        if not columns:
            columns = list(dict.fromkeys(self._index.statements[number].column for number in cells))
        found = [table.rows[row][name] for row in rows for name in columns[:2] if name in table.rows[row]]
        if small is not None and len(columns) == 1:
            found.sort(key=lambda cell: self._number(cell), reverse=not small)
        return found[: 2 * _MOST_ROWS]

    def _extreme(self, asked: Collection[str], small: bool, concepts: frozenset[str]) -> list[int]:
        """Return the best cell of the only table with such a column; empty where there are several."""
        found: list[int] = []
        for table in self._tables:
            if self._named(asked, table.rows) is not None:
                continue
            for column in table.columns[1:]:
                if not self._is_about(column, asked, concepts):
                    continue
                cells = [row[column] for row in table.rows.values() if column in row]
                if len(cells) < 2 or not all(_NUMBER.search(self._value(cell)) for cell in cells):
                    continue
                if found:
                    return []
                found = sorted(cells, key=self._number, reverse=not small)[:1]
        return found

    def _list_columns(self, asked: set[str], wanted: frozenset[str]) -> list[int]:
        """Return rows by names of columns: "which liquids may the K100 pump" has its name over a column."""
        for table in self._tables:
            about = self._terms[table.columns[0]]
            column = self._named(asked - about, table.columns[1:])
            if not about or not about <= asked or column is None:
                continue
            if not self._is_rest_about(table, asked - self._terms[column]):
                continue
            cells = [row[column] for row in table.rows.values() if column in row]
            if all(self._value(cell).lower() in self._asking.yes | self._asking.no for cell in cells):
                return [cell for cell in cells if self._value(cell).lower() in wanted]
        return []

    def _is_rest_about(self, table: _Table, rest: Collection[str]) -> bool:
        """Return whether the other words of a question only repeat the subject of the table."""
        cell = next(iter(next(iter(table.rows.values())).values()))
        passage = self._index.passages[self._index.passage_of(cell)]
        about = set(
            self._index.terms(" ".join((*passage.above, passage.title, passage.source, table.columns[0])))
        )
        about |= self._asking.bounds | self._asking.fitting
        return about.issuperset(rest)

    def _is_about(self, column: str, asked: Collection[str], concepts: frozenset[str]) -> bool:
        named = self._terms[column] - self._asking.bounds
        return bool(concepts & named) if concepts else bool(named) and named <= set(asked)

    def _named(self, asked: Collection[str], names: Iterable[str]) -> str | None:
        """Return the name that has the largest share of its words in the question; None below
        ``_ROW_SHARE``.
        """
        best, share = None, 0.0
        for name in names:
            held = self._terms[name]
            total = sum(self._index.weight(term) for term in held)
            found = sum(self._index.weight(term) for term in held if term in asked)
            if total and found / total >= _ROW_SHARE and found / total > share:
                best, share = name, found / total
        return best

    def _value(self, cell: int) -> str:
        return self._index.statements[cell].value.rstrip(".")

    def _number(self, cell: int) -> float:
        match = _NUMBER.search(self._value(cell))
        return float(match[0].replace(",", "")) if match else float("inf")

    def is_choice(self, words: Sequence[str]) -> bool:
        """Return whether a question asks to compare or to choose."""
        return (
            self._asking.choice.search(" ".join(words)) is not None or self._superlative(words)[0] is not None
        )

    def is_open_choice(self, words: Sequence[str]) -> bool:
        """Return whether a question asks for advice that no document gives."""
        return self._asking.open_choice.search(" ".join(words)) is not None

    def _superlative(self, words: Sequence[str]) -> tuple[bool | None, frozenset[str]]:
        """Return true if a small number is meant, and the columns it may be in; None without one."""
        known = self._asking
        for word in words:
            if word in known.adjectives and (word not in known.with_more or not known.more.isdisjoint(words)):
                return known.adjectives[word]
        for word in words:
            if word in known.largest or word in known.smallest:
                return word in known.smallest, frozenset()
        return None, frozenset()
