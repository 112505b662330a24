"""``python -m evals.crash --kills 50``: SIGKILL at random moments of conversations.

Each round holds a conversation (a fact, tool calls with effects outside, small talk; with ``--voice`` a call
of the same session at the same time). It kills the server in a phase that is drawn, starts it again, and
checks:

* that every acknowledged event is in the timeline, once, in its order, with no number missing;
* that no effect took place twice, even when the unanswered message is sent again with the same key;
* that the reopened session has the fact that was given before the kill, by text and in a new call.

Status 0: all of that holds; 1: it does not; 2: the evaluation itself could not run.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from parley.core.errors import AgentError
from parley.evals.crash.rounds import run
from parley.evals.harness.command import machine, positive


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.crash",
        description="Kill a server with SIGKILL at random moments of conversations.",
    )
    root.add_argument("--kills", type=positive, default=50)
    root.add_argument("--seed", type=int, default=1)
    root.add_argument(
        "--store", metavar="URL", help="address of an empty or test database; default: a new SQLite file"
    )
    root.add_argument("--voice", action="store_true", help="keep a call of the same session in progress")
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when a requirement is broken, 2 after printing one line to standard error."""
    options = parser().parse_args(argv)
    try:
        findings = asyncio.run(run(options.kills, options.seed, store=options.store, voice=options.voice))
        if options.json:
            figures = {**findings.as_json(), "seed": options.seed, "machine": machine()}
            options.json.write_text(json.dumps(figures, indent=2) + "\n")
    except (AgentError, OSError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    print(findings.table())
    for detail in [*findings.refused, *findings.details]:
        print(detail, file=sys.stderr)
    return 0 if findings.passed() else 1


if __name__ == "__main__":
    sys.exit(main())
