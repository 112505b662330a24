"""A client of a full-duplex socket that lost its connection hears the rest of the reply over the next one."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import connect

from parley.session_store.events import Kind
from tests.peers.minicpm_duplex_client import Client
from tests.peers.server import RunningServer, briefly_greeting, running_server
from tests.peers.test_recording import timeline_of
from tests.voices import say

pytestmark = pytest.mark.alone

CHUNK_MS = 240
RATE_HZ = 16_000


async def words_of(client: Client, sound: np.ndarray, *, most_words: int, quiet_chunks: int = 60) -> str:
    """Send a sound and then silence; return the bot's words when there are enough, or none for a while."""
    size = RATE_HZ * CHUNK_MS // 1_000
    words: list[str] = []
    place = quiet = 0
    async with asyncio.timeout(120):
        while len(" ".join(words).split()) < most_words and quiet < quiet_chunks:
            piece = sound[place : place + size]
            place += size
            await client.chunk(np.pad(piece, (0, size - piece.size)))
            result = await client.next("result")
            words += [result["text"]] if result["text"].strip() else []
            quiet = 0 if words and words[-1] == result["text"] else quiet + (place > sound.size)
            await asyncio.sleep(CHUNK_MS / 1_000)
    return " ".join(" ".join(words).split())


async def bot_turns(server: RunningServer, session: str) -> list[dict[str, Any]]:
    events = await timeline_of(server, session)
    return [each["payload"] for each in events if each["kind"] == Kind.BOT_TURN]


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_the_rest_of_a_reply_is_said_over_the_next_connection(tmp_path: Path, is_noticed: bool):
    config = briefly_greeting(tmp_path)
    question = np.frombuffer(say("What are your opening hours on Saturday?"), "<i2") / 32_768
    async with running_server("--config", str(config), "--mode", "duplex") as server:
        address = server.url.replace("http", "ws") + "/ws/duplex/adx_test"
        async with connect(address, max_size=None) as socket:
            client = Client(socket)
            session = (await client.prepared())["session_id"]
            had = await words_of(client, question.astype(np.float32), most_words=2)
            if is_noticed:
                socket.transport.abort()
            else:
                # A network that is away: the bot goes on speaking, and the client hears none of it.
                await asyncio.sleep(1)
            async with connect(f"{address}?session={session}&reconnect=true", max_size=None) as another:
                again = Client(another)
                assert (await again.prepared())["session_id"] == session
                turn = (await bot_turns(server, session))[-1]
                heard, rest = turn["text"].split(), turn["unheard"].split()
                said = await words_of(again, np.zeros(0, np.float32), most_words=len(rest), quiet_chunks=40)
                await again.send("stop")
    assert turn["truncated"] and rest, turn
    # The last words that it got may not have been played.
    assert heard == had.split()[: len(heard)]
    assert said.split() == rest
