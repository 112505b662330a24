"""The product as a user starts it, ``bot.py`` with its options, in a process of its own on a free port."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil
import yaml

from parley.configs.load import read_yaml
from parley.evals.harness.forked_servers import ForkedServer
from parley.evals.harness.launcher import free_port
from tests.peers.operations_gateway import TOKEN, TOKEN_ENV

ROOT = Path(__file__).resolve().parents[2]
START_TIMEOUT_S = 60


@dataclass
class RunningServer:
    """A server that accepts calls.

    Attributes:
        url: URL of the page.
        process: the process, to inspect its memory and files and to kill it.
    """

    url: str
    process: psutil.Process


def unbounded(arguments: Sequence[str], folder: Path) -> list[str]:
    """Return the arguments with a deployment that admits callers whatever else this machine does.

    How many a machine can answer is not what most tests are about, and theirs does other work as well. Nor do
    its engines have processes that stand by, which would load while the first caller talks. What a deployment
    says of either stays as it is, and so does one that is no file.
    """
    given = list(arguments)
    if "--config" not in given:
        given += ["--config", str(ROOT / "configs" / "embedded.yaml")]
    place = given.index("--config") + 1
    config = Path(given[place])
    if config.suffix != ".yaml":
        return given
    settings = read_yaml(config)
    settings["server"] = {"admission": "off", **settings.get("server", {})}
    settings["hearing"] = {"spare_processes": False, **settings.get("hearing", {})}
    # Next to it: folders count from there.
    copied = (folder if config.is_relative_to(ROOT) else config.parent) / f"unbounded-{config.name}"
    copied.write_text(yaml.safe_dump(settings))
    given[place] = str(copied)
    return given


def briefly_greeting(folder: Path) -> Path:
    """Return the embedded deployment with a greeting of two words, as a file in ``folder``.

    It serves evaluations whose every call begins after the greeting: the default one takes seconds.
    """
    settings = read_yaml(ROOT / "configs" / "embedded.yaml")
    settings["bot"] = {"greeting": "Hello there."}
    path = folder / "embedded.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@asynccontextmanager
async def running_server(*arguments: str, log: Path | None = None) -> AsyncIterator[RunningServer]:
    """Run a server.

    ``log`` is the file of its log; None sends it to the output of the tests.
    """
    with TemporaryDirectory() as folder:
        async with _running(unbounded(arguments, Path(folder)), log) as server:
            yield server


@asynccontextmanager
async def _running(arguments: Sequence[str], log: Path | None) -> AsyncIterator[RunningServer]:
    port = free_port()
    variables = {**os.environ, TOKEN_ENV: TOKEN}
    child = ForkedServer(["--port", str(port), *arguments], ROOT, variables, log)
    url = f"http://127.0.0.1:{port}"
    try:
        async with httpx.AsyncClient() as client, asyncio.timeout(START_TIMEOUT_S):
            while True:
                assert child.returncode is None, "the server ended"
                try:
                    if (await client.get(f"{url}/health")).status_code == 200:
                        break
                except httpx.TransportError:
                    await asyncio.sleep(0.1)
        yield RunningServer(url, psutil.Process(child.pid))
    finally:
        if child.returncode is None:
            child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 3)
            except TimeoutError:
                # A call that is still on is not drained.
                child.terminate()
            try:
                await asyncio.wait_for(child.wait(), 15)
            except TimeoutError:
                child.kill()
                await child.wait()
