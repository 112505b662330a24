"""Callers in browsers who wait for a worker, and one who loses theirs."""

import asyncio
import os
import signal
from collections.abc import Iterator

import httpx
import psutil
import pytest
from playwright.async_api import expect

from tests.peers.minicpm_server import MiniCpmServer, minicpm_server
from tests.peers.operations_gateway import BEARER
from tests.peers.test_browser import Served, chromium, open_page, serving, units_are_heard, visit

__all__ = ["chromium"]
FLAGS = ("--use-fake-ui-for-media-stream",)


def pooled(url: str) -> str:
    """Return a deployment with one worker, whose engine connects to the server."""
    engine = f"{{name: only, engine: minicpm_worker, settings: {{url: '{url}'}}}}"
    return f"workers: {{workers: [{engine}]}}\nduplex: {{engine: {{name: pool}}}}\n"


def worker_of(served: Served) -> psutil.Process:
    """Return the process that the server started."""
    children = psutil.Process(served.process.pid).children(recursive=True)
    [worker] = [child for child in children if child.cmdline()[3:5] == ["parley", "worker"]]
    return worker


@pytest.fixture(scope="module")
def one_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, MiniCpmServer]]:
    """Run a server of two lines and one worker, and the model of that worker."""
    with minicpm_server() as model:
        folder = tmp_path_factory.mktemp("one_worker")
        with serving(folder, "llm: {name: documents}", more=pooled(model.url), calls=2) as served:
            yield served, model


async def test_a_second_caller_waits_and_is_told_where_they_stand(
    chromium: str, one_worker: tuple[Served, MiniCpmServer]
):
    served, model = one_worker
    before, heard = len(model.prepared), len(model.chunks)
    async with visit(chromium, f"{served.address}/duplex", *FLAGS) as first:
        await first.part("talk").click()
        await first.state("listening", "speaking")
        async with asyncio.timeout(60):
            while len(model.chunks) == heard:
                await asyncio.sleep(0.1)

        second = await open_page(first.context, f"{served.address}/duplex")
        await second.part("talk").click()
        notice = second.part("notice")
        await expect(notice).to_contain_text("You are number 1 in the queue, about")
        # The voice announces it too.
        await second.answered("number 1 in the queue")
        assert len(model.prepared) == before + 1

        await first.part("talk").click()
        await first.state("ready")
        await expect(notice).not_to_contain_text("queue", timeout=3_000)
        await units_are_heard(model, 2)
        assert len(model.prepared) == before + 2
        await second.part("talk").click()
        await second.state("ready")


async def test_a_caller_who_is_taken_out_of_the_queue_is_told_and_the_call_ends(
    chromium: str, one_worker: tuple[Served, MiniCpmServer]
):
    served, model = one_worker
    async with (
        visit(chromium, f"{served.address}/duplex", *FLAGS) as first,
        httpx.AsyncClient(base_url=served.address, headers=BEARER) as operator,
    ):
        await first.part("talk").click()
        await first.state("listening", "speaking")
        await units_are_heard(model, 1)

        second = await open_page(first.context, f"{served.address}/duplex")
        await second.part("talk").click()
        notice = second.part("notice")
        await expect(notice).to_contain_text("You are number 1 in the queue")
        [waiting] = (await operator.get("/api/queue")).json()["items"]
        taken_out = await operator.delete(f"/api/queue/{waiting['ticket_id']}")
        assert taken_out.json() == {"success": True}
        reason = "an operator removed you from the queue"
        await expect(notice).to_contain_text(reason, timeout=3_000)
        await second.answered(f"Sorry, {reason}")
        # The caller does not queue again, and there is no other engine.
        assert (await operator.get("/api/queue")).json()["items"] == []
        await second.state("ended")
        await expect(notice).to_contain_text(reason)
        async with asyncio.timeout(60):
            while (await operator.get("/status")).json()["calls"] != 1:
                await asyncio.sleep(0.05)
        await first.part("talk").click()
        await first.state("ready")


@pytest.mark.paired
async def test_a_caller_whose_worker_is_killed_goes_on_with_another(
    chromium: str, one_worker: tuple[Served, MiniCpmServer]
):
    served, model = one_worker
    before = len(model.prepared)
    async with visit(chromium, f"{served.address}/duplex", *FLAGS) as person:
        await person.part("talk").click()
        await person.state("listening", "speaking")
        await units_are_heard(model, 3)
        os.kill(worker_of(served).pid, signal.SIGKILL)
        # The notice comes at once; there is no other worker, so the caller is at the head of the queue.
        notice = person.part("notice")
        await expect(notice).to_contain_text("You are number 1 in the queue", timeout=1_000)
        # The killed worker is started again, and the conversation goes on in it.
        await expect(notice).not_to_contain_text("queue")
        await units_are_heard(model, 2)
        assert len(model.prepared) == before + 2
        await person.part("talk").click()
        await person.state("ready")
