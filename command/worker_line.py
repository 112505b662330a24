"""``parley worker``: a process that hosts one engine for others."""

import argparse

from parley.command.worker import MEANING, serve_engine
from parley.command.worker_options import KNOWN, add_options


def main(arguments: list[str]) -> int:
    """Host an engine; return the exit status."""
    parser = worker_parser()
    given = parser.parse_args(arguments)
    if not given.engine:
        parser.error(f"--engine is required (known: {', '.join(KNOWN)})")
    return serve_engine(given, program=parser.prog)


def worker_parser() -> argparse.ArgumentParser:
    """Return the parser of ``parley worker``."""
    parser = argparse.ArgumentParser(
        prog="parley worker", description="Host one engine for other processes.", epilog=MEANING
    )
    add_options(parser)
    return parser
