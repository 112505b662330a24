"""``python -m evals.abuse``: attacks on a running server while control calls measure their own audio.

Status 0: every row passes; 1: one fails; 2: the evaluation itself could not run.
"""

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parley.evals.abuse.controls import TRANSPORTS
from parley.evals.abuse.registry import chosen
from parley.evals.abuse.report import Row, table
from parley.evals.abuse.rounds import Rounds
from parley.evals.harness.command import exit_code, machine, positive_number, quiet_log
from parley.evals.harness.report import add_outputs, as_json, check_outputs


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.abuse",
        description="Run attacks on a server of this machine while control calls measure their own audio.",
    )
    root.add_argument("--seconds", type=positive_number, default=20.0, help="duration of each attack")
    root.add_argument(
        "--settle-s",
        type=positive_number,
        default=30.0,
        help="longest wait for the server's memory to settle",
    )
    root.add_argument(
        "--only", nargs="+", metavar="NAME", help="attacks to run; mutate:* stands for all of that kind"
    )
    root.add_argument("--transports", nargs="+", choices=TRANSPORTS, default=list(TRANSPORTS))
    root.add_argument(
        "--without-controls",
        action="store_true",
        help="run no control calls; measure only the responses to the attackers and the resources that "
        "remain in use",
    )
    root.add_argument("--seed", type=int, default=1)
    root.add_argument(
        "--list", action="store_true", help="list the attacks with what each stands for, and exit"
    )
    root.add_argument(
        "--table", action="store_true", help="write the table for operators in docs/reference/exposure.md"
    )
    add_outputs(root, with_table=False)
    root.add_argument(
        "--keep", type=Path, help="folder for the servers' files and logs; default: they are not kept"
    )
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when an attack has an effect, 2 after one line to standard error."""
    options = parser().parse_args(argv)
    quiet_log()
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    if options.table:
        from parley.evals.abuse.exposure import write

        asyncio.run(write())
        return 0
    attacks = chosen(options.only)
    if options.list:
        print("\n".join(f"{attack.name}: {attack.covers}" for attack in attacks))
        return 0
    check_outputs(options, "json")
    with tempfile.TemporaryDirectory() as name:
        rounds = Rounds(
            options.keep or Path(name),
            seconds=options.seconds,
            seed=options.seed,
            settle_s=options.settle_s,
            transports=() if options.without_controls else options.transports,
        )
        rows = asyncio.run(rounds.run(attacks))
    print(table(rows))
    if options.json:
        figures: dict[str, Any] = {
            "rows": [_as_json(row) for row in rows],
            "seed": options.seed,
            "seconds": options.seconds,
            "machine": machine(),
        }
        options.json.write_text(as_json(figures))
    return 1 if any(row.faults for row in rows) else 0


def _as_json(row: Row) -> dict[str, Any]:
    return {**asdict(row), "faults": row.faults}


if __name__ == "__main__":
    raise SystemExit(main())
