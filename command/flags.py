"""Options together: those that do not fit each other, and those that override the deployment."""

import argparse
from typing import TYPE_CHECKING

from parley.command.options import command_of, transports_with
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError
from parley.serving.gateway.settings import ServerSettings
from parley.transports.registry import Command

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

# Commands that take the option.
WITH_FILES = (Command.RECORDING, Command.SIMULATION)
WITH_SESSION = (Command.RECORDING, Command.DEVICES, Command.ROOM, Command.AGENT)


def check_flags(options: argparse.Namespace) -> None:
    """Refuse flags that would be ignored.

    Raises:
        ConfigError: flags do not belong together, or one is missing.
    """
    command = command_of(options.transport)
    given = [f"--{name}" for name in ("input", "output") if getattr(options, name) is not None]
    if options.replay is not None:
        _check_replay(options)
        return
    if options.hear_again:
        raise ConfigError("--hear-again can only be used with --replay")
    if options.mode == "text" and options.transport is not None:
        raise ConfigError(f"--mode text talks in this terminal: leave out --transport {options.transport}")
    if command is Command.RECORDING and len(given) < 2:
        raise ConfigError(f"--transport {options.transport} needs --input WAV and --output WAV")
    if options.session and options.mode != "text" and command not in WITH_SESSION:
        raise ConfigError(
            "--session can only be used with --mode text or --transport "
            f"{' or '.join(transports_with(*WITH_SESSION))}; a browser page keeps its own session"
        )
    if (command is Command.AGENT) != (options.url is not None):
        [name] = transports_with(Command.AGENT)
        raise ConfigError(f"--transport {name} and --url URL go together")
    if options.all and not options.print_config:
        raise ConfigError("--all can only be used with --print-config")
    if command not in WITH_FILES and given:
        raise ConfigError(
            f"{' and '.join(given)} can only be used with --transport "
            f"{' or '.join(transports_with(*WITH_FILES))}"
        )
    if command is Command.SIMULATION and options.host is not None:
        raise ConfigError(f"--transport {options.transport} is a call on this machine: leave out --host")


def _check_replay(options: argparse.Namespace) -> None:
    for name in ("transport", "input", "session", "host", "port", "url"):
        if getattr(options, name) is not None:
            raise ConfigError(f"--replay holds its own call: leave out --{name}")
    if options.mode == "text":
        raise ConfigError("--replay holds calls: --mode cascade or duplex, not text")
    if options.print_config:
        raise ConfigError("--print-config only prints: leave out --replay")


def with_flags(deployment: "Deployment", options: argparse.Namespace) -> "Deployment":
    """Return the deployment with the settings of the command line, which override its own."""
    changed = {
        name: getattr(options, name) for name in ("host", "port") if getattr(options, name) is not None
    }
    if not changed:
        return deployment
    server = parse_settings(
        ServerSettings, {**deployment.server.model_dump(exclude_unset=True), **changed}, where="command line"
    )
    return deployment.model_copy(update={"server": server})
