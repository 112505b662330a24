"""``python -m evals.bench NAME``: run one of the micro-benchmarks.

Without a name it lists them. ``python -m evals.bench NAME --help`` shows the options of one.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from parley.evals.bench import BENCHMARKS
from parley.evals.listing import listed


def main(argv: Sequence[str] | None = None) -> int:
    """Run a benchmark with the arguments after its name; return its exit status."""
    name, *arguments = (sys.argv[1:] if argv is None else argv) or ("--help",)
    if name in BENCHMARKS:
        status: int = import_module(BENCHMARKS[name]).main(arguments)
        return status
    parser = argparse.ArgumentParser(
        prog="python -m evals.bench",
        description="Run a micro-benchmark.",
        epilog=listed({name: module.removesuffix(".__main__") for name, module in BENCHMARKS.items()}),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", choices=tuple(BENCHMARKS), metavar="NAME", help="benchmark to run")
    # The name is unknown, or a question for help: the parser answers either.
    parser.parse_args([name])
    return 2


if __name__ == "__main__":
    raise SystemExit(main())
