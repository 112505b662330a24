"""A conversation of OpenAI's agents SDK, in an environment of its own.

``python agents_client.py URL QUESTION STOP`` takes the address and two WAVs of 24 kHz. QUESTION makes the
agent call its tool; STOP is spoken during the answer. The program prints all events as one line of JSON. It
is run by ``evals.foreign`` and ``test_openai_agents``, and imports nothing of Parley but ``player``, from its
own folder.
"""

import asyncio
import json
import sys
import time
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner
from player import LoopWatch, Player, keep_imports, pcm_of

PIECE_MS = 40
called: list[str] = []


@function_tool
def weather(city: str) -> str:
    """Return the weather.

    Args:
        city: name of the city.
    """
    called.append(city)
    return f"sunny in {city}"


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    agent = RealtimeAgent(name="Ada", instructions="Be kind.", tools=[weather])
    runner = RealtimeRunner(agent, config={"model_settings": {"model_name": "parley"}})
    session = await runner.run(model_config={"url": url, "api_key": "x"})
    speech = bytearray(bytes(9_600) + question)
    seen: dict[str, Any] = {"events": [], "errors": [], "audio_bytes": 0, "interrupted": 0, "ended": 0}
    first_audio_s: float | None = None
    player, watch = Player(), LoopWatch()
    said_stop = False
    over = asyncio.Event()

    async def speak() -> None:
        nonlocal speech
        piece, due_s = 24_000 * PIECE_MS // 1000 * 2, time.monotonic()
        while True:
            data, speech = bytes(speech[:piece]), speech[piece:]
            await session.send_audio(data.ljust(piece, b"\0"))
            due_s += PIECE_MS / 1000
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))

    async def listen() -> None:
        nonlocal first_audio_s, said_stop, speech
        async for event in session:
            seen["events"].append(event.type)
            if event.type == "error":
                seen["errors"].append(str(event.error))
            elif event.type == "audio":
                seen["audio_bytes"] += len(event.audio.data)
                player.take(event.item_id, len(event.audio.data) / 2 / 24_000)
                first_audio_s = first_audio_s or time.monotonic()
                if not said_stop and time.monotonic() - first_audio_s > 1.5:
                    said_stop = True
                    speech += stop
            elif event.type == "audio_interrupted":
                seen["interrupted"] += 1
            elif event.type == "audio_end":
                seen["ended"] += 1
                if seen["interrupted"] and seen["ended"] >= 2:
                    over.set()

    async with session:
        watch.begin()
        tasks = [asyncio.create_task(speak()), asyncio.create_task(listen())]
        try:
            async with asyncio.timeout(60):
                await over.wait()
            await asyncio.sleep(0.5)
        except TimeoutError:
            seen["errors"].append("it took too long")
        finally:
            for task in tasks:
                task.cancel()
            await watch.end()
    kinds = seen["events"]
    seen["events"] = [kind for place, kind in enumerate(kinds) if not place or kind != kinds[place - 1]]
    seen.update(called=called, **player.report(watch))
    seen["history"] = [
        (
            item.role,
            [getattr(part, "transcript", None) for part in item.content],
        )
        for item in session._history
        if item.type == "message"
    ]
    return seen


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
