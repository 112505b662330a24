"""Command line of ``parley doctor``: which checks a deployment needs, and how their results are shown."""

import argparse
import asyncio
import json
import os
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from parley.command import options
from parley.command.check import problems
from parley.command.doctor.ice import TURN_PASSWORD_ENV, check_stun, check_turn
from parley.command.doctor.machine import (
    check_clock,
    check_files,
    check_folders,
    check_port,
    local_address,
    runs_here,
)
from parley.command.doctor.results import (
    CheckResult,
    DoctorCheck,
    Level,
    fail,
    good,
    run_checks,
    warn,
)
from parley.command.exit_status import status_of
from parley.command.log import configure_log
from parley.configs.load import load_deployment
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.runtime.event_loop import run_asyncio
from parley.serving.gateway.webrtc.turn_credentials import TurnServer
from parley.serving.gateway.webrtc.turn_settings import TurnSettings

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

EXIT_FAILED = 1
NAMES = ("settings", "files", "folders", "store", "port", "clock", "stun", "turn", "engines", "call")


def main(arguments: list[str]) -> int:
    """Check a deployment; return 0, or 1 when a check has failed."""
    parser = build_parser()
    given = parser.parse_args(arguments)
    configure_log(given.verbose)
    return status_of(parser.prog, lambda: run_asyncio(_doctor(given)))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="parley doctor",
        description="Check a deployment before it gets traffic: settings and keys, ports, clocks, disks, the "
        "session store, STUN and TURN, the engines, and a synthetic phone call at the running server.",
        epilog="Exit status: 0 when no check has failed, 1 otherwise, 2 when the deployment cannot be read.",
    )
    options.add_mode(parser, (CASCADE, DUPLEX))
    options.add_config(parser)
    parser.add_argument(
        "--server",
        metavar="URL",
        help="running server to call, by phone; default: the one that holds the deployment's port, if "
        "any. With the public address the proxy is checked, too",
    )
    parser.add_argument(
        "--clock",
        metavar="URL",
        help="HTTP server whose date the clock is compared with; default: public_url",
    )
    parser.add_argument("--turn", metavar="URL", help="TURN server to allocate at: turn:host:port")
    parser.add_argument(
        "--turn-user", metavar="NAME", default="", help=f"its user; {TURN_PASSWORD_ENV} has the password"
    )
    parser.add_argument("--only", choices=NAMES, action="append", help="check only this; may be repeated")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    options.add_verbose(parser)
    return parser


async def _doctor(given: argparse.Namespace) -> int:
    deployment = load_deployment(given.config)
    checks = checks_of(deployment, given)
    levels: Counter[Level] = Counter()
    shown = []
    async for check, result in run_checks(checks):
        levels[result.level] += 1
        if given.json:
            shown.append({"check": check.name, **asdict(result)})
        else:
            step = f"; {result.next_step}" if result.next_step else ""
            print(f"{result.level:4} {check.name:8} {result.message}{step}", flush=True)
    if given.json:
        json.dump({"deployment": deployment.name, "ok": not levels[Level.FAIL], "checks": shown}, sys.stdout)
        print()
    else:
        counted = ", ".join(f"{levels[level]} {level}" for level in Level)
        print(f"{deployment.name}: {counted}")
    return EXIT_FAILED if levels[Level.FAIL] else 0


def checks_of(deployment: "Deployment", given: argparse.Namespace) -> list[DoctorCheck]:
    """Return the checks that a deployment needs, the quick ones first."""
    from parley.command.doctor.storage import check_store, folders_of

    server, phone = deployment.server, deployment.phone
    clock = given.clock or (None if phone is None else phone.public_url)
    checks = [
        DoctorCheck(
            "settings", 60.0, partial(_check_settings, deployment, given.mode), "correct the deployment"
        ),
        DoctorCheck("files", 5.0, partial(check_files, server), "raise the limit of open files"),
        DoctorCheck("folders", 20.0, partial(check_folders, folders_of(deployment)), "check the disk"),
        DoctorCheck(
            "store",
            20.0,
            partial(check_store, deployment),
            "check remembering.store.url (PARLEY_STORE_URL) and the database",
        ),
        DoctorCheck("port", 20.0, partial(check_port, server), "choose another server.port"),
        DoctorCheck("clock", 20.0, partial(check_clock, clock), "start a time service"),
    ]
    for url in server.ice_servers:
        checks.append(DoctorCheck("stun", 10.0, partial(check_stun, url), "check server.ice_servers"))
    if server.turn is not None:
        for url in server.turn.urls:
            turn = partial(_check_own_turn, server.turn, url)
            checks.append(DoctorCheck("turn", 10.0, turn, "check server.turn and PARLEY_TURN_SECRET"))
    if given.turn is not None:
        turn = partial(check_turn, given.turn, given.turn_user, os.environ.get(TURN_PASSWORD_ENV, ""))
        checks.append(DoctorCheck("turn", 10.0, turn, "check --turn and its credentials"))
    checks += [
        DoctorCheck(
            "engines", 180.0, partial(_check_engines, deployment), "parley check names what an engine lacks"
        ),
        DoctorCheck("call", 60.0, partial(_check_call, deployment, given.server), "see the server's log"),
    ]
    return [check for check in checks if given.only is None or check.name in given.only]


async def _check_settings(deployment: "Deployment", mode: str) -> Sequence[CheckResult]:
    found = await asyncio.to_thread(lambda: list(dict.fromkeys(problems(deployment, mode))))
    if not found:
        return [good("settings, keys, packages and files are complete")]
    return [fail(problem, "correct the deployment or the environment") for problem in found]


async def _check_own_turn(settings: TurnSettings, url: str) -> Sequence[CheckResult]:
    """Allocate at the deployment's TURN server, with credentials as a page gets them."""
    made = TurnServer(settings).credentials()
    return await check_turn(url, made.user, made.password)


async def _check_engines(deployment: "Deployment") -> Sequence[CheckResult]:
    from parley.command.doctor.engines import check_engines

    return await check_engines(deployment)


async def _check_call(deployment: "Deployment", server: str | None) -> Sequence[CheckResult]:
    from parley.command.doctor.phone import check_call

    if deployment.phone is None:
        if server is None:
            return []
        step = "add the section phone, or leave out --server"
        return [warn(f"no call was placed at {server}: the deployment has no phone", step)]
    if server is None:
        if not await runs_here(deployment.server):
            step = "start the server and check again, or name one with --server URL"
            return [warn("no server runs here: no call was placed", step)]
        server = local_address(deployment.server)
    return await check_call(deployment, server)
