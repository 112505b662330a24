"""``python -m evals.regression``: replay a folder of recorded calls with today's configuration.

The folder is the ``recording.folder`` of a deployment. Every call in it is replayed (``command.replay``), and
its turns are compared with those that were recorded. Printed are the calls in which something was decided
otherwise, and the latencies then and now; a page has every turn. The exit status is 1 when more calls changed
than ``--allowed`` permits.

``--record N`` first makes a folder: calls of recorded people to a real server over WebRTC, with a barge-in in
every call. Replayed with the deployment that recorded them, they show what a replay changes by itself.
"""

import argparse
import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from parley.command.replay import PAGE, replay_calls
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError, PeerError
from parley.evals.harness.command import count, machine, positive, quiet_log
from parley.evals.harness.launcher import running
from parley.evals.harness.manners import Manners, ask, hear_greeting
from parley.evals.harness.progress import Progress, say
from parley.evals.harness.report import add_outputs, cell, markdown, run_command
from parley.evals.harness.speech import Spoken, of_turn
from parley.evals.harness.webrtc_caller import Line, now_us
from parley.evals.human.callers import SpeechKind, open_callers
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.recording.comparison import CallTurn, TurnPair
from parley.recording.comparison_page import ReplayedCall, console_table, median_ms, write_page
from parley.recording.folder import MERGED, SESSIONS, CallRecording, session_folders
from parley.recording.library import recordings_of

GAP_MS = 600
# A caller who interrupts has heard the beginning of the answer.
HEARD_MS = 1_200
# The stereo file, which is made last, shows that a recording is complete.
MADE_S = 20.0
RECORDED_BY = "recorded_by.yaml"


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.regression",
        description="Replay recorded calls with today's configuration and compare their turns.",
    )
    root.add_argument("folder", type=Path, help="recording.folder of the deployment that recorded the calls")
    root.add_argument("--config", help=f"deployment (default: FOLDER/{RECORDED_BY} or embedded)")
    root.add_argument("--mode", choices=[CASCADE, DUPLEX], default=CASCADE)
    root.add_argument("--hear-again", action="store_true", help="recognise the callers' words anew")
    root.add_argument("--at-once", type=positive, default=1, help="calls that are replayed at the same time")
    root.add_argument("--most", type=positive, help="replay this many calls, the oldest ones")
    root.add_argument("--allowed", type=count, default=0, help="changed calls that are no failure")
    root.add_argument("--output", type=Path, default=Path("out/regression"))
    root.add_argument("--record", type=positive, metavar="N", help="make the folder first: N calls of people")
    root.add_argument("--turns", type=positive, default=3, help="turns of a call of --record")
    root.add_argument("--seed", type=int, default=1, help="of --record")
    root.add_argument("--own-speech", type=Path, help="folder of your recordings, in place of the packages'")
    add_outputs(root)
    return root


def recorded(folder: Path, most: int | None) -> list[CallRecording]:
    """Return the recorded calls of a folder, oldest first.

    Raises:
        ConfigError: there are none.
    """
    found = [each for path in session_folders(folder) for each in recordings_of(folder, path.name)]
    found.sort(key=lambda each: (str(each.meta.get("began_at")), each.call_id))
    if not found:
        raise ConfigError(f"{folder / SESSIONS}: no recorded call")
    return found[:most]


async def record(arguments: argparse.Namespace) -> None:
    """Hold calls of recorded people with a server that records them into the folder."""
    folder: Path = arguments.folder
    config = await asyncio.to_thread(_recording_deployment, folder, arguments.config)
    callers = open_callers(SpeechKind.HUMAN, own=arguments.own_speech)
    progress = Progress("recorded calls", arguments.record)
    made = len(await asyncio.to_thread(_merged, folder))
    async with running("parley", config, folder / "server.log") as server:
        for number in range(arguments.record):
            turns = callers.turns(arguments.turns, arguments.seed + number)
            await _call(server.url, [of_turn(turn, gap_ms=GAP_MS) for turn in turns])
            await asyncio.to_thread(_wait_merged, folder, made + number + 1)
            progress.step()


