"""Worker on a cluster, as a gateway logs it. The Ray process is a program that answers as commanded."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from parley.serving.pool.on_ray.link import RayLink
from parley.serving.pool.on_ray.messages import HOST_REPORT, HostReport
from parley.serving.pool.on_ray.worker import RayWorker
from parley.serving.pool.on_ray.worker_host import WorkerHost, spec_digest
from parley.serving.pool.settings import PoolTuning, RaySettings, WorkerSpec

SPEC = WorkerSpec.model_validate({"name": "w", "engine": "moshi", "ray": {}})
PATIENCE_S = 30.0
PROGRAM = """#!{python}
import json, pathlib, sys, time
until = pathlib.Path({until!r})
while not until.exists():
    time.sleep(0.01)
def send(**reply):
    print(json.dumps(reply), flush=True)
send(number=0)
replies = {replies}
for line in sys.stdin:
    call = json.loads(line)
    assert call["within_s"] > 0
    reply = replies.pop(0) if len(replies) > 1 else replies[0]
    send(number=call["number"], **reply)
    if "result" in reply:
        time.sleep(0.05)
"""


@pytest.fixture
def lines() -> Iterator[list[str]]:
    """Return the warnings of a test about the worker, which grow."""
    logged: list[str] = []
    sink = logger.add(lambda line: logged.append(line.record["message"]), level="WARNING")
    yield logged
    logger.remove(sink)


def link(folder: Path, replies: list[dict[str, str]]) -> tuple[RayLink, Path]:
    """Return a link to a process that connects when a file exists, and the file."""
    program, until = folder / "bridge", folder / "connected"
    program.write_text(PROGRAM.format(python=sys.executable, until=str(until), replies=replies))
    program.chmod(0o755)
    return RayLink(RaySettings(python=str(program))), until


async def follow(link: RayLink, until: Path, last: str, lines: list[str]) -> None:
    """Follow the worker until a line of the log has this text."""
    settings = PoolTuning.model_validate({"workers": [SPEC], "shared": {"ray": {}}})
    worker = RayWorker(link, SPEC, settings, on_url=lambda _: None, traces=None)
    link.start()
    running = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(PATIENCE_S):
            # The first calls find no connection.
            await asyncio.sleep(0)
            until.touch()
            while not any(last in line for line in lines):
                await asyncio.sleep(0.01)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await link.close()


async def test_each_new_reason_why_a_worker_does_not_start_is_logged_once(
    tmp_path: Path, lines: list[str]
) -> None:
    made, until = link(tmp_path, [{"error": "no node"}, {"error": "no node"}, {"error": "no engine"}])
    await follow(made, until, "no engine", lines)
    of_worker = [line for line in lines if "the worker w" in line]
    assert of_worker == ["the worker w: no node", "the worker w: no engine"]


async def test_a_worker_that_was_drained_is_logged_with_the_way_back(
    tmp_path: Path, lines: list[str]
) -> None:
    report = HostReport("w", "life", 1, spec_digest(SPEC))
    retired = HostReport("w", "life", 2, spec_digest(SPEC), is_retired=True)
    replies = [{"result": HOST_REPORT.dump_json(each).decode()} for each in (report, retired, retired)]
    made, until = link(tmp_path, [*replies, {"error": "no node"}])
    await follow(made, until, "no node", lines)
    assert [line for line in lines if "the worker w" in line] == [
        "the worker w was drained and is not started again; it is freed with python -m "
        "parley.serving.pool.on_ray.end --worker w",
        "the worker w: no node",
    ]


async def test_a_host_reports_that_its_worker_was_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PoolTuning()
    monkeypatch.setenv(settings.secret_env, "a secret that is long enough for a worker")
    host = WorkerHost(SPEC, settings, traces=None, address="127.0.0.1")
    before = json.loads(host.report())
    host.retire()
    async with asyncio.timeout(PATIENCE_S):
        report = json.loads(await host.attend(before["version"], before["life"], PATIENCE_S))
    assert (before["is_retired"], report["is_retired"]) == (False, True)
