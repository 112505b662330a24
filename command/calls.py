"""``parley serve``, ``text``, ``call`` and ``replay``: a server, or one conversation on this machine."""

import argparse
from functools import partial
from pathlib import Path

from parley.command import options
from parley.command.exit_status import MEANING, status_of
from parley.command.log import configure_log
from parley.command.run import run
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.transports.registry import TRANSPORTS, Command


def serve(arguments: list[str]) -> int:
    """Run a server; return its exit status."""
    return _run(serve_parser(), arguments)


def serve_parser() -> argparse.ArgumentParser:
    """Return the parser of ``parley serve``."""
    parser = _parser("parley serve", "Serve browsers, phones and programs until Ctrl-C or SIGTERM.")
    options.add_mode(parser, (CASCADE, DUPLEX))
    options.add_config(parser)
    options.add_host(parser)
    options.add_port(parser)
    return parser


def text(arguments: list[str]) -> int:
    """Hold a typed conversation; return its exit status."""
    parser = _parser("parley text", "Talk to the agent by typing in this terminal.", mode="text")
    options.add_config(parser)
    options.add_session(parser)
    return _run(parser, arguments)


def call(arguments: list[str]) -> int:
    """Hold one call; return its exit status."""
    parser = _parser("parley call", "Hold one call on this machine and end with it.")
    own = [name for name in TRANSPORTS.held_by_command() if name != options.DEFAULT_TRANSPORT]
    [microphone] = options.transports_with(Command.DEVICES)
    options.add_mode(parser, (CASCADE, DUPLEX))
    options.add_transport(parser, own, default=microphone)
    options.add_config(parser)
    options.add_port(parser)
    options.add_files(parser)
    options.add_session(parser)
    options.add_url(parser)
    return _run(parser, arguments)


def replay(arguments: list[str]) -> int:
    """Run the recorded calls of a session again; return its exit status."""
    parser = _parser("parley replay", "Run recorded calls again and print what changed.")
    parser.add_argument("replay", metavar="SESSION", help="id of a session whose calls were recorded")
    parser.add_argument(
        "--output", type=Path, help="folder of the page and the audio (default: replays/SESSION)"
    )
    options.add_hear_again(parser)
    options.add_mode(parser, (CASCADE, DUPLEX), default=None, without="that of each call")
    options.add_config(parser)
    return _run(parser, arguments)


def _parser(program: str, description: str, mode: str = CASCADE) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=description, epilog=MEANING)
    parser.set_defaults(**{**options.NONE_GIVEN, "mode": mode})
    options.add_verbose(parser)
    return parser


def _run(parser: argparse.ArgumentParser, arguments: list[str]) -> int:
    given = parser.parse_args(arguments)
    configure_log(given.verbose)
    return status_of(parser.prog, partial(run, given))
