"""The command ``parley``: one name for all that a user does with Parley.

A command's module is imported when the command is named, so that ``parley --help`` is quick and a worker
imports no web framework.
"""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module

from parley.core.installation import installed_version
from parley.runtime.interrupts import end_at_once, end_at_once_during_imports
from parley.runtime.process_exit import exit_process

PROGRAM = "parley"
WIDTH = 110


@dataclass(frozen=True, slots=True)
class Subcommand:
    """A command of ``parley``.

    Attributes:
        target: ``"package.module:function"``; the function takes arguments and returns the exit status.
        summary: one line for ``parley --help``.
        undoes: the function removes or finishes on Ctrl-C what it has begun, without an event loop.
    """

    target: str
    summary: str
    undoes: bool = False


SUBCOMMANDS: Mapping[str, Subcommand] = {
    "serve": Subcommand("parley.command.calls:serve", "run a server for browsers, phones and programs"),
    "text": Subcommand("parley.command.calls:text", "talk to the agent by typing in this terminal"),
    "call": Subcommand(
        "parley.command.calls:call", "hold one call with this microphone, a WAV file or a simulated phone"
    ),
    "replay": Subcommand("parley.command.calls:replay", "hold recorded calls again and print what changed"),
    "worker": Subcommand("parley.command.worker_line:main", "host one engine for other processes"),
    "transcribe": Subcommand(
        "parley.batch.transcribe:main",
        "transcribe audio files and recorded calls, apart from live calls",
        undoes=True,
    ),
    "init": Subcommand("parley.command.init:main", "write a deployment to start from, parley.yaml"),
    "check": Subcommand(
        "parley.command.check:main", "check a deployment: settings, keys, packages and files; start nothing"
    ),
    "doctor": Subcommand(
        "parley.command.doctor.main:main",
        "check a deployment before traffic: ports, clocks, disks, engines, a call",
    ),
    "forget": Subcommand("parley.command.forget:main", "remove everything of a person from a running server"),
    "config": Subcommand("parley.command.config:main", "print every setting of a deployment, or the schema"),
    "key": Subcommand("parley.command.key:main", "make a key for an application, and its hash for a server"),
    "models": Subcommand(
        "parley.command.fetch_models:main", "fetch the weights of better local engines", undoes=True
    ),
    "eval": Subcommand("parley.command.evaluate:main", "run a measurement, or list them all"),
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of what stands before a command."""
    width = max(map(len, SUBCOMMANDS))
    lines = [f"  {name:{width}}  {each.summary}" for name, each in SUBCOMMANDS.items()]
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        usage="parley COMMAND [OPTION ...]",
        description="Talk to an agent in a browser, on a phone, in a terminal or from a program.",
        epilog="\n".join(["commands:", *lines, "", "parley COMMAND --help shows the options of a command."]),
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=WIDTH),
    )
    parser.add_argument("--version", action="version", version=f"parley {installed_version()}")
    parser.add_argument("command", metavar="COMMAND", choices=tuple(SUBCOMMANDS), help=argparse.SUPPRESS)
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run a command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if not given:
        build_parser().print_help()
        return 0
    if given[0] not in SUBCOMMANDS:
        # Shows the help or the version, or refuses the word.
        build_parser().parse_args(given)
    command = SUBCOMMANDS[given[0]]
    module, _, function = command.target.partition(":")
    run = getattr(import_module(module), function)
    if command.undoes:
        end_at_once_during_imports()
    status: int = run(given[1:])
    return status


def console_script() -> None:
    """Run ``parley`` and end the process; an installed command calls it."""
    end_at_once()
    exit_process(main())
