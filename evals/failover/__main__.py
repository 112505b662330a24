"""``python -m evals.failover --calls 200``: let a random stage fail in every call, and judge what is heard.

Each call goes through a real server, over WebRTC, to services on loopback that speak the protocols of
Soniox or Deepgram, OpenAI and Cartesia, or to the embedded recogniser in its process. In the second of its
three turns one of these is killed, cut, refuses, hangs or sends garbage, at a random moment, and stays so to
the end of the call (a cut connection may be opened again). Everything is judged from the audio that the
caller receives: the first sound of each answer against the first sounds of the first turns, the longest
silence, and words that are heard twice or not at all.

With ``--only realtime`` the calls begin with OpenAI's Realtime service instead, which fails in the same ways,
and the cascade takes over.

Status 0: every call is within the limits; 1: one is not; 2: the evaluation itself could not run.
"""

import argparse
import asyncio
import math
import random
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path

from parley.evals.failover.calls import KINDS, REALTIME, CallRecord, Lane, draw, lane, questions
from parley.evals.failover.faults import OF_CASCADES, Stage
from parley.evals.failover.figures import figures, passed, table
from parley.evals.harness.collector import uncollected
from parley.evals.harness.command import exit_code, machine, positive, positive_number, quiet_log
from parley.evals.harness.progress import Progress, say
from parley.evals.harness.report import add_outputs, check_outputs, publish


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.failover",
        description="Let a random stage fail in every call, and judge what its caller hears.",
    )
    root.add_argument("--calls", type=positive, default=200)
    root.add_argument(
        "--minutes", type=positive_number, help="begin no call after this time; default: no limit"
    )
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--lanes", type=positive, default=3, help="servers, with a call at a time each")
    root.add_argument("--only", choices=[*Stage], help="the only stage that fails")
    root.add_argument("--keep", type=Path, help="folder for the servers' files and logs")
    add_outputs(root, with_table=False)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when a call is beyond the limits, 2 after one line to standard error."""
    options = parser().parse_args(argv)
    quiet_log()
    return exit_code(lambda: _run(options))


def _run(options: argparse.Namespace) -> int:
    check_outputs(options, "json")
    with tempfile.TemporaryDirectory() as name:
        folder = (options.keep or Path(name)).absolute()
        stages = [Stage(options.only)] if options.only else [*OF_CASCADES]
        within_s = None if options.minutes is None else 60 * options.minutes
        records = asyncio.run(
            run(options.calls, options.seed, options.lanes, folder, stages, within_s=within_s)
        )
    result = {
        **figures(records),
        "seed": options.seed,
        "lanes": options.lanes,
        "machine": machine(),
        "calls": [asdict(each) for each in records],
    }
    publish(options, result, table)
    return 0 if passed(records) else 1


async def run(
    calls: int,
    seed: int,
    lanes: int,
    folder: Path,
    stages: Sequence[Stage],
    *,
    within_s: float | None = None,
) -> list[CallRecord]:
    """Hold calls in lanes, which share them.

    Args:
        calls: number of calls.
        seed: of everything random.
        lanes: number of lanes.
        folder: for their files, absolute.
        stages: the stages that may fail, each as often as the others.
        within_s: no call begins after this time. None for no limit.

    Raises:
        AgentError: a lane does not start, or a voice is missing.
    """
    asked = await asyncio.to_thread(questions, folder / "speech")
    kinds = (REALTIME,) if Stage.REALTIME in stages else KINDS
    dice = random.Random(seed)
    drawn = [stages[number % len(stages)] for number in range(calls)]
    dice.shuffle(drawn)
    records: list[CallRecord] = []
    progress = Progress("calls", calls)
    loop = asyncio.get_running_loop()
    ends_s = math.inf if within_s is None else loop.time() + within_s

    async def hold(open_lane: Lane) -> None:
        while drawn and loop.time() < ends_s:
            record = await open_lane.hold(draw(dice, open_lane.kind, drawn.pop(), asked[1]))
            records.append(record)
            for line in _remarks(record):
                say(line)
            progress.step()

    async with AsyncExitStack() as stack:
        opened = [
            await stack.enter_async_context(lane(kind, folder / f"{number}-{kind}", asked))
            for number, kind in enumerate(kinds[place % len(kinds)] for place in range(lanes))
        ]
        with uncollected():
            async with asyncio.TaskGroup() as tasks:
                for number, each in enumerate(opened):
                    tasks.create_task(hold(each), name=f"failover.lane.{number}")
    return records


def _remarks(record: CallRecord) -> list[str]:
    failure = record.failure
    where = f"{record.kind}: {failure.stage} {failure.fault} at {failure.at_ms} ms"
    found = [f"{where}: {record.error}"] if record.error else []
    if record.repeated or record.caller_repeated:
        found.append(f"{where}: again {record.repeated}, of the caller {record.caller_repeated}")
    for number, turn in enumerate(record.turns):
        if turn.first_ms is None or turn.silence_ms > 2_500 or (turn.missing and not turn.says_other):
            found.append(
                f"{where}: turn {number}: first {turn.first_ms} ms, silence {turn.silence_ms} ms, "
                f"{len(turn.missing)} missing, replies {turn.replies}"
            )
    return found


if __name__ == "__main__":
    raise SystemExit(main())
