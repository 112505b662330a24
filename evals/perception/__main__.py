"""``python -m evals.perception``: find the reports of a call that came too late for their place in its order.

Calls with recorded people are placed to a real server with the embedded engines. The timelines of their
sessions hold every report that the sequencer committed (``ANNOTATION``), with its event time and arrival. A
report is late when one that happened after it had been committed before. The goal is less than 1 % for calls
with words alone.

``--pointing`` adds a program that watches each call as a camera would: it reports a gesture every second,
200 ms after it happened, and signs of life in between. The table says how long after it happened each report
had its place.
"""

import argparse
import asyncio
import json
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

from websockets.asyncio.client import connect

from parley.core.errors import PeerError
from parley.evals.harness import sessions
from parley.evals.harness.command import machine, positive
from parley.evals.harness.launcher import server_at
from parley.evals.harness.manners import Manners, ask, hear_greeting
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, run_command
from parley.evals.harness.speech import Spoken, of_turn
from parley.evals.harness.webrtc_caller import Line
from parley.evals.human.callers import SpeechKind, open_callers
from parley.evals.perception.order import Reported, reports, summary, table

GAP_MS = 600
SEEN_AFTER_MS = 200
SIGN_S = 0.04
SIGNS_PER_GESTURE = 25


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.perception",
        description="Count the reports of calls that came too late for their place in the order of events.",
    )
    root.add_argument("--calls", type=positive, default=4)
    root.add_argument("--turns", type=positive, default=8, help="turns of each call")
    root.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    root.add_argument("--url", help="address of a running server; default: start one")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--pointing", action="store_true", help="let a program report gestures meanwhile")
    root.add_argument("--own-speech", type=Path, help="folder of your recordings, in place of the packages'")
    add_outputs(root)
    root.add_argument("--out-dir", type=Path, default=Path("out/perception"))
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Place the calls and return the JSON.

    Raises:
        AgentError: a server does not start or answer, or recordings are missing.
    """
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    callers = open_callers(SpeechKind.HUMAN, own=arguments.own_speech)
    found: list[Reported] = []
    async with server_at(
        arguments.url, "parley", arguments.config, arguments.out_dir / "server.log"
    ) as server:
        for number in range(arguments.calls):
            turns = callers.turns(arguments.turns, arguments.seed + number)
            spoken = [of_turn(turn, gap_ms=GAP_MS) for turn in turns]
            found += await _call(server.url, spoken, pointing=arguments.pointing)
            say(f"call {number + 1} of {arguments.calls}: {len(found)} reports so far")
    if not found:
        raise PeerError("no call has a report: was nothing recognised?")
    settings = {
        "calls": arguments.calls,
        "turns": arguments.turns,
        "pointing": arguments.pointing,
        "seed": arguments.seed,
        "config": str(arguments.config),
        "url": arguments.url,
    }
    return {**summary(found), "settings": settings, "machine": machine()}


async def _call(url: str, turns: Sequence[Spoken], *, pointing: bool) -> list[Reported]:
    """Hold a call and return the reports of its session."""
    line = Line(url)
    watching: asyncio.Task[None] | None = None
    try:
        await line.dial()
        await hear_greeting(line, Manners())
        if pointing:
            watching = asyncio.create_task(_watch(url, await sessions.newest_id(url)))
        for turn in turns:
            await ask(line, turn, Manners())
    finally:
        if watching is not None:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        await line.hang_up()
    return reports(await sessions.newest(url))


async def _watch(url: str, session_id: str) -> None:
    """Report gestures of 200 ms ago, and signs of life."""
    address = f"{url.replace('http', 'ws', 1)}/api/sessions/{session_id}/annotations/socket"
    async with connect(address) as socket:
        await socket.recv()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        for number in count():
            await asyncio.sleep(max(0.0, began_s + number * SIGN_S - loop.time()))
            report: dict[str, Any] = {"stream": "vision", "age_ms": SEEN_AFTER_MS}
            if number % SIGNS_PER_GESTURE == 0:
                report |= {"duration_ms": 200, "payload": {"gesture": "pointing", "ref": f"thing {number}"}}
            await socket.send(json.dumps({"annotations": [report]}))
            await socket.recv()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: asyncio.run(measure(arguments)), table)


if __name__ == "__main__":
    raise SystemExit(main())
