"""Syntax trees for the checks of the source: each text is parsed once in a process."""

import ast
import functools
from collections.abc import Iterable, Iterator

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@functools.cache
def parse(source: str) -> ast.Module:
    """Return the tree of a module's text. It is shared: nothing may change it."""
    return ast.parse(source)


def definitions(statements: Iterable[ast.AST]) -> Iterator[Definition]:
    """Yield the classes and functions in statements, in their order, without looking into expressions."""
    for statement in statements:
        if isinstance(statement, Definition):
            yield statement
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            inner = getattr(statement, part, ())
            # The body of a lambda or of a conditional expression is an expression.
            if isinstance(inner, list):
                yield from definitions(inner)
