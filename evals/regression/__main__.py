"""``python -m evals.regression``: replay a folder of recorded calls with today's configuration.

The folder is the ``recording.folder`` of a deployment. Every call in it is replayed (``command.replay``), and
its turns are compared with those that were recorded. Printed are the calls in which something was decided
otherwise, and the latencies then and now; a page has every turn. The exit status is 1 when more calls changed
than ``--allowed`` permits.

``--record N`` first makes a folder: calls of people and of generated voices to a real server over WebRTC,
with hesitations, barge-ins and murmurs. Replayed with the deployment that recorded them, they show what a
replay changes by itself.
"""

import argparse
import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parley.command.replay import replay_calls
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError, MediaError
from parley.evals.harness.command import count, machine, positive, quiet_log
from parley.evals.harness.progress import Progress, say
from parley.evals.harness.report import add_outputs, cell, markdown, percent, run_command
from parley.evals.human.callers import SpeechKind
from parley.evals.regression.recorded_calls import (
    RECORDED_BY,
    open_sources,
    plan,
    record_calls,
    recording_deployment,
)
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.recording.comparison import CallTurn, TurnPair
from parley.recording.comparison_page import (
    PAGE,
    ReplayedCall,
    amounts,
    console_table,
    costs,
    median_ms,
    write_page,
)
from parley.recording.folder import SESSIONS, CallRecording, session_folders
from parley.recording.library import recordings_of
from parley.recording.objects import RecordingBucket
from parley.runtime import unhurried_loop
from parley.runtime.process_exit import exit_process


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.regression",
        description="Replay recorded calls with today's configuration and compare their turns.",
    )
    root.add_argument("folder", type=Path, help="recording.folder of the deployment that recorded the calls")
    root.add_argument("--config", help=f"deployment (default: FOLDER/{RECORDED_BY} or embedded)")
    root.add_argument(
        "--mode", choices=[CASCADE, DUPLEX], help="replay every call in this mode (default: its own)"
    )
    root.add_argument("--hear-again", action="store_true", help="recognise the callers' words anew")
    root.add_argument("--at-once", type=positive, default=1, help="calls that are on at the same time")
    root.add_argument("--most", type=positive, help="replay this many calls, the oldest ones")
    root.add_argument("--allowed", type=count, default=0, help="changed calls that are no failure")
    root.add_argument("--output", type=Path, default=Path("out/regression"))
    root.add_argument("--record", type=positive, metavar="N", help="make the folder first: N calls")
    root.add_argument("--turns", type=positive, default=3, help="turns of a call of --record")
    root.add_argument("--seed", type=int, default=1, help="of --record")
    root.add_argument(
        "--speech",
        type=SpeechKind,
        choices=tuple(SpeechKind),
        metavar="synthetic|human|mixed",
        help="callers of --record (default: mixed, or synthetic where recordings of people were not fetched)",
    )
    root.add_argument("--own-speech", type=Path, help="folder of your recordings, in place of the packages'")
    add_outputs(root)
    return root


def recorded(folder: Path, most: int | None, bucket: RecordingBucket | None = None) -> list[CallRecording]:
    """Return the recorded calls of a folder, and of the bucket to which they move, oldest first.

    Raises:
        ConfigError: there are none, or the bucket does not answer.
    """
    try:
        sessions = {path.name for path in session_folders(folder)}
        if bucket is not None:
            sessions |= set(bucket.sessions())
        found = [each for session in sorted(sessions) for each in recordings_of(folder, session, bucket)]
    except MediaError as error:
        raise ConfigError(str(error)) from error
    found.sort(key=lambda each: (str(each.meta.get("began_at")), each.call_id))
    if not found:
        raise ConfigError(f"{folder / SESSIONS}: no recorded call")
    return found[:most]


