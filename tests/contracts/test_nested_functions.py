"""Check that wiring is not hidden in nested functions: assembly code reads from top to bottom."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST_LINES = 5
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def nested(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions that are defined inside functions."""
    for outer in ast.walk(tree):
        if isinstance(outer, FUNCTIONS):
            yield from (each for each in ast.walk(outer) if isinstance(each, FUNCTIONS) and each is not outer)


def too_long(source: str) -> set[str]:
    """Return the nested functions of a module that have too many lines."""
    functions = nested(ast.parse(source))
    return {each.name for each in functions if (each.end_lineno or 0) - each.lineno >= MOST_LINES}


@pytest.mark.parametrize("path", sorted((ROOT / "pipelines").rglob("*.py")), ids=lambda path: path.name)
def test_no_pipeline_nests_a_function_of_more_than_five_lines(path: Path) -> None:
    assert not too_long(path.read_text())


def test_a_nested_function_is_too_long_from_its_sixth_line() -> None:
    lines = "\n        pass" * (MOST_LINES - 1)
    assert not too_long(f"def outer():\n    def inner():{lines}")
    assert too_long(f"def outer():\n    def inner():{lines}\n        pass") == {"inner"}
