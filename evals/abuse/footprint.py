"""Memory, descriptors, threads, tasks and processor time of a server, read from /proc and ``GET /status``."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

STATUS_S = 5.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
# Libraries that identify the engine children. The front end has the recogniser's mapped as well.
RECOGNISER, FRONT_END = "onnxruntime", "livekit"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Resources of a server at one moment.

    Attributes:
        rss_mb: of the process and its children.
        descriptors: of the process.
        threads: of the process.
        tasks: of its event loop. None when the server did not report them.
        calls: conversations under way. None when the server did not report them.
        stalls: of its event loop since it started. None when the server does not count them.
    """

    rss_mb: float
    descriptors: int
    threads: int
    tasks: int | None
    calls: int | None
    stalls: int | None


async def footprint(url: str, pid: int) -> Footprint:
    """Read all figures; of a server that is gone or does not answer, those that can still be read."""
    status = await status_of(url)
    return Footprint(
        rss_mb=round(sum(map(_rss_bytes, (pid, *children(pid)))) / 2**20, 1),
        descriptors=_count(Path(f"/proc/{pid}/fd")),
        threads=_count(Path(f"/proc/{pid}/task")),
        tasks=_number(status, "tasks"),
        calls=_number(status, "calls"),
        stalls=stalls_in(status),
    )


async def status_of(url: str) -> Mapping[str, Any]:
    """Return the answer of ``GET /status``; empty when there is none."""
    timeout = aiohttp.ClientTimeout(total=STATUS_S)
    try:
        async with (
            aiohttp.ClientSession(timeout=timeout) as client,
            client.get(f"{url}/status") as response,
        ):
            found = await response.json()
    except (aiohttp.ClientError, TimeoutError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def stalls_in(status: Mapping[str, Any]) -> int | None:
    """Return the number of loop stalls in a status; None when the server does not count them."""
    given = status.get("stalls")
    return _number(given, "count") if isinstance(given, Mapping) else None


def children(pid: int) -> Iterator[int]:
    """Yield all descendants of a process."""
    pending = [pid]
    while pending:
        current = pending.pop()
        try:
            texts = [(task / "children").read_text() for task in Path(f"/proc/{current}/task").iterdir()]
        except OSError:
            continue
        for child in (int(number) for text in texts for number in text.split()):
            pending.append(child)
            yield child


def engine_children(pid: int, library: str) -> frozenset[int]:
    """Return the children of a server that have a library mapped: ``RECOGNISER`` or ``FRONT_END``."""
    mapped = {child: _maps(child) for child in children(pid)}
    return frozenset(
        child
        for child, maps in mapped.items()
        if library in maps and (library == FRONT_END or FRONT_END not in maps)
    )


def wakes(pid: int) -> int:
    """Return how often the main thread of a process has slept and woken; 0 for a process that is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt")), 0)


def _maps(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/maps").read_text()
    except OSError:
        return ""


def _rss_bytes(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE_BYTES
    except (OSError, IndexError):
        return 0


def _count(folder: Path) -> int:
    try:
        return len(list(folder.iterdir()))
    except OSError:
        return 0


def _number(status: Mapping[str, Any], name: str) -> int | None:
    given = status.get(name)
    return given if isinstance(given, int) else None
