"""``python -m evals.foreign``: other projects' programs and transcripts, on an idle machine and under load.

Each program (``programs``) holds its whole conversation so many times, first on the machine as it is and then
next to ``--load`` processes that do nothing but compute. A repetition passes when the program has seen what
it has to. The largest gap is the longest time for which the program's own player had nothing to play inside
of an answer; ``largest_late_ms`` is the largest without the time in which the program's own loop stood still,
and has to be at most ``AUDIBLE_GAP_MS``.

``--turns`` spoken turns, of ``--callers`` concurrent callers, are then asked under the same load. A turn is
complete when one transcript of it has a word for each of its question (``transcripts``). Words that were
recognised as others are reported, and no failure.

Packages of programs that do not fit those of Parley are installed into ``--environments``. Variables name
places that have them instead: ``PARLEY_AGENTS_PYTHON``, ``PARLEY_LIVEKIT_PYTHON``, ``PARLEY_SCENARIO_PYTHON``
and ``PARLEY_VOICEBENCH_PYTHON`` interpreters, ``PARLEY_AGENTS_NODE_PATH``, ``PARLEY_AGENTS_PAGE_NODE_PATH``,
``PARLEY_PIPECAT_JS_NODE_PATH`` and ``PARLEY_CONSOLE_NODE_PATH`` modules of Node.js. Clients for pages need
Chromium.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from parley.core.errors import PeerError
from parley.evals.foreign.model_peer import complete
from parley.evals.foreign.programs import (
    PAGE_ORIGIN,
    PROGRAMS,
    Program,
    Site,
    converse,
    environment,
    recordings,
)
from parley.evals.foreign.transcripts import missing_words, words_of
from parley.evals.harness.command import count, exit_code, machine, positive, positive_number
from parley.evals.harness.launcher import PRODUCT, free_port, launched
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC
from parley.evals.harness.progress import say
from parley.evals.harness.socket_caller import QUESTIONS, SocketCaller

IDLE, LOADED = "idle", "loaded"
# Longest silence inside of an answer that is not noticed.
AUDIBLE_GAP_MS = 40.0
BUSY = "while True: pass"
# The model is slow on a busy machine, and is not what is measured. The phrases that cover that, and the
# apology in the end, would be further answers to the programs.
MODEL_MS = 20_000
# All programs have one address.
SESSIONS_PER_MINUTE = 10_000


@asynccontextmanager
async def busy(processes: int) -> AsyncIterator[None]:
    """Run processes that compute until the end of the block."""
    children: list[asyncio.subprocess.Process] = []
    try:
        for _ in range(processes):
            children.append(await asyncio.create_subprocess_exec(sys.executable, "-c", BUSY))
        yield
    finally:
        for child in children:
            child.kill()
        await asyncio.gather(*(child.wait() for child in children))


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[Site]:
    """Run the server, and the language model of it and of the programs."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner, port = web.AppRunner(app), free_port()
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        model = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "peer"}
        config = folder / "foreign.yaml"
        granted = {"instructions": True, "client_tools": True}
        chosen = {
            "thinking": {
                "llm": {"name": "openai_compatible", "settings": model},
                "guard": {
                    "first_token_ms": MODEL_MS,
                    "waiting": {"filler": "", "trouble": "", "masking": None},
                },
            },
            # Callers wait for its end.
            "bot": {"greeting": "Hello there."},
            "phone": {"public_url": PUBLIC},
            "server": {
                "clients": {"anonymous": granted},
                # Under load the server would admit fewer callers than are to be measured.
                "admission": "off",
                "sessions_per_minute": SESSIONS_PER_MINUTE,
                # It has a public name, and its callers have no keys.
                "open": True,
                "allowed_origins": [PAGE_ORIGIN],
            },
        }
        config.write_text(yaml.safe_dump(chosen))
        variables = {
            "PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db",
            "TWILIO_AUTH_TOKEN": AUTH_TOKEN,
        }
        log = folder / "server.log"
        async with launched(PRODUCT, log, "--config", str(config), environment=variables) as server:
            yield Site(server.url, model["base_url"])
    finally:
        await runner.cleanup()


