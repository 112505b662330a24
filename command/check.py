"""``parley check``: find what would keep a deployment from starting, without starting it."""

import argparse
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from loguru import logger

from parley.command import options
from parley.command.exit_status import EXIT_USAGE, status_of
from parley.command.log import configure_log
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError
from parley.core.tuning import tuned
from parley.pipelines.modes import CASCADE, DUPLEX

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

# Parts of a deployment whose engines are checked independently of each other.
PARTS = ("hearing", "thinking", "speaking", "duplex")


def main(arguments: list[str]) -> int:
    """Print the problems of a deployment, one line each; return 0 without one, and 2 otherwise."""
    parser = argparse.ArgumentParser(
        prog="parley check",
        description="Check a deployment: its settings, and the keys, packages and files that it needs.",
        epilog="Exit status: 0 when nothing is missing, 2 otherwise. The documents are read. The session "
        "store is not opened.",
    )
    options.add_mode(parser, (CASCADE, DUPLEX))
    options.add_config(parser)
    options.add_verbose(parser)
    given = parser.parse_args(arguments)
    configure_log(given.verbose)
    return status_of(parser.prog, lambda: _check(parser.prog, given.config, given.mode))


def _check(program: str, config: str, mode: str) -> int:
    deployment = load_deployment(config)
    # Several parts may have one cause, such as a missing folder.
    found = list(dict.fromkeys(problems(deployment, mode)))
    for problem in found:
        print(f"{program}: {problem}", file=sys.stderr)
    if found:
        return EXIT_USAGE
    print(f"{deployment.name}: nothing is missing")
    return 0


def problems(deployment: "Deployment", mode: str) -> Iterator[str]:
    """Yield what would keep a server of a deployment from starting."""
    from parley.command.deployment_files import checks_of_files
    from parley.command.server import check_server
    from parley.pipelines.call_recording import check_recording
    from parley.pipelines.engines.plan import plan
    from parley.pipelines.phone.calls import open_desk
    from parley.serving.gateway.auth.client_keys import ClientKeys
    from parley.serving.gateway.phone.caller_directory import caller_key
    from parley.serving.gateway.phone.routes import open_carriers
    from parley.serving.pool.settings import PoolTuning
    from parley.serving.pool.shared.lines import SharedLines
    from parley.serving.pool.worker_secret import pool_secret
    from parley.telemetry.trace_export import check_traces

    server, phone = deployment.server, deployment.phone
    yield from _complaint(partial(check_server, deployment, mode))
    yield from _complaint(partial(ClientKeys, server))
    yield from _complaint(deployment.language)
    if (traces := deployment.telemetry.traces) is not None:
        yield from _complaint(partial(check_traces, traces))
    yield from _complaint(partial(check_recording, deployment.recording))
    if phone is not None:
        yield from _complaint(partial(open_desk, phone))
        yield from _complaint(partial(open_carriers, phone, server))
        if phone.remember_callers is not None:
            yield from _complaint(caller_key)
    if deployment.workers.workers:
        yield from _complaint(lambda: pool_secret(tuned(PoolTuning, deployment.workers)))
    if (shared := deployment.workers.shared) is not None:
        yield from _complaint(partial(SharedLines, shared, deployment.remembering.store))
    for check in checks_of_files(deployment):
        yield from _complaint(check)
    whole = list(_complaint(partial(plan, deployment, duplex=True)))
    parts = _problems_of_parts(deployment) if whole else []
    # The whole has a problem of its own when its parts do not fit each other.
    yield from parts or whole


def _problems_of_parts(deployment: "Deployment") -> list[str]:
    """Return the problems of each part, with the default engines in the other parts."""
    from parley.configs.deployment import Deployment
    from parley.pipelines.engines.plan import plan

    default = Deployment()
    found: list[str] = []
    # Of the default engines, nothing is reported that concerns the deployment.
    logger.disable("parley")
    try:
        for part in PARTS:
            others = {name: getattr(default, name) for name in PARTS if name != part}
            alone = deployment.model_copy(update=others)
            found += _complaint(partial(plan, alone, duplex=True))
    finally:
        logger.enable("parley")
    return found


def _complaint(check: Callable[[], object]) -> Iterator[str]:
    try:
        check()
    except ConfigError as error:
        yield str(error)
