"""A conversation of Unmute's load test, rebuilt from its protocol: a question, an interruption.

``python -m tests.peers.foreign.unmute_client URL QUESTION STOP`` takes the address and two WAVs of 24 kHz.
The bot speaks first; STOP is spoken during the answer to QUESTION. The client is that of the tests
(``LoadTest``). The program prints what it has seen as one line of JSON.
"""

import asyncio
import json
import sys
import time
from typing import Any

from websockets.asyncio.client import connect

from tests.peers.foreign.player import RATE_HZ, LoopWatch, Player, keep_imports, pcm_of
from tests.peers.unmute_front_end import LoadTest

CUT_AFTER_S, PAUSE_BYTES = 1.5, RATE_HZ * 3 // 10 * 2


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    """Hold the conversation; return what was seen of it."""
    player, watch = Player(), LoopWatch()
    async with connect(url, subprotocols=["realtime"], max_size=None) as socket:  # type: ignore[list-item]
        one = LoadTest(socket, player)
        await one.update(allow_recording=False)
        microphone = asyncio.create_task(one.microphone())
        watch.begin()
        try:
            await one.until_spoken()
            one.append(bytes(PAUSE_BYTES) + question)
            await one.until("response.audio.delta")
            began_s = time.monotonic()
            while time.monotonic() - began_s < CUT_AFTER_S:
                await one.until("response.audio.delta")
            one.append(stop)
            await one.until("unmute.interrupted_by_vad")
            player.over()
            await one.until("response.audio.done")
            one.append(bytes(PAUSE_BYTES))
            await one.until_spoken()
        finally:
            await watch.end()
            microphone.cancel()
    return {
        "turns": one.turns,
        "history": [(turn["role"], turn["content"]) for turn in one.history],
        "phases": sorted(one.order),
        "errors": [event["error"]["message"] for event in one.got if event["type"] == "error"],
        **player.report(watch),
    }


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
