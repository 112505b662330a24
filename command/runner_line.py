"""Command line of ``runner.py``: one process of a deployment, the gateway for callers or a worker."""

import argparse
import sys

from parley.command.exit_status import EXIT_USAGE
from parley.command.worker import MEANING, serve_engine
from parley.command.worker_options import KNOWN, add_options
from parley.core.errors import ConfigError

PROGRAM = "runner.py"


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description="Run one process of a deployment.", epilog=MEANING
    )
    parser.add_argument(
        "--role",
        choices=("all", "gateway", "worker"),
        required=True,
        help="gateway: serve callers and start the deployment's workers; all: the same, on one machine; "
        "worker: host an engine for other processes",
    )
    parser.add_argument("--config", help="gateway: a YAML file or a deployment's name (default: embedded)")
    parser.add_argument(
        "--mode", choices=("cascade", "duplex"), help="gateway: mode for callers who request none"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="gateway: log more")
    add_options(parser)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = build_parser().parse_args(arguments)
    try:
        _check_flags(given)
    except ConfigError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return EXIT_USAGE
    if given.role != "worker":
        return _serve_callers(given)
    return serve_engine(given, program=PROGRAM)


def _check_flags(given: argparse.Namespace) -> None:
    """Refuse flags that would be ignored.

    Raises:
        ConfigError: flags do not belong together, or one is missing.
    """
    of_worker = {"--engine": given.engine, "--set": given.set, "--limit": given.limit}
    of_worker["--print-url"] = given.print_url
    of_gateway = {"--config": given.config, "--mode": given.mode, "-v": given.verbose}
    others = of_gateway if given.role == "worker" else of_worker
    wrong = [name for name, value in others.items() if value]
    if wrong:
        raise ConfigError(f"{' and '.join(wrong)} cannot be used with --role {given.role}")
    if given.role == "worker" and not given.engine:
        raise ConfigError("--role worker needs --engine", known=KNOWN)


def _serve_callers(given: argparse.Namespace) -> int:
    """Run the gateway as ``bot.py`` does, with all that the deployment names. A worker never imports it."""
    from parley.command.bot_line import main as serve

    flags = {"--config": given.config, "--mode": given.mode, "--host": given.host, "--port": given.port}
    arguments = [part for name, value in flags.items() if value is not None for part in (name, str(value))]
    return serve([*arguments, *["-v"] * given.verbose])