async def record(arguments: argparse.Namespace) -> dict[str, int]:
    """Hold calls with a server that records them into the folder; return what was in them."""
    folder: Path = arguments.folder
    config = await asyncio.to_thread(recording_deployment, folder, arguments.config)
    sources = await asyncio.to_thread(open_sources, arguments.speech, arguments.own_speech)
    given = (sources, arguments.record, arguments.turns, arguments.seed, folder / "voices")
    calls = await asyncio.to_thread(plan, *given)
    await record_calls(calls, folder, config, at_once=arguments.at_once)
    return {
        "turns": sum(len(call.turns) for call in calls),
        "barge_ins": sum(call.barge_ins for call in calls),
        "murmurs": sum(call.murmurs for call in calls),
        "hesitations": sum(call.hesitations for call in calls),
    }


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Record calls where that is requested, replay the calls and return the JSON.

    Raises:
        AgentError: a recording cannot be read, an engine does not load, or the output cannot be written.
    """
    planned = asyncio.run(record(arguments)) if arguments.record else None
    own = arguments.folder / RECORDED_BY
    config = str(own) if own.exists() and (arguments.record or not arguments.config) else arguments.config
    deployment = load_deployment(config or "embedded")
    s3 = deployment.recording.s3
    recordings = recorded(arguments.folder, arguments.most, None if s3 is None else RecordingBucket(s3))
    progress = Progress("replayed calls", len(recordings))
    load = os.getloadavg()[0]
    replayed = unhurried_loop.run(
        replay_calls(
            deployment,
            recordings,
            arguments.output.absolute(),
            mode=arguments.mode,
            at_once=arguments.at_once,
            hears_again=arguments.hear_again,
            on_replayed=lambda call: progress.step("alike" if call.is_decided_alike else "changed"),
        )
    )
    page = write_page(replayed, arguments.output / PAGE, deployment.name)
    for call in replayed:
        if not call.is_decided_alike:
            say(console_table(call))
    say(str(page))
    settings = {name: str(value) for name, value in vars(arguments).items() if value is not None}
    return {
        **summarized(replayed),
        "recorded": planned,
        "load_before": round(load, 2),
        "settings": settings,
        "machine": machine(),
    }


def summarized(replayed: Sequence[ReplayedCall]) -> dict[str, Any]:
    """Return the figures of replayed calls."""
    pairs = [pair for call in replayed for pair in call.pairs]
    then, now = costs(pairs)
    return {
        "calls": len(replayed),
        "changed_calls": sum(not call.is_decided_alike for call in replayed),
        "alike_percent": percent(sum(call.is_decided_alike for call in replayed), len(replayed)),
        "failed_calls": sum(bool(call.failure) for call in replayed),
        "turns": len(pairs),
        "changed_turns": sum(not pair.is_decided_alike for pair in pairs),
        "other_words": sum(bool(pair.differences) and pair.is_decided_alike for pair in pairs),
        "latency_ms": _times(pairs, lambda turn: turn.latency_ms),
        "waited_ms": _times(pairs, lambda turn: turn.waited_ms),
        "cost": {
            "then": then,
            "now": now,
            "currency": next((call.currency for call in replayed if call.currency), ""),
        },
    }


def _times(pairs: Sequence[TurnPair], value: Callable[[CallTurn], int | None]) -> dict[str, int | None]:
    found = median_ms(pairs, value)
    return {"then": found and found[0], "now": found and found[1]}


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    latency, waited, cost = result["latency_ms"], result["waited_ms"], result["cost"]
    rows = [
        ("calls decided otherwise", f"{result['changed_calls']} of {result['calls']}"),
        ("calls with the same decisions (%)", cell(result["alike_percent"])),
        ("turns decided otherwise", f"{result['changed_turns']} of {result['turns']}"),
        ("turns with other words of the caller alone", result["other_words"]),
        ("latency then, now (median, ms)", f"{cell(latency['then'])}, {cell(latency['now'])}"),
        (
            "wait for the end of the turn then, now (median, ms)",
            f"{cell(waited['then'])}, {cell(waited['now'])}",
        ),
        ("cost of the turns then, now", _cost(cost)),
    ]
    return markdown(("replay", "result"), rows)


def _cost(cost: Mapping[str, Any]) -> str:
    if cost["then"] is None and cost["now"] is None:
        return "no prices"
    return amounts(cost["then"], cost["now"], cost["currency"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 when too many calls changed, or 2 after printing one line."""
    arguments = parser().parse_args(argv)
    found: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        quiet_log()
        found.update(measure(arguments))
        return found

    status = run_command(arguments, run, table)
    return status or int(found["changed_calls"] > arguments.allowed)


if __name__ == "__main__":
    # Threads of engines hold up the interpreter's own shutdown.
    exit_process(main())
