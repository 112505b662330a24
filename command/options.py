"""Options of the command lines, each defined once.

A command's parser takes those that it offers, and ``NONE_GIVEN`` stands for the others, so that all commands
bring the same options to what they run.
"""

import argparse
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from parley.configs.load import known_deployments
from parley.core.registry import is_target
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.transports.registry import TRANSPORTS, Command

MODES = (CASCADE, DUPLEX, "text")
DEFAULT_TRANSPORT = "webrtc"
# The options of a command that has none of these.
NONE_GIVEN: Mapping[str, Any] = MappingProxyType(
    {
        "mode": CASCADE,
        "transport": None,
        "host": None,
        "port": None,
        "input": None,
        "output": None,
        "session": None,
        "url": None,
        "replay": None,
        "hear_again": False,
        "print_config": False,
        "all": False,
    }
)


def command_of(transport: str | None) -> Command | None:
    """Return how the command line holds a call over a transport; None stands for the default one."""
    return TRANSPORTS.row(transport or DEFAULT_TRANSPORT).command


def transports_with(*commands: Command) -> list[str]:
    """Return the names of the transports with one of these commands."""
    return [row.name for row in TRANSPORTS.rows() if row.command in commands]


def add_mode(
    parser: argparse.ArgumentParser,
    modes: Sequence[str] = MODES,
    *,
    default: str | None = CASCADE,
    without: str = "",
) -> None:
    """Add ``--mode``; where it has no default, ``without`` says what follows."""
    meaning = {
        CASCADE: "speech, one turn at a time",
        DUPLEX: "an engine that listens while it speaks",
        "text": "typed conversation in this terminal",
    }
    described = "; ".join(f"{mode}: {meaning[mode]}" for mode in modes)
    described += f" (default: {default or without})"
    parser.add_argument("--mode", choices=modes, default=default, help=described)


class _Transports(tuple[str, ...]):
    """Names of transports. A ``package.module:function`` of another package is one too, and not listed."""

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (isinstance(name, str) and is_target(name))


def add_transport(
    parser: argparse.ArgumentParser, transports: Sequence[str], default: str | None = None
) -> None:
    """Add ``--transport``; without a default, it stays None for ``DEFAULT_TRANSPORT``."""
    parser.add_argument(
        "--transport",
        choices=_Transports(transports),
        default=default,
        help=f"transport of the caller in --mode cascade or duplex (default: {default or DEFAULT_TRANSPORT}; "
        f"{', '.join(transports_with(Command.SIMULATION))}: with a simulated caller on this machine)",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add ``--config``."""
    parser.add_argument(
        "--config",
        default=os.environ.get("PARLEY_CONFIG", "embedded"),
        help=f"deployment: a YAML file or one of {', '.join(known_deployments())}",
    )


def add_host(parser: argparse.ArgumentParser) -> None:
    """Add ``--host``."""
    parser.add_argument("--host", help="address to listen on (default: the deployment's)")


def add_port(parser: argparse.ArgumentParser) -> None:
    """Add ``--port``."""
    parser.add_argument("--port", type=int, help="port to listen on (default: the deployment's)")


def add_files(parser: argparse.ArgumentParser) -> None:
    """Add ``--input`` and ``--output``."""
    parser.add_argument(
        "--input",
        type=Path,
        help="file and twilio transport: WAV of the caller (twilio: without it the simulated caller "
        "asks one question)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        help="file and twilio transport: stereo WAV to write; the call's record is written next to it "
        "as JSON",
    )


def add_url(parser: argparse.ArgumentParser) -> None:
    """Add ``--url``."""
    parser.add_argument(
        "--url",
        help="websocket transport: address (ws:// or wss://) of an agent that speaks Pipecat's frames; it is "
        "called from here, and its voice is the caller",
    )


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Add ``--replay``."""
    parser.add_argument(
        "--replay",
        metavar="SESSION",
        help="run the recorded calls of a session again through this deployment and print what changed; "
        "--output is the folder of the page and the audio (default: replays/SESSION)",
    )


def add_hear_again(parser: argparse.ArgumentParser, *, where: str = "") -> None:
    """Add ``--hear-again``; ``where`` begins its meaning."""
    parser.add_argument(
        "--hear-again",
        action="store_true",
        help=f"{where}recognise the caller anew, also where the recording has this recogniser's words",
    )


def add_session(parser: argparse.ArgumentParser) -> None:
    """Add ``--session``."""
    parser.add_argument("--session", metavar="ID", help="id of an earlier session to resume")


def add_all(parser: argparse.ArgumentParser, *, where: str = "") -> None:
    """Add ``--all``; ``where`` begins its meaning."""
    parser.add_argument("--all", action="store_true", help=f"{where}also print the settings of its engines")


def add_verbose(parser: argparse.ArgumentParser) -> None:
    """Add ``-v``."""
    parser.add_argument(
        "-v", "--verbose", action="count", default=0, help="log more; given twice, log every frame"
    )
