"""List the instruments of the evaluations with one line each.

    python -m evals

The line is the first sentence of an instrument's head. ``python -m evals.NAME --help`` shows its options.
"""

import ast
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
# Commands that are one module of a package with a command of its own, or stand alone.
MODULES = (
    "parley.evals.latency.overload",
    "parley.evals.latency.pauses",
    "parley.evals.openai_realtime",
    "parley.evals.phone_noise",
    "parley.evals.turns.frontier",
    "parley.evals.turns.yielding",
)


def instruments() -> list[str]:
    """Return the module names of all commands, in order."""
    packages = (f"evals.{path.parent.name}" for path in HERE.glob("*/__main__.py"))
    return sorted((*packages, *MODULES))


def summary(name: str) -> str:
    """Return the first sentence of a module's docstring, without importing it or what it needs.

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
    line = paragraph.removeprefix(f"``python -m {name}``: ").partition(". ")[0].rstrip(".")
    return line[:1].upper() + line[1:]


def main() -> None:
    """Print the list."""
    names = instruments()
    width = max(map(len, names))
    for name in names:
        print(f"{name:{width}}  {summary(name)}")


if __name__ == "__main__":
    main()
