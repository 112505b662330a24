"""A conversation of OpenAI's agents SDK, in an environment of its own.

``python agents_client.py URL QUESTION STOP`` takes the address and two WAVs of 24 kHz. QUESTION makes the
agent call its tool; STOP is spoken during the answer. The program prints all events as one line of JSON. It
is run by ``evals.foreign`` and ``test_openai_agents``, and imports nothing of Parley.
"""

import asyncio
import json
import sys
import time
import wave
from typing import Any

from agents import function_tool
from agents.realtime import RealtimeAgent, RealtimeRunner

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


def pcm_of(path: str) -> bytes:
    with wave.open(path) as file:
        assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (24_000, 1, 2)
        return file.readframes(file.getnframes())


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    agent = RealtimeAgent(name="Ada", instructions="Be kind.", tools=[weather])
    runner = RealtimeRunner(agent, config={"model_settings": {"model_name": "parley"}})
    session = await runner.run(model_config={"url": url, "api_key": "x"})
    speech = bytearray(bytes(9_600) + question)
    seen: dict[str, Any] = {"events": [], "errors": [], "audio_bytes": 0, "interrupted": 0, "ended": 0}
    first_audio_s: float | None = None
    # The player of a client: the item that it plays, and until when.
    playing, until_s, largest_gap_s = "", 0.0, 0.0
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
        nonlocal first_audio_s, said_stop, speech, playing, until_s, largest_gap_s
        async for event in session:
            seen["events"].append(event.type)
            if event.type == "error":
                seen["errors"].append(str(event.error))
            elif event.type == "audio":
                seen["audio_bytes"] += len(event.audio.data)
                now_s = time.monotonic()
                if event.item_id == playing:
                    largest_gap_s = max(largest_gap_s, now_s - until_s)
                playing = event.item_id
                until_s = max(now_s, until_s) + len(event.audio.data) / 2 / 24_000
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
    kinds = seen["events"]
    seen["events"] = [kind for place, kind in enumerate(kinds) if not place or kind != kinds[place - 1]]
    seen["called"], seen["largest_gap_ms"] = called, largest_gap_s * 1000
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
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
