"""List the instruments of the evaluations with one line each.

    python -m evals

The line is the first sentence of an instrument's head. ``python -m evals.NAME --help`` shows its options, and
``python -m evals.bench NAME`` runs one of the micro-benchmarks.
"""

from pathlib import Path

from parley.evals.bench import BENCHMARKS
from parley.evals.listing import listed

HERE = Path(__file__).parent
# Commands that are one module of a package with a command of its own, or stand alone. Those of the
# micro-benchmarks are in ``evals.bench.BENCHMARKS``.
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
    "parley.evals.turns.frontier",
    "parley.evals.turns.yielding",
)


def instruments() -> list[str]:
    """Return the module names of all commands, in order."""
    folders = (path.parent.relative_to(HERE) for path in HERE.glob("**/*/__main__.py"))
    packages = {".".join(("parley", "evals", *folder.parts)) for folder in folders}
    benchmarks = {module.removesuffix(".__main__") for module in BENCHMARKS.values()}
    return sorted({*packages, *benchmarks, *MODULES})


def main() -> None:
    """Print the list."""
    print(listed({name.removeprefix("parley.evals."): name for name in instruments()}))


if __name__ == "__main__":
    main()
