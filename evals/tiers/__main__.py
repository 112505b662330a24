"""``python -m evals.tiers``: hold sessions over all changes of the tier; count lost and repeated facts.

Each session has six facts, each asked for and given at another tier than the one before: by the agent in
writing or in a WebRTC call, with a camera or a shared screen or without, or by a human at the desk. The
caller asks for the next medium, takes an offer of it, or just changes to it. The model (``model_peer``) asks
for what its prompt does not hold, and the human for what the transcript does not hold. Words of the caller in
a call are typed; what the model and the human say is spoken there.

Status 0: no session lost a fact, and none repeated a question; 1: one did; 2: the evaluation could not run.
"""

import argparse
import asyncio
import json
import random
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.harness.launcher import PRODUCT, command, free_port, started
from parley.evals.harness.progress import Progress, say
from parley.evals.harness.report import add_outputs, check_outputs, markdown, publish
from parley.evals.harness.sessions import operator_headers
from parley.evals.tiers.model_peer import complete
from parley.evals.tiers.script import draw
from parley.evals.tiers.walk import DESK, OFFERED_ON, Outcome, Walk

SIGN_S = 2.0
REQUEST_S = 60.0


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.tiers",
        description="Hold sessions over all changes of the tier; count lost facts and repeated questions.",
    )
    root.add_argument("--sessions", type=positive, default=100)
    root.add_argument("--at-once", type=positive, default=4)
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


async def run(sessions: int, *, at_once: int, seed: int) -> dict[str, Any]:
    """Hold the sessions and return the figures.

    Raises:
        AgentError: the server does not start.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with _model() as port:
            config = folder / "tiers.yaml"
            config.write_text(json.dumps(deployment(port)))
            environment = {
                "PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db",
                "OPENAI_API_KEY": "none",
            }
            port = free_port()
            start = command(PRODUCT, port, "--config", str(config))
            async with started(start, port, folder / "server.log", environment=environment) as server:
                outcomes = await _hold(server.url, sessions, at_once, seed)
    return figures(outcomes, seed=seed)


async def _hold(url: str, sessions: int, at_once: int, seed: int) -> list[Outcome]:
    places = asyncio.Semaphore(at_once)
    progress = Progress("sessions", sessions)
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    async with aiohttp.ClientSession(url, headers=operator_headers(), timeout=timeout) as client:

        async def one(number: int) -> Outcome:
            async with places:
                chance = random.Random(f"{seed}.{number}.facts")
                outcome = await Walk(client, url, draw(seed, number), chance).run()
                progress.step()
                return outcome

        signs = asyncio.create_task(_show_life(client), name="tiers.desk")
        try:
            async with asyncio.TaskGroup() as tasks:
                held = [tasks.create_task(one(number), name="tiers.walk") for number in range(sessions)]
        finally:
            signs.cancel()
            await asyncio.wait({signs})
    return [each.result() for each in held]


async def _show_life(client: aiohttp.ClientSession) -> None:
    """Give the sign of life of the desk, until cancelled."""
    while True:
        async with client.get("/api/desk", params={"desk": DESK}) as response:
            await response.read()
        await asyncio.sleep(SIGN_S)


@asynccontextmanager
async def _model() -> AsyncIterator[int]:
    """Serve the model; yield its port."""
    app = web.Application()
    app.router.add_post("/v1/chat/completions", complete)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def deployment(port: int) -> dict[str, object]:
    """Return a deployment with a desk, whose model lives in this process."""
    model = {"base_url": f"http://127.0.0.1:{port}/v1", "model": "peer", "sees": True}
    offers = [{"to": to, "cause": "eyes", "on": [words]} for to, words in OFFERED_ON.items()]
    return {
        "name": "tiers",
        "bot": {"greeting": "", "greeting_again": ""},
        "thinking": {"llm": {"name": "openai_compatible", "settings": model}},
        "desk": {"wait_s": 300, "grace_s": 120},
        "tiers": {"offers": offers, "step_s": 120},
        "server": {"admission": "off", "max_calls": 32},
    }


def figures(outcomes: Sequence[Outcome], *, seed: int) -> dict[str, Any]:
    """Return the figures of all sessions."""
    ended = [each for each in outcomes if not each.fault]
    return {
        "sessions": len(outcomes),
        "ended": len(ended),
        "changes": sum(each.changes for each in ended),
        "facts": 6 * len(ended),
        "lost_facts": sum(len(each.lost) for each in ended),
        "repeated_questions": sum(len(each.repeated) for each in ended),
        "lost": dict(Counter(slot for each in ended for slot in each.lost)),
        "faults": [each.fault for each in outcomes if each.fault],
        "seed": seed,
        "machine": machine(),
    }


def table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    names = ("sessions", "ended", "changes", "facts", "lost_facts", "repeated_questions")
    return markdown(("figure", "value"), [(name.replace("_", " "), result[name]) for name in names])


def passed(result: dict[str, Any]) -> bool:
    """Return whether every session came to its end, with all facts and without a repeated question."""
    return not (result["faults"] or result["lost_facts"] or result["repeated_questions"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 1 when a requirement is broken, 2 after printing one line to standard error."""
    options = parser().parse_args(argv)

    def measure() -> int:
        check_outputs(options)
        result = asyncio.run(run(options.sessions, at_once=options.at_once, seed=options.seed))
        publish(options, result, table)
        for fault in result["faults"]:
            say(fault)
        return 0 if passed(result) else 1

    return exit_code(measure)


if __name__ == "__main__":
    raise SystemExit(main())
