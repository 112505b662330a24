"""Work of a command whose options are read: a server, a call, or a conversation in this terminal."""

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from parley.command.flags import check_flags, with_flags
from parley.command.log import configure_log
from parley.command.options import command_of
from parley.configs.load import load_deployment
from parley.pipelines.modes import CASCADE
from parley.runtime.event_loop import run_asyncio
from parley.runtime.heap import without_collection
from parley.transports.registry import Command

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment


def run(options: argparse.Namespace) -> int:
    """Load the deployment and do what the options request; return the exit status.

    Raises:
        ConfigError: the options, the deployment or a file is wrong.
        EngineError: an engine does not load.
        MediaError: a recording is not audio.
        StoreError: a session does not exist, or cannot be opened.
    """
    check_flags(options)
    with without_collection():
        deployment = with_flags(load_deployment(options.config), options)
    if options.replay is not None:
        from parley.command.replay import replay_session

        output = options.output or Path("replays") / options.replay
        return replay_session(
            deployment, options.replay, output, mode=options.mode, hears_again=options.hear_again
        )
    if options.print_config:
        return print_config(deployment, with_engines=options.all)
    if deployment.telemetry.log_format == "json":
        configure_log(options.verbose, as_json=True)
    if options.mode == "text":
        from parley.pipelines.text.terminal import talk_in_terminal

        return run_asyncio(talk_in_terminal(deployment, session_id=options.session))
    return hold(deployment, options)


def hold(deployment: "Deployment", options: argparse.Namespace) -> int:
    """Serve, or hold one call, as the row of the transport specifies.

    Returns the exit status.
    """
    mode, session_id = options.mode or CASCADE, options.session
    match command_of(options.transport):
        case Command.RECORDING:
            from parley.command.file_call import call_from_file

            return call_from_file(deployment, options.input, options.output, session_id=session_id, mode=mode)
        case Command.SIMULATION:
            from parley.command.phone_call import call_by_telephone

            return call_by_telephone(
                deployment, options.input, options.output, mode=mode, port=options.port or 0
            )
        case Command.DEVICES:
            from parley.command.microphone_call import call_from_microphone

            return run_asyncio(call_from_microphone(deployment, session_id=session_id, mode=mode))
        case Command.AGENT:
            from parley.command.room_call import call_agent

            return run_asyncio(call_agent(deployment, options.url, session_id=session_id, mode=mode))
        case Command.ROOM:
            from parley.command.room_call import call_in_room

            return run_asyncio(call_in_room(deployment, options.transport, session_id=session_id, mode=mode))
        case _:
            from parley.command.server import serve

            return serve(deployment, mode=mode, verbosity=options.verbose)


def print_config(deployment: "Deployment", *, with_engines: bool) -> int:
    """Print the effective deployment, on request with the settings of the engines that it names."""
    from parley.configs.print_config import as_yaml
    from parley.pipelines.engines.settings import effective_settings

    engine_settings = partial(effective_settings, deployment) if with_engines else None
    print(as_yaml(deployment, engine_settings=engine_settings), end="")
    return 0
