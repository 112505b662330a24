"""``python -m evals.bench gateway``: latency that the gateway adds to a unit.

A process of its own stands in for the model: a MiniCPM-o server whose units cost a fixed time, and which
reports with each result how long that one took. The gateway is ``bot.py`` with that server as its engine,
unchanged. The clients of this process send a second of audio every second to ``/ws/duplex``, each at its own
moment. Measured is the time from sending a chunk until its result arrives, less the time that the server
reports. That is not the gateway's alone: clients and server write and read the same messages without one. The
same clients are therefore measured at the server itself first (``direct``), and the gateway adds the
difference: both ways through it, its pipeline included, and the second hop.

Half of the units speak (a second of audio back), half listen. The caller's audio is noise without a voice: a
recogniser for 20 speakers on two cores is another measurement.
"""

import argparse
import asyncio
import base64
import json
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from websockets.asyncio.client import connect

from parley.evals.harness.command import machine, positive, positive_number
from parley.evals.harness.launcher import PRODUCT, child, launched
from parley.evals.harness.progress import say
from parley.evals.harness.report import add_outputs, run_command

UNIT_S = 1.0
WARM_UNITS = 5


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m evals.bench gateway", description=__doc__)
    parser.add_argument("--sessions", type=positive, default=20)
    parser.add_argument("--seconds", type=positive, default=60)
    parser.add_argument(
        "--cost-ms", type=positive_number, default=100.0, help="processing time of one unit of the model"
    )
    add_outputs(parser, with_table=False)
    return parser


async def _session(url: str, number: int, sessions: int, units: int, chunk: str) -> list[tuple[float, bool]]:
    """Return the milliseconds added to each unit after the first ones, each with true when it spoke."""
    added: list[tuple[float, bool]] = []
    async with connect(url.replace("{number}", str(number)), max_size=None, compression=None) as socket:
        await socket.send(json.dumps({"type": "prepare", "system_prompt": "Measure."}))
        while json.loads(await socket.recv())["type"] != "prepared":
            pass
        began_s = time.perf_counter() + number / sessions * UNIT_S
        message = json.dumps({"type": "audio_chunk", "audio_base64": chunk})
        for unit in range(units):
            await asyncio.sleep(max(0.0, began_s + unit * UNIT_S - time.perf_counter()))
            sent_s = time.perf_counter()
            await socket.send(message)
            text = await socket.recv()
            took_ms = (time.perf_counter() - sent_s) * 1000
            result = json.loads(text)
            if result["type"] != "result":
                raise RuntimeError(f"session {number}: {text[:200]!r}")
            if unit >= WARM_UNITS:
                added.append((took_ms - result["cost_llm_ms"], not result["is_listen"]))
        await socket.send(json.dumps({"type": "stop"}))
    return added


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    noise = np.random.default_rng(0).normal(0, 0.002, 16_000).astype("<f4")
    chunk = base64.b64encode(noise.tobytes()).decode()
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(child("parley.evals.bench.gateway.model", str(given.cost_ms)))
        assert model.stdout is not None
        async with asyncio.timeout(20):
            address = (await model.stdout.readline()).decode().strip()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        deployment = folder / "gateway.yaml"
        deployment.write_text(
            f"server: {{admission: off, max_calls: {given.sessions}, sessions_per_minute: 1000, "
            f"clients: {{anonymous: {{max_calls: {given.sessions}}}}}}}\n"
            f"duplex: {{engine: {{name: minicpm_worker, settings: {{url: '{address}', "
            f"sessions: {given.sessions}}}}}, tick_log: null}}\n"
            'remembering: {store: {url: "sqlite:///sessions.db"}}\n'
        )
        say(f"{given.sessions} clients at the model itself for {given.seconds} s")
        direct = await _all(address, given, chunk)
        server = await stack.enter_async_context(
            launched(PRODUCT, folder / "server.log", "--config", str(deployment))
        )
        say(f"{given.sessions} clients of the gateway for {given.seconds} s")
        through = await _all(f"{server.url.replace('http', 'ws')}/ws/duplex/adx_{{number}}", given, chunk)
    return {
        "sessions": given.sessions,
        "cost_ms": given.cost_ms,
        "through": _figures(through),
        "direct": _figures(direct),
        **machine(),
    }


async def _all(url: str, given: argparse.Namespace, chunk: str) -> list[tuple[float, bool]]:
    found = await asyncio.gather(
        *(_session(url, number, given.sessions, given.seconds, chunk) for number in range(given.sessions))
    )
    return [unit for session in found for unit in session]


def _figures(units: list[tuple[float, bool]]) -> dict[str, Any]:
    def of(values: list[float]) -> dict[str, float | int]:
        p50, p95, p99 = np.percentile(values, (50, 95, 99)) if values else (0, 0, 0)
        return {
            "units": len(values),
            "p50_ms": round(float(p50), 2),
            "p95_ms": round(float(p95), 2),
            "p99_ms": round(float(p99), 2),
            "max_ms": round(max(values, default=0.0), 2),
        }

    return {
        "all": of([added for added, _ in units]),
        "speaking": of([added for added, speaks in units if speaks]),
        "listening": of([added for added, speaks in units if not speaks]),
    }


def _table(figures: dict[str, Any]) -> str:
    lines = []
    for name in ("all", "speaking", "listening"):
        for way in ("direct", "through"):
            row = figures[way][name]
            lines.append(
                f"{name:>10} {way:>8}: {row['units']:6} units, p50 {row['p50_ms']} ms, p95 {row['p95_ms']} "
                f"ms, p99 {row['p99_ms']} ms, most {row['max_ms']} ms"
            )
        through, direct = figures["through"][name], figures["direct"][name]
        added = {each: round(through[each] - direct[each], 2) for each in ("p50_ms", "p95_ms", "p99_ms")}
        lines.append(
            f"{name:>10}   adds: p50 {added['p50_ms']} ms, p95 {added['p95_ms']} ms, p99 {added['p99_ms']} ms"
        )
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = _parser().parse_args(argv)
    return run_command(given, lambda: asyncio.run(_measure(given)), _table)


if __name__ == "__main__":
    raise SystemExit(main())
