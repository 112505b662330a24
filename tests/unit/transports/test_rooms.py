"""Rooms: the token for LiveKit, and the transports of rooms with their packages installed."""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import sys
from pathlib import Path

import pytest

from tests.system import missing

ROOT = Path(__file__).parents[3]
LIVEKIT, DAILY = "livekit-api>=1.0.5,<2", "daily-python>=0.36,<1"
ENVIRONMENT = {
    "LIVEKIT_URL": "ws://127.0.0.1:9",
    "LIVEKIT_ROOM_NAME": "help",
    "LIVEKIT_API_KEY": "key",
    "LIVEKIT_API_SECRET": "s" * 32,
    "DAILY_ROOM_URL": "https://example.daily.co/help",
    "DAILY_TOKEN": "token",
}
OPEN = """
import asyncio, json, os
from pipecat.transports.base_transport import BaseTransport
from parley.runtime.event_stream import CallEvents
from parley.transports.registry import TRANSPORTS
from parley.transports.request import TransportRequest

async def main():
    told = {}
    for name in ("livekit", "daily"):
        arguments = TRANSPORTS.arguments_from(name, os.environ)
        assert TRANSPORTS.of_arguments(arguments).name == name
        request = TransportRequest(
            sees=True, vanish_ms=1, on_packet=lambda pcm: None, events=CallEvents()
        )
        transport = await TRANSPORTS.create(name, arguments, request)
        assert isinstance(transport, BaseTransport)
        assert transport.input() is not None and transport.output() is not None
        for event in ("on_client_connected", "on_client_disconnected"):
            transport.add_event_handler(event, main)
        told[name] = type(transport).__name__
    told["token"] = TRANSPORTS.arguments_from("livekit", os.environ).token
    print(json.dumps(told))

asyncio.run(main())
"""


async def python_with_rooms(folder: Path) -> str:
    """Return an interpreter that has this one's packages, and those of rooms."""
    python = str(folder / "bin" / "python")
    site = next(path for path in sys.path if path.endswith("site-packages"))
    pip = [sys.executable, "-m", "pip", "--python", python]
    commands = (
        [sys.executable, "-m", "venv", "--without-pip", str(folder)],
        [*pip, "install", "-q", "--no-compile", "--no-deps", LIVEKIT, DAILY, "livekit-protocol>=1,<2"],
    )
    for command in commands:
        made = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
        if await made.wait():
            missing(f"{LIVEKIT} and {DAILY}")
    own = next((folder / "lib").glob("python*/site-packages"))
    # A namespace package of two folders: LiveKit's client is there, its server interface here.
    (own / "others.pth").write_text(f"{site}\n")
    return python


async def run(python: str, *arguments: str, **environment: str) -> tuple[int | None, str, str]:
    child = await asyncio.create_subprocess_exec(
        python,
        *arguments,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, error = await child.communicate()
    return child.returncode, output.decode(), error.decode()


@pytest.mark.slow
@pytest.mark.packages
async def test_rooms_open_with_their_packages_and_livekit_is_shown_a_token_for_one_room(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
):
    python = await python_with_rooms(tmp_path_factory.mktemp("rooms"))
    status, output, error = await run(python, "-c", OPEN)
    assert status == 0, error[-2_000:]
    received = json.loads(output)
    assert (received["livekit"], received["daily"]) == ("LiveKitTransport", "DailyTransport")
    signed, _, signature = received["token"].rpartition(".")
    made = hmac.new(b"s" * 32, signed.encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64encode(made).decode().rstrip("=") == signature
    payload = signed.partition(".")[2]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["iss"] == "key" and claims["video"]["room"] == "help" and claims["video"]["roomJoin"]
    # There is no server at that address: the command reports so and ends.
    store = f"sqlite:///{tmp_path}/sessions.db"
    status, _, error = await run(python, "bot.py", "--transport", "livekit", PARLEY_STORE_URL=store)
    assert status == 2
    assert "bot.py: --transport livekit: the transport has failed" in error.splitlines()[-1]
