"""``python -m evals.perception.streams``: compare the order of a long scripted call with what happened.

Ten minutes of scripted turns (``fusion_set``), in which words come at once, reports of the voice after 80 ms
and those of a camera after 200 ms, each with jitter, reach the perception of a call on virtual time. The
timeline of its session must hold them in the order of the script. Printed are also how long after it happened
each pointing gesture had its place, and how long each turn waited for the specialists.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

from parley.evals import virtual_time
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, cells, markdown, percent, run_command, spread
from parley.evals.perception.fusion import read_set
from parley.evals.perception.scripted import Performance, SpecialistReport, perform, reports
from parley.evals.perception.scripted_call import ENDPOINT_MS, scripted_call
from parley.processors.fusion.perception import PerceptionSettings
from parley.session_store.events import Event

PAUSE_S = 2.0
GOAL_MS = 250


@dataclass(frozen=True, slots=True)
class PlayedCall:
    """A scripted call that was played.

    Attributes:
        happened_us: moment of each event of the script, with the stream of its report.
        committed: the reports of the session's timeline, in its order.
        waited_us: how long each turn waited for the specialists.
    """

    happened_us: list[tuple[int, str]]
    committed: list[Event]
    waited_us: list[int]


async def play(folder: Path, minutes: float, seed: int) -> PlayedCall:
    """Play scripted turns for some minutes of virtual time."""
    turns, things = read_set("report")
    happened_us: list[tuple[int, str]] = []
    waited_us: list[int] = []
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    ends_s = began_s + minutes * 60
    progress = Progress("turns")
    async with scripted_call(folder, PerceptionSettings()) as call:
        for number, turn in enumerate(cycle(turns)):
            if loop.time() >= ends_s:
                break
            drawn = seed * 100_000 + number
            performance = perform(turn.text, things, drawn, comes_from=turn.comes_from, goes_to=turn.goes_to)
            given = reports(performance, drawn)
            base_us = call.now_us()
            await call.turn(performance, given)
            waited_us.append(max(0, call.taken_us - base_us - (performance.end_ms + ENDPOINT_MS) * 1000))
            happened_us.extend(_happened(performance, given, base_us))
            await asyncio.sleep(PAUSE_S)
            progress.step(f"{(loop.time() - began_s) / 60:.1f} of {minutes:g} minutes")
        await call.end()
        return PlayedCall(sorted(happened_us), await call.reports(), waited_us)


def _happened(
    performance: Performance, given: Sequence[SpecialistReport], base_us: int
) -> list[tuple[int, str]]:
    return [
        (base_us + performance.end_ms * 1000, "stt"),
        *((base_us + each.event_ms * 1000, each.stream.value) for each in given),
    ]


def misplaced(call: PlayedCall) -> int:
    """Return how many places of the timeline hold another event than the script, or none."""
    # Partial words are revised, and have their last place with the final ones.
    committed = [
        (event.event_us, event.source) for event in call.committed if event.final or event.source != "stt"
    ]
    order = [moment for moment, _ in committed]
    wrong = sum(after < before for before, after in zip(order, order[1:], strict=False))
    # Of events at one moment the stream that joined first comes first, which the script does not know.
    return wrong + len(set(call.happened_us) ^ set(committed))


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Play the call and return the JSON."""
    with tempfile.TemporaryDirectory() as folder:
        call = virtual_time.run(play(Path(folder), arguments.minutes, arguments.seed))
    pointing = [
        event for event in call.committed if event.source == "vision" and event.payload["body"]["ref"]
    ]
    placed_ms = [(event.payload["committed_us"] - event.event_us) / 1000 for event in pointing]
    waited_ms = [(event.payload["committed_us"] - event.arrival_us) / 1000 for event in pointing]
    return {
        "turns": len(call.waited_us),
        "events": len(call.happened_us),
        "misplaced": misplaced(call),
        "late": sum(bool(event.payload["late"]) for event in call.committed),
        "pointing_to_commit_ms": spread(placed_ms),
        "report_to_commit_ms": spread(waited_ms),
        "within_goal_percent": percent(sum(each <= GOAL_MS for each in placed_ms), len(placed_ms)),
        "turn_waited_ms": spread([each / 1000 for each in call.waited_us]),
        "settings": {"minutes": arguments.minutes, "seed": arguments.seed},
        "machine": machine(),
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as a table."""
    names = ("pointing_to_commit_ms", "report_to_commit_ms", "turn_waited_ms")
    placed, held, waited = (cells(result[name], "p50", "p95", "max") for name in names)
    rows = [
        ["events of the script", result["events"]],
        ["misplaced in the timeline", result["misplaced"]],
        ["late", result["late"]],
        ["pointing to its place, p50 / p95 / max ms", placed],
        [f"within {GOAL_MS} ms, %", result["within_goal_percent"]],
        ["of which after the camera's report, ms", held],
        ["a turn waited, p50 / p95 / max ms", waited],
    ]
    return markdown(["", f"{result['turns']} turns"], rows)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.perception.streams",
        description="Compare the order of a long scripted call with what happened.",
    )
    root.add_argument("--minutes", type=positive, default=10)
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: measure(arguments), table)


if __name__ == "__main__":
    sys.exit(main())
