"""The example package, installed as its README says.

Entry points lead to its parts in calls, in a worker and in the duplex bench; its own tests pass.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import soundfile
from pipecat.frames.protobufs import frames_pb2
from websockets.asyncio.server import ServerConnection, serve

from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.session_store.events import Kind
from tests.fakes.worker import OPENED_WITHIN_S, SECRET, shared_secret
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.test_agent_call import store_url, until, words
from tests.voices import say, silence, tone

ROOT = Path(__file__).resolve().parents[2]
# 20 ms at 16 kHz.
PIECE_BYTES = 640
PHRASE = "what are your opening hours on saturday"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process that finds the installed package."""
    folder = tmp_path_factory.mktemp("installed")
    # A copy, because building leaves files next to the sources.
    package = shutil.copytree(ROOT / "examples" / "parrot", tmp_path_factory.mktemp("example") / "parrot")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    )
    subprocess.run([*pip, "--target", str(folder), str(package)], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": str(folder), "PARLEY_WORKER_SECRET": SECRET}


async def hold_call(
    environment: dict[str, str], folder: Path, deployment: dict[str, Any], *options: str
) -> tuple[list[dict[str, Any]], str]:
    """Hold a call from a file; return its turns and the log."""
    (folder / "parrot.yaml").write_text(json.dumps({"name": "parrot", **deployment}))
    speech = silence(300) + say("good morning") + silence(300)
    soundfile.write(folder / "question.wav", memoryview(speech).cast("h"), 16_000, format="WAV")
    call = ("bot.py", "--config", str(folder / "parrot.yaml"), "--transport", "file", "--verbose")
    paths = ("--input", str(folder / "question.wav"), "--output", str(folder / "call.wav"))
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *call, *paths, *options, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe
    )
    try:
        async with asyncio.timeout(90):
            _, error = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, error.decode()
    return json.loads((folder / "call.json").read_text())["turns"], error.decode()


async def test_a_call_uses_the_recogniser_and_the_observer(
    environment: dict[str, str], tmp_path: Path
) -> None:
    deployment = {
        "hearing": {"stt": {"name": "parrot", "settings": {"phrase": PHRASE}}},
        "observers": [
            {"name": "turn_count", "settings": {"label": "parrot turns"}},
            {"name": "parley_parrot.observer:TurnCount"},
        ],
    }
    turns, log = await hold_call(environment, tmp_path, deployment)
    assert turns[-1]["user_text"].lower().rstrip("?.") == PHRASE
    assert "ten until two" in turns[-1]["bot_text"]
    assert "parrot turns: 1 over file, slowest answer" in log
    # Also from the observer that is named by its class, without settings.
    assert log.count(" turns: 1 over file, slowest answer") == 2


class Room:
    """Room with one person, who speaks once the bot has been heard.

    Attributes:
        is_heard: set once the bot has been heard.
    """

    def __init__(self) -> None:
        self.is_heard = asyncio.Event()

    async def hold(self, socket: ServerConnection) -> None:
        async with asyncio.TaskGroup() as tasks:
            speaking = tasks.create_task(self._speak(socket), name="room.speaks")
            async for message in socket:
                frame = frames_pb2.Frame.FromString(message)
                if frame.WhichOneof("frame") == "audio" and max(frame.audio.audio, default=0) > 0:
                    self.is_heard.set()
            speaking.cancel()

    async def _speak(self, socket: ServerConnection) -> None:
        await self.is_heard.wait()
        speech = silence(3_000) + say("good morning") + silence(60_000)
        for at in range(0, len(speech), PIECE_BYTES):
            frame = frames_pb2.Frame()
            frame.audio.audio = speech[at : at + PIECE_BYTES]
            frame.audio.sample_rate, frame.audio.num_channels = 16_000, 1
            await socket.send(frame.SerializeToString())
            await asyncio.sleep(0.02)


async def test_a_call_is_held_in_the_room(environment: dict[str, str], tmp_path: Path) -> None:
    config = tmp_path / "caller.yaml"
    hearing = {"stt": {"name": "parrot", "settings": {"phrase": PHRASE}}}
    operations = {"data_dir": str(tmp_path / "data")}
    config.write_text(
        json.dumps({"bot": {"greeting": "Hello."}, "hearing": hearing, "operations": operations})
    )
    room = Room()
    async with serve(room.hold, "127.0.0.1", 0) as server:
        address = f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        process = await joining("aviary", config, {**environment, "PARROT_ROOM_URL": address})
        try:
            # Its engines are loaded before.
            async with asyncio.timeout(120):
                await room.is_heard.wait()
            turns = await until(
                tmp_path, "caller", lambda turns: "ten until two" in words(turns, Kind.BOT_TURN)
            )
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGINT)
            async with asyncio.timeout(60):
                _, log = await process.communicate()
            print(log.decode())
    assert PHRASE in words(turns, Kind.USER_TURN)
    assert {turn.payload["transport"] for turn in turns} == {"aviary"}
    assert b"Traceback" not in log