def _recording_deployment(folder: Path, extended: str | None) -> Path:
    """Write a deployment that extends another one and records into a folder; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    config, inside = folder / RECORDED_BY, folder.absolute()
    settings = {
        "name": "recorded",
        "extends": _named(extended or "embedded"),
        "recording": {"enabled": True, "folder": str(inside)},
        "remembering": {"store": {"url": f"sqlite:///{inside}/sessions.db"}},
    }
    config.write_text(yaml.safe_dump(settings))
    return config


def _named(deployment: str) -> str:
    """Return a deployment as another file names it: a path counts from the file that has it."""
    path = Path(deployment)
    return str(path.absolute()) if path.is_file() else deployment


def _wait_merged(folder: Path, calls: int) -> None:
    """Wait until this many calls have their stereo file.

    Raises:
        PeerError: not within ``MADE_S``.
    """
    until_s = time.monotonic() + MADE_S
    while len(_merged(folder)) < calls:
        if time.monotonic() > until_s:
            raise PeerError(f"{folder}: the recording of a call is not complete after {MADE_S:g} s")
        time.sleep(0.2)


def _merged(folder: Path) -> list[Path]:
    return list((folder / SESSIONS).glob(f"*/*/{MERGED}"))


async def _call(url: str, turns: Sequence[Spoken]) -> None:
    """Ask every question; each but the first interrupts every other answer."""
    line = Line(url)
    try:
        await line.dial()
        await hear_greeting(line, Manners())
        for number, spoken in enumerate(turns):
            if number % 2:
                await ask(line, spoken, Manners())
                continue
            await asyncio.sleep(GAP_MS / 1_000)
            await line.microphone.speak(spoken)
            if await line.wait_bot_audible(now_us(), Manners().answer_ms):
                await asyncio.sleep(HEARD_MS / 1_000)
        await line.wait_bot_quiet(Manners().reply_quiet_ms, Manners().reply_ms)
    finally:
        await line.hang_up()


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Replay the calls and return the JSON.

    Raises:
        AgentError: a recording cannot be read, an engine does not load, or the output cannot be written.
    """
    if arguments.record:
        await record(arguments)
    own = arguments.folder / RECORDED_BY
    config = str(own) if own.exists() and (arguments.record or not arguments.config) else arguments.config
    deployment = load_deployment(config or "embedded")
    recordings = await asyncio.to_thread(recorded, arguments.folder, arguments.most)
    progress = Progress("replayed calls", len(recordings))
    replayed = await replay_calls(
        deployment,
        recordings,
        arguments.output.absolute(),
        mode=arguments.mode,
        at_once=arguments.at_once,
        hears_again=arguments.hear_again,
        on_replayed=lambda call: progress.step("alike" if call.is_decided_alike else "changed"),
    )
    page = await asyncio.to_thread(write_page, replayed, arguments.output / PAGE, deployment.name)
    for call in replayed:
        if not call.is_decided_alike:
            say(console_table(call))
    say(str(page))
    settings = {name: str(value) for name, value in vars(arguments).items() if value is not None}
    return {**summarized(replayed), "settings": settings, "machine": machine()}


def summarized(replayed: Sequence[ReplayedCall]) -> dict[str, Any]:
    """Return the figures of replayed calls."""
    pairs = [pair for call in replayed for pair in call.pairs]
    return {
        "calls": len(replayed),
        "changed_calls": sum(not call.is_decided_alike for call in replayed),
        "turns": len(pairs),
        "changed_turns": sum(not pair.is_decided_alike for pair in pairs),
        "other_words": sum(bool(pair.differences) and pair.is_decided_alike for pair in pairs),
        "latency_ms": _times(pairs, lambda turn: turn.latency_ms),
        "waited_ms": _times(pairs, lambda turn: turn.waited_ms),
    }


def _times(pairs: Sequence[TurnPair], value: Callable[[CallTurn], int | None]) -> dict[str, int | None]:
    found = median_ms(pairs, value)
    return {"then": found and found[0], "now": found and found[1]}


def table(result: Mapping[str, Any]) -> str:
    """Return the figures as Markdown."""
    latency, waited = result["latency_ms"], result["waited_ms"]
    rows = [
        ("calls decided otherwise", f"{result['changed_calls']} of {result['calls']}"),
        ("turns decided otherwise", f"{result['changed_turns']} of {result['turns']}"),
        ("turns with other words of the caller alone", result["other_words"]),
        ("latency then, now (median, ms)", f"{cell(latency['then'])}, {cell(latency['now'])}"),
        (
            "wait for the end of the turn then, now (median, ms)",
            f"{cell(waited['then'])}, {cell(waited['now'])}",
        ),
    ]
    return markdown(("replay", "result"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 when too many calls changed, or 2 after printing one line."""
    arguments = parser().parse_args(argv)
    found: dict[str, Any] = {}

    def run() -> dict[str, Any]:
        quiet_log()
        found.update(asyncio.run(measure(arguments)))
        return found

    status = run_command(arguments, run, table)
    return status or int(found["changed_calls"] > arguments.allowed)


if __name__ == "__main__":
    raise SystemExit(main())
