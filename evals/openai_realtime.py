"""``python -m evals.openai_realtime``: voice-to-voice latency over OpenAI's realtime protocol, and its cost.

Calls run at the same time, each with a caller who asks questions one after the other (``SocketCaller``). The
cost is the processor time of the server's process during the calls, divided by the seconds of the calls.
"""

import argparse
import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.evals.harness.command import count, exit_code, machine, positive
from parley.evals.harness.launcher import Server, running
from parley.evals.harness.progress import say
from parley.evals.harness.socket_caller import SocketCaller


async def measure(server: Server, *, model: str, calls: int, turns: int) -> dict[str, Any]:
    """Place calls at the same time; return the figures."""
    url = f"{server.url.replace('http', 'ws', 1)}/v1/realtime?model={model}"
    callers = [SocketCaller(url, turns) for _ in range(calls)]
    before_s, began_s = server.cpu_s(), time.monotonic()
    await asyncio.gather(*(caller.call() for caller in callers))
    took_s, after_s = time.monotonic() - began_s, server.cpu_s()
    latencies_ms = [each for caller in callers for each in caller.latencies_ms]
    found: dict[str, Any] = {"model": model, "calls": calls, "turns": len(latencies_ms)}
    if latencies_ms:
        for percent in (50, 95, 99):
            found[f"p{percent}_ms"] = round(float(np.percentile(latencies_ms, percent)))
    found["unanswered"] = sum(caller.unanswered for caller in callers)
    found["errors"] = sorted({code for caller in callers for code in caller.errors})
    if before_s is not None and after_s is not None:
        found["cpu_percent_per_call"] = round(100 * (after_s - before_s) / took_s / calls, 1)
    return found


async def _main(arguments: argparse.Namespace) -> int:
    """Measure each pipeline, and print a line of JSON for each."""
    with tempfile.TemporaryDirectory() as folder:
        async with running("parley", arguments.config, Path(folder) / "server.log") as server:
            for model in arguments.model:
                say(f"{model}: {arguments.calls} calls of {arguments.turns} questions")
                found = await measure(server, model=model, calls=arguments.calls, turns=arguments.turns)
                print(json.dumps({**found, "machine": machine()}), flush=True)
    return 0


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(prog="python -m evals.openai_realtime")
    root.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    root.add_argument("--model", nargs="+", default=["parley-cascade", "parley-duplex"])
    root.add_argument("--calls", type=positive, default=1, help="concurrent calls")
    root.add_argument("--turns", type=count, default=20, help="questions per call")
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return exit_code(lambda: asyncio.run(_main(arguments)))


if __name__ == "__main__":
    raise SystemExit(main())
