"""A call to an agent elsewhere: the product as a user starts it, at a running server of its own kind."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from websockets.asyncio.server import ServerConnection, serve

from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionReader
from tests.peers.server import ROOT, running_server

WITHIN_S = 60
QUESTION = "What are your opening hours?"
TURNS = (Kind.USER_TURN, Kind.BOT_TURN)


def store_url(folder: Path, name: str) -> str:
    return f"sqlite:///{folder}/{name}.db"


def deployment(folder: Path, name: str, greeting: str) -> Path:
    """Write a deployment that begins with these words."""
    settings: dict[str, Any] = {
        "extends": "embedded",
        "bot": {"greeting": greeting, "idle": None},
        "operations": {"data_dir": str(folder / name)},
    }
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


async def turns_of(folder: Path, name: str) -> list[Event]:
    """Return the turns of the one session of a deployment; none before it has one."""
    if not (folder / f"{name}.db").exists():
        return []
    store = await SessionReader.open(StoreSettings(url=store_url(folder, name)))
    try:
        found = await store.sessions(limit=1)
        return await store.events(found[0].id, limit=100, kinds=TURNS) if found else []
    finally:
        await store.close()


async def until(folder: Path, name: str, is_so: Callable[[list[Event]], bool]) -> list[Event]:
    turns: list[Event] = []
    try:
        async with asyncio.timeout(WITHIN_S):
            while not is_so(turns := await turns_of(folder, name)):
                await asyncio.sleep(0.5)
            return turns
    except TimeoutError:
        raise AssertionError([(turn.kind.value, turn.payload["text"]) for turn in turns]) from None


def words(turns: list[Event], kind: Kind) -> str:
    return " ".join(str(turn.payload["text"]) for turn in turns if turn.kind is kind).lower()


async def calling(config: Path, url: str) -> asyncio.subprocess.Process:
    options = ("--config", str(config), "--transport", "websocket", "--url", url)
    # The store of the environment counts before that of a deployment.
    variables = {**os.environ, "PARLEY_STORE_URL": store_url(config.parent, config.stem)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "bot.py", *options, cwd=ROOT, env=variables, stderr=asyncio.subprocess.PIPE
    )


async def test_two_agents_talk_and_each_has_the_words_of_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_STORE_URL", store_url(tmp_path, "callee"))
    callee, caller = deployment(tmp_path, "callee", ""), deployment(tmp_path, "caller", QUESTION)
    async with running_server("--config", str(callee)) as server:
        process = await calling(caller, f"{server.url.replace('http', 'ws')}/ws")
        try:
            heard = await until(tmp_path, "callee", lambda turns: "hours" in words(turns, Kind.USER_TURN))
            assert heard[0].payload["transport"] == "pipecat"
            answered = await until(tmp_path, "caller", lambda turns: bool(words(turns, Kind.USER_TURN)))
            assert answered[0].payload["text"] == QUESTION
            assert {turn.payload["transport"] for turn in answered} == {"agent"}
            said = set(words(await turns_of(tmp_path, "callee"), Kind.BOT_TURN).replace(".", "").split())
            understood = words(answered, Kind.USER_TURN).replace(".", "").replace(",", "").split()
            assert sum(word in said for word in understood) >= len(understood) / 2, (said, understood)
        finally:
            process.send_signal(signal.SIGINT)
            async with asyncio.timeout(WITHIN_S):
                _, log = await process.communicate()
        assert b"Traceback" not in log


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ws://127.0.0.1:9/ws", "the agent cannot be reached: "),
        ("http://127.0.0.1:9/ws", "the address is none of a socket"),
        ("no address", "the address is none of a socket"),
    ],
)
async def test_an_agent_that_cannot_be_reached_is_one_line(tmp_path: Path, url: str, says: str):
    process = await calling(deployment(tmp_path, "caller", QUESTION), url)
    async with asyncio.timeout(WITHIN_S):
        _, log = await process.communicate()
    assert process.returncode == 2
    assert f"--transport websocket: {says}" in log.decode()
    assert b"Traceback" not in log


@pytest.mark.parametrize("message", [b"garbage", b""])
async def test_an_agent_that_sends_what_is_no_frame_ends_the_call(tmp_path: Path, message: bytes):
    closed = asyncio.Event()

    async def agent(socket: ServerConnection) -> None:
        # Its first message, for which servers wait.
        assert b"client-ready" in await socket.recv()
        await socket.send(message)
        await socket.wait_closed()
        closed.set()

    async with serve(agent, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        process = await calling(deployment(tmp_path, "caller", ""), f"ws://127.0.0.1:{port}/ws")
        async with asyncio.timeout(WITHIN_S):
            await closed.wait()
            _, log = await process.communicate()
    assert process.returncode == 0
    assert b"Traceback" not in log
