"""List the instruments of the evaluations with one line each.

    python -m evals

The line is the first sentence of an instrument's head. ``python -m evals.NAME --help`` shows its options, and
``python -m evals.bench NAME`` runs one of the micro-benchmarks.
"""

import ast
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent
# The command at the beginning of a head.
COMMAND = re.compile(r"^``python -m evals[\w. ]*``: ")
# Commands that are one module of a package with a command of its own, or stand alone.
MODULES = (
    "parley.evals.answers.ahead",
    "parley.evals.answers.requests",
    "parley.evals.answers.retrieval",
    "parley.evals.perception.fusion",
    "parley.evals.perception.prosody",
    "parley.evals.perception.speakers",
    "parley.evals.perception.streams",
    "parley.evals.perception.vision",
    "parley.evals.latency.overload",
    "parley.evals.openai_realtime",
    "parley.evals.bench.omni_memory",
    "parley.evals.bench.phone_noise",
    "parley.evals.bench.recorder",
    "parley.evals.bench.scheduler",
    "parley.evals.bench.session_store",
    "parley.evals.bench.worker_overhead",
    "parley.evals.turns.frontier",
    "parley.evals.turns.yielding",
)


def instruments() -> list[str]:
    """Return the module names of all commands, in order."""
    folders = (path.parent.relative_to(HERE) for path in HERE.glob("**/*/__main__.py"))
    return sorted((*(".".join(("parley", "evals", *folder.parts)) for folder in folders), *MODULES))


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


def main() -> None:
    """Print the list."""
    print(listed({name.removeprefix("parley.evals."): name for name in instruments()}))


if __name__ == "__main__":
    main()
