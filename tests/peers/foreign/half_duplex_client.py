"""A conversation by the MiniCPM-o server's half-duplex page: two questions, each answered to its end.

``python -m tests.peers.foreign.half_duplex_client URL QUESTION STOP`` takes the server and two WAVs of 24
kHz, which are asked one after the other: this page does not interrupt. The page is that of the tests. The
program prints what it has seen as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
import soxr

from tests.peers.foreign.player import RATE_HZ, LoopWatch, Player, keep_imports, pcm_of
from tests.peers.minicpm_page import PREPARE, page
from tests.voices import silence

MODEL_HZ = 16_000


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    """Hold the conversation; return what was seen of it."""
    player, watch = Player(), LoopWatch()
    turns: list[str] = []
    async with page(url, "/ws/half_duplex/hdx_foreign") as client:
        await client.send(**PREPARE)
        await client.until("prepared")
        watch.begin()
        for number, asked in enumerate((question, stop), 1):
            # The page mutes its microphone while an answer is on its way.
            client.received.clear()
            client.times_s.clear()
            heard = soxr.resample(np.frombuffer(asked, "<i2"), RATE_HZ, MODEL_HZ).astype("<i2").tobytes()
            await client.speak(silence(500) + heard + silence(6_000), hushed_by="generating")
            turns.append((await client.until("turn_done"))["text"])
            for message, at_s in zip(client.received, client.times_s, strict=True):
                if message["type"] == "chunk":
                    player.take(str(number), message["duration_ms"] / 1000, at_s)
        await watch.end()
        errors = client.of("error")
    return {"turns": turns, "errors": errors, **player.report(watch)}


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