async def repeat(
    program: Program, at: str, site: Site, sounds: tuple[str, str], repetitions: int
) -> dict[str, Any]:
    """Run a program several times; return passes, failures and the largest gaps."""
    passed, failed, gaps = 0, list[list[str]](), list[dict[str, Any]]()
    for number in range(1, repetitions + 1):
        try:
            seen = await converse(program, at, site, sounds)
        except PeerError as error:
            faults = [str(error)]
        else:
            faults = program.faults(seen)
            gaps.append(seen)
        if faults:
            failed.append(faults)
        else:
            passed += 1
        heard = f"largest gap {gaps[-1]['largest_gap_ms']:.0f} ms" if gaps else "no gaps known"
        say(f"{program.name} {number}/{repetitions}: {'; '.join(faults) or 'passed'}, {heard}")
    worst = max(gaps, key=lambda seen: float(seen["largest_gap_ms"]), default={})
    return {
        "passed": passed,
        "failed": len(failed),
        "faults": failed,
        "largest_gap_ms": round(float(worst.get("largest_gap_ms", 0.0))),
        "largest_late_ms": round(max((float(seen["largest_late_ms"]) for seen in gaps), default=0.0)),
        "audible": sum(float(seen["largest_late_ms"]) > AUDIBLE_GAP_MS for seen in gaps),
        "worst": {name: worst[name] for name in ("gaps", "longest_stall_ms", "came") if name in worst},
    }


async def transcripts(url: str, *, turns: int, callers: int, within_s: float) -> dict[str, Any]:
    """Ask so many spoken turns; return how many of them have all their words.

    Args:
        url: of the server.
        turns: of all callers together.
        callers: at the same time.
        within_s: time after which no more is asked; turns that are over by then count.
    """
    address = f"{url.replace('http', 'ws', 1)}/v1/realtime?model=parley-cascade"
    shares = [turns // callers + (number < turns % callers) for number in range(callers)]
    asking = [SocketCaller(address, share) for share in shares if share]
    is_cut = False
    try:
        async with asyncio.timeout(within_s):
            await asyncio.gather(*(caller.call() for caller in asking))
    except TimeoutError:
        is_cut = True
        say(f"no more turns are asked after {within_s:g} s")
    complete_turns, asked, others = 0, 0, Counter[str]()
    for caller in asking:
        # The last one of a caller who was stopped may be in its middle.
        over = caller.heard_by_turn[1:-1] if is_cut else caller.heard_by_turn[1:]
        asked += len(over)
        for number, heard in enumerate(over):
            question = QUESTIONS[number % len(QUESTIONS)]
            missing = missing_words(question, heard)
            complete_turns += not missing
            if missing or words_of(heard[0]) != words_of(question):
                others[f"{question} -> {' | '.join(heard)}"] += 1
    gaps_ms = [caller.player.largest_gap_s * 1000 for caller in asking]
    return {
        "turns": asked,
        "complete": complete_turns,
        "other_words": dict(others),
        "unanswered": sum(caller.unanswered for caller in asking),
        "errors": sorted({code for caller in asking for code in caller.errors}),
        "largest_gap_ms": round(max(gaps_ms, default=0.0)),
    }


async def _main(arguments: argparse.Namespace) -> int:
    """Measure, and print a line of JSON for each program and mode, and for the transcripts."""
    programs = [PROGRAMS[name] for name in arguments.programs]
    failures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sounds = await asyncio.to_thread(recordings, folder)
        places = [await environment(each, arguments.environments / each.name) for each in programs]
        async with serving(folder) as site:
            for mode, load in ((IDLE, 0), (LOADED, arguments.load)):
                if mode in arguments.modes:
                    async with busy(load):
                        for program, at in zip(programs, places, strict=True):
                            found = await repeat(program, at, site, sounds, arguments.repetitions)
                            failures += found["failed"] + found["audible"]
                            _report(program=program.name, mode=mode, load=load, **found)
            if arguments.turns:
                async with busy(arguments.load):
                    found = await transcripts(
                        site.url,
                        turns=arguments.turns,
                        callers=arguments.callers,
                        within_s=arguments.within_s,
                    )
                    failures += found["turns"] - found["complete"]
                    _report(program="transcripts", mode=LOADED, load=arguments.load, **found)
    return 1 if failures else 0


def _report(**found: object) -> None:
    print(json.dumps({**found, "machine": machine()}), flush=True)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(prog="python -m evals.foreign")
    root.add_argument("--programs", nargs="*", choices=sorted(PROGRAMS), default=sorted(PROGRAMS))
    root.add_argument("--repetitions", type=positive, default=20, help="of each program in each mode")
    root.add_argument("--modes", nargs="+", choices=(IDLE, LOADED), default=[IDLE, LOADED])
    root.add_argument("--load", type=positive, default=4, help="processes that compute meanwhile")
    root.add_argument("--turns", type=count, default=500, help="spoken turns under load; 0: none")
    root.add_argument(
        "--within-s", type=positive_number, default=3_600.0, help="longest time in which they are asked"
    )
    root.add_argument("--callers", type=positive, default=4, help="concurrent callers of these turns")
    root.add_argument(
        "--environments",
        type=Path,
        default=Path(tempfile.gettempdir()) / "parley-foreign",
        help="folder of the programs' environments",
    )
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, 1 when something failed, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return exit_code(lambda: asyncio.run(_main(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
