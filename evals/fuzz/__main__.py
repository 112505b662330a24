"""``python -m evals.fuzz --seed 1``: fuzz every protocol while control calls measure their own audio.

Status 0: no finding; 1: a finding; 2: the evaluation itself could not run.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parley.evals.abuse.controls import TRANSPORTS
from parley.evals.fuzz.dialects import NAMES
from parley.evals.fuzz.readers import read_all
from parley.evals.fuzz.report import FuzzRun, table
from parley.evals.fuzz.run import Fuzzer
from parley.evals.fuzz.sender import Order
from parley.evals.harness.command import count, exit_code, machine, positive, positive_number, quiet_log
from parley.evals.harness.report import add_outputs, as_json, check_outputs


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.fuzz",
        description="Send changed messages of every protocol to a server of this machine.",
    )
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--messages", type=positive, default=20_000, help="number of messages in all")
    root.add_argument("--seconds", type=positive_number, default=600.0, help="longest time of the fuzzer")
    root.add_argument("--rate", type=positive_number, default=400.0, help="messages a second in all")
    root.add_argument("--clients", type=positive, default=8, help="conversations at a time")
    root.add_argument("--protocol", nargs="+", choices=NAMES, default=list(NAMES), metavar="NAME")
    root.add_argument("--conversation", type=count, help="number of the only conversation to repeat")
    root.add_argument("--base-s", type=positive_number, default=30.0, help="control calls without the fuzzer")
    root.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS))
    root.add_argument("--without-controls", action="store_true", help="run no control calls")
    root.add_argument(
        "--readers",
        action="store_true",
        help="start no server: give the messages to the readers of the protocols in this process",
    )
    root.add_argument("--list", action="store_true", help="list the protocols, and exit")
    root.add_argument("--keep", type=Path, help="folder for the server's files and logs")
    add_outputs(root, with_table=False)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 for a finding, 2 after one line to standard error."""
    options = parser().parse_args(argv)
    quiet_log()
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.list:
        print("\n".join(NAMES))
        return 0
    check_outputs(options, "json")
    order = Order(
        options.seed,
        options.messages,
        options.seconds,
        options.rate,
        options.clients,
        tuple(options.protocol),
        options.conversation,
    )
    if options.readers:
        return _report(options, asyncio.run(read_all(options.seed, options.messages)))
    with tempfile.TemporaryDirectory() as name:
        fuzzer = Fuzzer(
            options.keep or Path(name),
            order,
            base_s=options.base_s,
            transports=() if options.without_controls else options.transports,
        )
        return _report(options, asyncio.run(fuzzer.run()))


def _report(options: argparse.Namespace, found: FuzzRun) -> int:
    print(table(found))
    if options.json:
        options.json.write_text(as_json(_as_json(found)))
    return 1 if found.faults else 0


def _as_json(found: FuzzRun) -> dict[str, Any]:
    return {**asdict(found), "faults": found.faults, "machine": machine()}


if __name__ == "__main__":
    raise SystemExit(main())
