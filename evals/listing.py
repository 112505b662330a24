"""Lists of commands with the first sentence of the head of each."""

import ast
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

# The command at the beginning of a head.
COMMAND = re.compile(r"^``python -m evals[\w. ]*``: ")


def summary(name: str) -> str:
    """Return the first sentence of a module's docstring as plain text, without importing the module.

    Raises:
        LookupError: there is no such module, or it has no docstring.
    """
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise LookupError(f"there is no module {name}")
    documented = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    if not documented:
        raise LookupError(f"{name} has no docstring")
    paragraph = " ".join(documented.partition("\n\n")[0].split())
    line = COMMAND.sub("", paragraph).partition(". ")[0].rstrip(".").replace("``", "")
    return line[:1].upper() + line[1:]


def listed(modules: Mapping[str, str]) -> str:
    """Return a line for each name, with the first sentence of its module."""
    width = max(map(len, modules))
    return "\n".join(f"{name:{width}}  {summary(module)}" for name, module in modules.items())