async def test_a_room_by_its_function_says_which_variable_it_lacks(
    environment: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "caller.yaml"
    config.write_text("name: caller\n")
    process = await joining("parley_parrot.room:aviary", config, environment)
    async with asyncio.timeout(60):
        _, log = await process.communicate()
    assert process.returncode == 2
    assert b"transport 'aviary' needs PARROT_ROOM_URL in the environment" in log


async def joining(transport: str, config: Path, environment: dict[str, str]) -> "asyncio.subprocess.Process":
    options = ("--config", str(config), "--transport", transport)
    variables = {**environment, "PARLEY_STORE_URL": store_url(config.parent, config.stem)}
    return await asyncio.create_subprocess_exec(
        sys.executable, "bot.py", *options, cwd=ROOT, env=variables, stderr=asyncio.subprocess.PIPE
    )


async def test_a_model_calls_the_tool(environment: dict[str, str], tmp_path: Path) -> None:
    calls = Turn(tool="opening_hours", arguments='{"day": "saturday"}')
    async with OpenAiServer([calls, Turn(["We open at ten."])]) as server:
        model = {"name": "openai_compatible", "settings": {"base_url": f"{server.url}/v1", "model": "m"}}
        deployment = {
            "hearing": {"stt": {"name": "parrot", "settings": {"phrase": PHRASE}}},
            "thinking": {
                "llm": model,
                "tools": [{"name": "opening_hours", "settings": {"idempotent": True}}],
                "speculation": {"on": "off"},
            },
        }
        turns, _ = await hold_call(environment, tmp_path, deployment)
    assert turns[-1]["bot_text"] == "We open at ten."
    first, second = server.requests
    [offered] = [each["function"] for each in first["tools"]]
    assert offered["name"] == "opening_hours"
    assert offered["description"] == "Look up when the aviary is open at the weekend."
    assert offered["parameters"]["properties"]["day"]["enum"] == ["saturday", "sunday"]
    result = json.loads(second["messages"][-1]["content"])
    assert result == {"is_open": True, "from_hour": 10, "until_hour": 14}


async def test_a_full_duplex_call_uses_the_engine(environment: dict[str, str], tmp_path: Path) -> None:
    deployment = {
        "hearing": {"stt": {"name": "parrot"}},
        "duplex": {"engine": {"name": "parrot_duplex"}, "tick_log": None},
    }
    turns, _ = await hold_call(environment, tmp_path, deployment, "--mode", "duplex")
    assert turns[-1]["bot_text"] == "Squawk."


def test_the_duplex_bench_measures_the_engine(environment: dict[str, str], tmp_path: Path) -> None:
    bench = (sys.executable, "-m", "evals.duplex_bench", "--engine", "parrot_duplex")
    figures = tmp_path / "figures.json"
    done = subprocess.run(
        [*bench, "--part", "turn", "--clips", "1", "--json", str(figures)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(figures.read_text())["systems"][0]
    assert measured["name"] == "parrot_duplex"
    assert len(measured["per_clip"]) == 1
    assert measured["turn_tor"] == 1.0


def test_its_own_tests_pass_without_the_tests_of_parley(environment: dict[str, str], tmp_path: Path) -> None:
    # Parley alone is on the path, as an installed package.
    (tmp_path / "parley").symlink_to(ROOT / "parley")
    own = shutil.copytree(ROOT / "examples" / "parrot", tmp_path / "parrot")
    shutil.rmtree(own / "parley_parrot")
    path = os.pathsep.join((str(tmp_path), environment["PYTHONPATH"]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"],
        cwd=own,
        env={**environment, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout and "failed" not in done.stdout


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (("parrot",), ""),
        (("parley_parrot.stt:ParrotStt", "--kind", "stt"), ""),
        (
            ("parley_parrot.stt:ParrotStt",),
            "'parley_parrot.stt:ParrotStt' needs --kind (known: omni, stt, tts, llm)",
        ),
        (("parley_parrot.stt:Cockatoo", "--kind", "stt"), "cannot be imported"),
        (("parrot", "--set", "pitch=1"), "unknown field"),
    ],
)
def test_a_worker_hosts_it_by_name_and_by_target(
    environment: dict[str, str], engine: tuple[str, ...], message: str
) -> None:
    command = (
        sys.executable,
        "runner.py",
        "--role",
        "worker",
        "--port",
        "0",
        "--print-url",
        "--engine",
        *engine,
    )
    pipe = subprocess.PIPE
    # A worker that prints its address ends with its standard input.
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        if message:
            _, error = process.communicate(timeout=30)
            assert (process.returncode, message in error) == (2, True), error
            return
        settings = {"url": process.stdout.readline().strip(), "secret_env": shared_secret()}
        hosted = WorkerStt(WorkerSttSettings.model_validate({**settings, "open_timeout_s": OPENED_WITHIN_S}))
        stream = hosted.open_stream()
        stream.start()
        stream.feed(tone(100))
        assert stream.finish().text == "hello"
        stream.close()
    finally:
        process.kill()
        process.communicate(timeout=10)
