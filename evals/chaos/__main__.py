"""``python -m evals.chaos``: cause failures of the parts of a deployment, and judge their outcomes.

Status 0: every row has its outcome; 1: one has not; 2: the evaluation itself could not run.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from parley.core.errors import AgentError
from parley.evals.chaos.rows import ChaosRow, ChaosRun, Verdict, rows
from parley.evals.harness.command import exit_code, machine, quiet_log
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, as_json, check_outputs


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.chaos",
        description="Cause failures of the parts of a deployment on this machine, and judge their outcomes.",
    )
    root.add_argument("--only", nargs="+", metavar="NAME", help="rows to run")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--list", action="store_true", help="list the rows with their outcomes, and exit")
    root.add_argument("--keep", type=Path, help="folder for the servers' files and logs")
    add_outputs(root, with_table=False)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when a row fails, 2 after one line to standard error."""
    options = parser().parse_args(argv)
    quiet_log()
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    wanted = rows(options.only)
    if options.list:
        print("\n".join(f"{row.name}: {row.failure}: {row.outcome}" for row in wanted))
        return 0
    check_outputs(options, "json")
    with tempfile.TemporaryDirectory() as name:
        verdicts = asyncio.run(run_rows(wanted, ChaosRun(options.keep or Path(name), options.seed)))
    print("\n".join(f"{'FAIL' if each.faults else 'PASS'} {each.row}" for each in verdicts))
    if options.json:
        figures = {"rows": [asdict(each) for each in verdicts], "seed": options.seed, "machine": machine()}
        options.json.write_text(as_json(figures))
    return 1 if any(each.faults for each in verdicts) else 0


async def run_rows(wanted: Sequence[ChaosRow], run: ChaosRun) -> list[Verdict]:
    """Run rows one after the other; a row that cannot be run has failed."""
    verdicts = []
    for row in wanted:
        try:
            faults = await row.cause(run)
        except (AgentError, OSError, TimeoutError) as error:
            faults = [f"it could not be run: {error}"]
        verdicts.append(Verdict(row.name, faults))
        say(f"{row.name}: {'; '.join(faults) if faults else 'as expected'}")
    return verdicts


if __name__ == "__main__":
    raise SystemExit(main())
