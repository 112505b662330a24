"""``python -m evals.load``: find how many calls a server keeps up with, and other systems on this machine.

``--kind browser``: WebRTC callers (``browsers``) who speak a third of the time, and hear the bot for another.
``phone``: silent callers who hear the bot all the time (``evals.phone.crowd``). ``text`` and ``socket``:
typed turns over HTTP, and over OpenAI's realtime protocol with a microphone that is silent (``typists``).

A step holds N calls for ``--seconds``. It fails when a call is refused or breaks, a question stays without an
answer, the p99 of the lateness of the bot's packets is over 20 ms (browser; 10 ms by phone), or the p95 of
answers is over 1.5 times that of the first step. The knee is the largest N with no failure up to it.
``--steps N`` holds one number of calls.

``parley`` is the whole product. ``parley_faked`` has no echo control, a fake of voice activity detection that
never hears anything, and a voice that repeats from memory: the cost of a call whose engines are elsewhere.
``stock`` (Pipecat's own transport, with nothing else in its pipeline) and ``aiortc`` (which sends the
caller's sound back) have neither turns nor sessions, answer nothing, and encode all the time: Parley encodes
its voice alone. By phone they are those of ``evals.phone load``.
``--recorded`` holds each step of browser calls without and with recording, whatever came out, so that
``--steps 20 20 20`` is three pairs in turns: the packets that are late with it and without.
``--cores`` puts the server and its engine processes on so many processors and the callers on the others.
"""

import argparse
import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from parley.core.errors import ConfigError, PeerError
from parley.evals.harness.command import machine, positive
from parley.evals.harness.crowd import measured
from parley.evals.harness.launcher import PRODUCT, Server, launched
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, markdown, picture, run_command
from parley.evals.load.browsers import ANSWERED_US, CYCLE_S
from parley.evals.load.players import PCM_HZ
from parley.evals.load.ramp import LATE_MS, STEPS, Step, knee
from parley.evals.phone import load as phone
from parley.evals.phone.crowd import APART_S, SETTLE_S, SPEECH_S
from parley.protocols.twilio_media import RATE_HZ

# A question of each caller, and its answer.
LEAST_S = CYCLE_S + ANSWERED_US / 1e6
KINDS = ("browser", "phone", "text", "socket")
SYSTEMS = {
    "browser": ("parley", "parley_faked", "stock", "aiortc"),
    "phone": tuple(phone.FAKED),
    "text": ("parley",),
    "socket": ("parley", "parley_faked"),
}
PLAYERS = ("stock", "aiortc")
# Added to the name of a system whose calls are recorded.
RECORDED = "_recorded"
FAKED_SERVER = ("-m", "parley.evals.harness.product_server", "--faked")
START_S = 60.0
# For each browser, which are dialled one after the other.
DIALLED_S = 1.0
# Of the words that a player plays to each caller, a third of the time.
TURN_S = 5.0


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.load", description="Find how many calls one server holds."
    )
    parser.add_argument("--kind", choices=KINDS, default="browser")
    parser.add_argument("--systems", nargs="+", help="systems to measure; default: all of the kind")
    parser.add_argument("--steps", nargs="+", type=positive, default=STEPS, help="numbers of calls")
    parser.add_argument("--seconds", type=positive, default=30, help=f"length of a step, over {LEAST_S:g}")
    parser.add_argument("--cores", type=positive, help="processors of the server; default: all, shared")
    parser.add_argument("--recorded", action="store_true", help="with and without recording, in turns")
    parser.add_argument("--out-dir", type=Path, default=Path("out/load"))
    parser.add_argument("--picture", type=Path, help="draw lateness and processor's time over the calls")
    add_outputs(parser)
    return parser


@contextmanager
def on_cores(cores: Sequence[int] | None) -> Iterator[None]:
    """Start processes of the context on these processors."""
    before = os.sched_getaffinity(0)
    if cores is not None:
        os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@asynccontextmanager
