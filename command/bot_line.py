"""Command line of ``bot.py``: one server, or one conversation."""

import argparse
from functools import partial

from parley.command import options
from parley.command.exit_status import MEANING, status_of
from parley.command.log import configure_log
from parley.command.run import run
from parley.pipelines.modes import CASCADE
from parley.transports.registry import TRANSPORTS

PROGRAM = "bot.py"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Talk to Parley in a browser, from a file, or in this terminal.",
        epilog=MEANING,
    )
    options.add_mode(parser, default=None, without=f"{CASCADE}; with --replay, that of each call")
    options.add_transport(parser, TRANSPORTS.held_by_command())
    options.add_config(parser)
    options.add_host(parser)
    options.add_port(parser)
    options.add_files(parser)
    options.add_session(parser)
    options.add_url(parser)
    options.add_replay(parser)
    options.add_hear_again(parser, where="with --replay: ")
    parser.add_argument(
        "--print-config",
        action="store_true",
        help="print the deployment as YAML, with the meaning and default of every setting, and exit",
    )
    options.add_all(parser, where="with --print-config: ")
    options.add_verbose(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status (``status_of``)."""
    given = build_parser().parse_args(arguments)
    configure_log(given.verbose)
    return status_of(PROGRAM, partial(run, given))
