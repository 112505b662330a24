"""``parley eval``: run an instrument of the evaluations, or list them."""

import argparse
import os
import sys
from functools import partial
from importlib.util import find_spec
from typing import NoReturn

from parley.command.exit_status import status_of
from parley.core.errors import ConfigError

PROGRAM = "parley eval"
EVALS = "parley.evals"
MEASUREMENT = "parley.command.measurement"


def main(arguments: list[str]) -> int:
    """Run an instrument with its own options, or list all without a name; return the exit status."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage="parley eval [NAME [OPTION ...]]",
        description="Run a measurement with its own options; without a name, list them all.",
        epilog="parley eval NAME --help shows the options of a measurement.",
    )
    parser.add_argument("name", nargs="?", help="name in the list, such as latency or bench.sequencer")
    given = parser.parse_args(arguments[:1])
    return status_of(PROGRAM, partial(_run, given.name, arguments[1:]))


def _run(name: str | None, arguments: list[str]) -> NoReturn:
    """Become the process of the measurement, which is as ``python -m`` starts it.

    Raises:
        ConfigError: there is no such measurement.
    """
    module = EVALS if name is None else f"{EVALS}.{name.removeprefix('parley.').removeprefix('evals.')}"
    try:
        known = find_spec(module)
    except ModuleNotFoundError:
        # A package of a dotted name is missing.
        known = None
    if known is None:
        raise ConfigError(f"there is no measurement {name!r}; `{PROGRAM}` lists them")
    sys.stdout.flush()
    safe_path = ("-P",) if sys.flags.safe_path else ()
    os.execv(sys.executable, (sys.executable, *safe_path, "-m", MEASUREMENT, module, *arguments))