async def serving(kind: str, system: str, calls: int, folder: Path) -> AsyncIterator[Server]:
    """Run a system for at most so many calls of a kind."""
    audio = folder / "words.pcm"
    if kind == "phone":
        length_s = calls * APART_S + START_S
        words, pcm = await asyncio.to_thread(phone.words_of, length_s)
        await asyncio.to_thread(audio.write_bytes, pcm)
        async with phone.serving(system, calls, words, audio, folder) as server:
            yield server
        return
    if system in PLAYERS:
        await asyncio.to_thread(_write_words, audio)
        program: tuple[str, ...] = ("-m", "parley.evals.load.players")
        arguments = [system, "--audio", str(audio)]
    else:
        program = PRODUCT if system.removesuffix(RECORDED) == "parley" else FAKED_SERVER
        deployment = folder / f"{system}.yaml"
        await asyncio.to_thread(deployment.write_text, deployment_of(system, calls, folder))
        arguments = ["--config", str(deployment)]
    async with launched(program, folder / f"{system}.log", *arguments) as server:
        yield server


def deployment_of(system: str, calls: int, folder: Path) -> str:
    """Return the deployment of a server of ours, as YAML."""
    store = f"sqlite:///{folder.resolve()}/sessions-{time.time_ns()}.db"
    # All callers have one address, which gets three quarters of the lines.
    server = {"admission": "off", "max_calls": 2 * calls, "sessions_per_minute": 10_000}
    settings: dict[str, Any] = {
        "extends": "embedded",
        "name": "load",
        "bot": {"idle": None},
        "server": server,
        "remembering": {"store": {"url": store}},
    }
    if system.endswith(RECORDED):
        recordings = folder.resolve() / f"recordings-{time.time_ns()}"
        settings["recording"] = {"enabled": True, "folder": str(recordings), "min_free_gb": 0}
    if system.removesuffix(RECORDED) == "parley_faked":
        settings["hearing"] = {"echo_mode": "off"}
    # JSON is YAML.
    return json.dumps(settings)


def _write_words(audio: Path) -> None:
    """Write the words of the players: 16-bit PCM at ``PCM_HZ``."""
    _, pcm = phone.words_of(TURN_S)
    samples = np.frombuffer(pcm, "<i2")[: round(TURN_S * RATE_HZ)]
    audio.write_bytes(soxr.resample(samples, RATE_HZ, PCM_HZ).astype("<i2").tobytes())


async def run_step(kind: str, system: str, server: Server, calls: int, seconds: int, folder: Path) -> Step:
    """Hold so many calls.

    Raises:
        PeerError: the callers end without a result.
    """
    module, arguments = "parley.evals.load.browsers", [server.url, str(calls), str(seconds)]
    start_s = START_S + calls * DIALLED_S
    if kind == "browser":
        arguments += [str(folder), *(["--typed"] if system.startswith("parley_faked") else [])]
    elif kind == "phone":
        module, start_s = "parley.evals.phone.crowd", calls * (APART_S + SPEECH_S) + SETTLE_S
    else:
        module, arguments = "parley.evals.load.typists", [kind, *arguments]
    figures = await measured(server, module, arguments, calls=calls, seconds=seconds, start_s=start_s)
    if system in PLAYERS:
        # What they play is no answer.
        figures = {name: value for name, value in figures.items() if name not in ("answer_ms", "unanswered")}
    return Step(calls, figures)


async def ramp(given: argparse.Namespace, system: str, folder: Path) -> list[Step]:
    """Measure a system step by step, up to the first that fails."""
    steps: list[Step] = []
    for calls in given.steps:
        steps.append(await hold_step(given, system, calls, folder))
        if reported(given.kind, system, steps):
            break
    return steps


async def in_turns(given: argparse.Namespace, systems: Sequence[str], folder: Path) -> dict[str, list[Step]]:
    """Measure each system without and with recording, step by step; a step that fails ends nothing."""
    found = {name: list[Step]() for system in systems for name in (system, system + RECORDED)}
    for calls in given.steps:
        for system, steps in found.items():
            steps.append(await hold_step(given, system, calls, folder))
            reported(given.kind, system, steps)
    return found


async def hold_step(given: argparse.Namespace, system: str, calls: int, folder: Path) -> Step:
    """Start a system, hold so many calls, and end it."""
    cores = sorted(os.sched_getaffinity(0))
    ours, theirs = (cores[: given.cores], cores[given.cores :] or cores) if given.cores else (None, None)
    try:
        async with AsyncExitStack() as stack:
            with on_cores(ours):
                server = await stack.enter_async_context(serving(given.kind, system, calls, folder))
            with on_cores(theirs):
                return await run_step(given.kind, system, server, calls, given.seconds, folder)
    except PeerError as error:
        return Step(calls, {"held": 0, "refused": [str(error)]})


