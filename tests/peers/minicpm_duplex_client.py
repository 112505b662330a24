"""Clients of the MiniCPM-o server's full-duplex dialects, with their own field names.

``Client`` is one of ``/ws/duplex/{id}``, ``RealtimeClient`` of ``/v1/realtime?mode=``; what the latter sends
and receives has to be valid by the schema of that dialect.
"""

import asyncio
import base64
import json
from importlib.resources import files
from typing import Any

import jsonschema
import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

SECOND = np.zeros(16_000, np.float32)
SCHEMA = json.loads((files("parley.protocols") / "schemas" / "minicpm_realtime.json").read_text())
CLIENT, SERVER = (
    jsonschema.Draft7Validator({**SCHEMA, "oneOf": [{"$ref": f"#/definitions/{side}"}]})
    for side in ("client", "server")
)


def in_base64(samples: np.ndarray) -> str:
    return base64.b64encode(samples.astype("<f4").tobytes()).decode()


def samples_in(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


class Client:
    """Client that uses that server's own field names."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.got: list[dict[str, Any]] = []

    async def send(self, type_: str, **fields: Any) -> None:
        await self.socket.send(json.dumps({"type": type_, **fields}))

    async def next(self, *types: str, within_s: float = 60) -> dict[str, Any]:
        """Wait for the next message of one of these types; messages before it are kept."""
        async with asyncio.timeout(within_s):
            while True:
                message = json.loads(await self.socket.recv())
                self.got.append(message)
                if message["type"] in types:
                    return message

    async def prepared(self, **fields: Any) -> dict[str, Any]:
        await self.send("prepare", **{"system_prompt": "Be kind.", **fields})
        return await self.next("prepared")

    async def chunk(self, samples: np.ndarray = SECOND, **fields: Any) -> None:
        await self.send("audio_chunk", audio_base64=in_base64(samples), **fields)

    async def goes_on(self, within_s: float = 60) -> None:
        """Send chunks until one has a result; each is answered, also while there is no engine."""
        async with asyncio.timeout(within_s):
            while "result" not in self.types[-1:]:
                await self.chunk()
                await self.next("result", "error")
                await asyncio.sleep(0.1)

    async def ended(self, within_s: float = 60) -> tuple[int, str]:
        with pytest.raises(ConnectionClosed):
            async with asyncio.timeout(within_s):
                while True:
                    self.got.append(json.loads(await self.socket.recv()))
        assert self.socket.close_code is not None
        return self.socket.close_code, self.socket.close_reason or ""

    @property
    def types(self) -> list[str]:
        return [message["type"] for message in self.got]


class RealtimeClient(Client):
    """Client of the realtime dialect; each message of the server has to be valid by its schema."""

    async def next(self, *types: str, within_s: float = 60) -> dict[str, Any]:
        before = len(self.got)
        message = await super().next(*types, within_s=within_s)
        for each in self.got[before:]:
            SERVER.validate(each)
        return message

    async def update(self) -> None:
        await self.say("session.update", session={"instructions": "Be kind."})

    async def append(self) -> str:
        """Send a chunk of a constant level; return the type of its answer."""
        await self.say("input_audio_buffer.append", audio=in_base64(SECOND + 0.5))
        return (await self.next("response.listen", "response.output_audio.delta"))["type"]

    async def say(self, type_: str, **fields: Any) -> None:
        """Send a message that is valid by the schema."""
        CLIENT.validate({"type": type_, **fields})
        await self.send(type_, **fields)
