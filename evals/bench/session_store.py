"""``python -m evals.bench session_store``: measure durable appends per second, and the latency of each.

``--writers`` sessions append one event each, wait until it is durable, and append the next. Measured on a
fresh SQLite file under ``--out-dir``, or on every ``--url``; the sessions are deleted after the run. The disk
determines much of it and varies, so it is also measured alone: writing and syncing as many bytes as one
commit has. Faults end the run with one line and status 2.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.evals.harness.command import machine, positive, positive_number
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, ranked, run_command
from parley.runtime.event_loop import run
from parley.session_store.events import Draft, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore, SessionWriter

WARMUP_S = 0.5
# Length of a user's turn with the reports about it.
TEXT = "I would like to know what the limit of my card is when I am abroad. " * 6
# Pages of 4 KiB that a commit of twenty sessions writes, as counted in the log of a run.
SYNC_BYTES = 64 * 4_096
SYNCS = 100
TIMES = ("p50 ms", "p95 ms", "p99 ms", "max ms")


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.bench session_store",
        description="Measure durable appends per second and their latency.",
    )
    root.add_argument("--url", action="append", default=[], help="address of a store; may be repeated")
    root.add_argument("--writers", type=positive, default=20, help="sessions that append concurrently")
    root.add_argument("--seconds", type=positive_number, default=5)
    add_outputs(root)
    root.add_argument("--out-dir", type=Path, default=Path("out/session_store"))
    return root


def measure(urls: Sequence[str], *, writers: int, seconds: float, out_dir: Path) -> dict[str, Any]:
    """Run on each database and return the JSON.

    Raises:
        AgentError: a database cannot be used.
    """
    out_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out_dir.absolute()) as folder:
        disk = sync_us(Path(folder))
        # On the same kind of loop as a server.
        results = []
        stores = urls or [f"sqlite:///{folder}/sessions.db"]
        progress = Progress("session stores", len(stores))
        for url in stores:
            results.append(run(_one(url, writers, seconds)))
            progress.step(f"{results[-1]['appends_per_s']} appends/s")
    return {"results": results, "disk": {"bytes": SYNC_BYTES, **_ms(disk)}, "machine": machine()}


def sync_us(folder: Path) -> list[float]:
    """Return the times that the disk alone takes for the bytes of one commit."""
    found = []
    with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
        content = os.urandom(SYNC_BYTES)
        for _ in range(SYNCS):
            # From the beginning each time, as a log that was copied into its database.
            file.seek(0)
            started = time.perf_counter()
            file.write(content)
            os.fsync(file.fileno())
            found.append((time.perf_counter() - started) * 1e6)
    return found


async def _one(url: str, count: int, seconds: float) -> dict[str, Any]:
    settings = StoreTuning(url=url)
    store = await SessionStore.open(settings)
    try:
        writers = [await store.claim((await store.create()).id) for _ in range(count)]
        try:
            await _append_for(WARMUP_S, writers)
            started, processor = time.perf_counter(), time.process_time()
            taken_us = await _append_for(seconds, writers)
            elapsed, processor = time.perf_counter() - started, time.process_time() - processor
            for writer in writers:
                await _check(store, writer)
        finally:
            for writer in writers:
                await store.delete(writer.session_id)
    finally:
        await store.close()
    return {
        "database": settings.address().get_backend_name(),
        "writers": count,
        "seconds": round(elapsed, 3),
        "appends": len(taken_us),
        "appends_per_s": round(len(taken_us) / elapsed),
        **_ms(taken_us),
        "processor_us_per_append": round(processor / len(taken_us) * 1e6),
    }


async def _append_for(seconds: float, writers: Sequence[SessionWriter]) -> list[float]:
    """Append until the time is over; return the latencies in microseconds."""
    taken_us: list[float] = []
    end = time.perf_counter() + seconds

    async def append(writer: SessionWriter) -> None:
        while (started := time.perf_counter()) < end:
            now_us = writer.clock.now_us()
            await writer.append(Draft(Kind.USER_TURN, {"text": TEXT}, now_us, now_us, "user"))
            taken_us.append((time.perf_counter() - started) * 1e6)

    await asyncio.gather(*map(append, writers))
    return taken_us


async def _check(store: SessionStore, writer: SessionWriter) -> None:
    """Check that the last append was stored."""
    info = await store.info(writer.session_id)
    [last] = await store.events(writer.session_id, after_seq=info.last_seq - 1, limit=2)
    assert last.payload["text"] == TEXT


def _ms(values_us: Sequence[float]) -> dict[str, float]:
    return {f"{name}_ms": value for name, value in ranked([us / 1_000 for us in values_us], digits=2).items()}


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    head = ("database", "writers", "durable appends/s", *TIMES, "CPU us/append")
    keys = ("p50_ms", "p95_ms", "p99_ms", "max_ms", "processor_us_per_append")
    rows = [
        (row["database"], row["writers"], f"{row['appends_per_s']:,}", *(row[key] for key in keys))
        for row in result["results"]
    ]
    disk, machine = result["disk"], result["machine"]
    return (
        f"{markdown(head, rows)}\n\nThe disk alone, {disk['bytes'] // 1_024} KiB written and synced: "
        f"{disk['p50_ms']} / {disk['p95_ms']} / {disk['p99_ms']} ms (p50/p95/p99). {machine['cpus']} "
        f"processors, load {machine['load_1min']}.\n"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = parser().parse_args(argv)
    return run_command(
        given,
        lambda: measure(given.url, writers=given.writers, seconds=given.seconds, out_dir=given.out_dir),
        table,
    )


if __name__ == "__main__":
    raise SystemExit(main())