def reported(kind: str, system: str, steps: Sequence[Step]) -> str:
    """Print the last step; return why the server did not keep up, empty when it did."""
    fault = steps[-1].fault(kind, steps[0])
    say(f"{system}: {steps[-1].calls} calls: {fault or 'held'}: {json.dumps(steps[-1].figures)}")
    return fault


async def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Measure every system.

    Raises:
        ConfigError: a system is unknown.
    """
    if given.seconds <= LEAST_S:
        raise ConfigError(f"a step takes more than {LEAST_S:g} s: a question of each caller and its answer")
    known = SYSTEMS[given.kind]
    systems = given.systems or known
    for system in systems:
        if system not in known:
            raise ConfigError(f"no system {system!r} for {given.kind} calls", known=known)
    if given.recorded:
        systems = given.systems or ["parley_faked"]
        if given.kind != "browser" or not set(systems).isdisjoint(PLAYERS):
            raise ConfigError("--recorded is for browser calls to parley or parley_faked")
    await asyncio.to_thread(given.out_dir.mkdir, parents=True, exist_ok=True)
    if given.recorded:
        found = await in_turns(given, systems, given.out_dir)
    else:
        found = {system: await ramp(given, system, given.out_dir) for system in systems}
    if given.picture is not None:
        draw(found, given.kind, given.picture)
    return {
        "kind": given.kind,
        "seconds": given.seconds,
        "cores_of_the_server": given.cores,
        "machine": machine(),
        "systems": {
            system: {
                "knee": knee(given.kind, steps),
                "steps": [{"calls": step.calls, **step.figures} for step in steps],
            }
            for system, steps in found.items()
        },
    }


def draw(found: dict[str, list[Step]], kind: str, path: Path) -> None:
    """Draw the processor's time and the lateness of each system over the number of calls."""
    with picture(path, (8, 4.5)) as (_figure, axes):
        late = axes.twinx()
        for system, steps in found.items():
            calls = [step.calls for step in steps if "cpu_percent" in step.figures]
            cpu = [step.figures["cpu_percent"] for step in steps if "cpu_percent" in step.figures]
            (line,) = axes.plot(calls, cpu, marker="o", label=system)
            judged = [step for step in steps if step.late_ms is not None]
            late.plot(
                [step.calls for step in judged],
                [step.late_ms for step in judged],
                linestyle="--",
                color=line.get_color(),
            )
        axes.set_xlabel("calls")
        axes.set_ylabel("processor's time, % of a core (solid)")
        late.set_ylabel("p99 of lateness, ms (dashed)")
        late.set_ylim(0, 2 * LATE_MS.get(kind, 20.0))
        axes.legend(loc="upper left")


def table(result: dict[str, Any]) -> str:
    """Return the Markdown table of a result."""
    head = (
        "system",
        "calls",
        "held",
        "late p99 ms",
        "late packets",
        "answer p50 ms",
        "p95 ms",
        "core %",
        "% a call",
        "callers' core %",
        "callers late p99 ms",
    )
    rows: list[tuple[object, ...]] = []
    for system, figures in result["systems"].items():
        for each in figures["steps"]:
            step = Step(each["calls"], each)
            answers = each.get("answer_ms") or {}
            rows.append(
                (
                    system,
                    step.calls,
                    each["held"],
                    step.late_ms,
                    each.get("late_packets"),
                    answers.get("p50"),
                    answers.get("p95"),
                    each.get("cpu_percent"),
                    each.get("cpu_percent_per_call"),
                    each.get("own_cpu_percent"),
                    step.own_late_ms,
                )
            )
    knees = ", ".join(f"{system} {figures['knee']}" for system, figures in result["systems"].items())
    return f"{markdown(head, rows)}\n\n{result['kind']} calls kept up with: {knees}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 2 after one line on standard error when nothing could be measured."""
    given = build_parser().parse_args(arguments)
    return run_command(given, lambda: asyncio.run(measure(given)), table)


if __name__ == "__main__":
    raise SystemExit(main())
