"""Many clients without a microphone, in a process of their own: typed turns over HTTP, or over a socket.

The command is ``python -m evals.load.typists KIND URL CALLS SECONDS``, with the output of
``evals.harness.crowd``. ``text`` types a question every ``CYCLE_S`` in a session of its own (``POST
/api/sessions/{id}/messages``) and reads the answer to its end. ``socket`` holds a call by OpenAI's realtime
protocol: it sends silence all the time, types the same questions, and is answered by voice. The time of an
answer runs to its end (``text``) or to its first audio (``socket``).
"""

import argparse
import asyncio
import base64
import json
import time
from typing import Any

import aiohttp
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from parley.evals.harness.report import spread
from parley.evals.load.browsers import CYCLE_S, QUESTION
from parley.runtime import event_loop

KINDS = ("text", "socket")
SETTLE_S, ANSWERED_S = 2.0, 10.0
# 16-bit PCM at 24 kHz.
PIECE_S = 0.1
SILENCE = base64.b64encode(bytes(round(PIECE_S * 24_000) * 2)).decode()
FIRST_AUDIO = ("response.output_audio.delta", "response.audio.delta")


class Typist:
    """Client that types its questions.

    Attributes:
        answers: time of each question, and seconds to its answer; None for none.
        refused: reason for which there is no call.
    """

    def __init__(self) -> None:
        self.answers: list[tuple[float, float | None]] = []
        self.refused = ""
        self.is_up = asyncio.Event()

    async def type_turns(self, url: str, begin: asyncio.Event, first_s: float) -> None:
        """Ask over HTTP from the beginning of the measurement until cancelled."""
        async with aiohttp.ClientSession(url) as client:
            async with client.post("/api/sessions") as response:
                if response.status != 201 and response.status != 200:
                    self.refused = f"status {response.status}"
                    return
                session_id = (await response.json())["id"]
            self.is_up.set()
            await begin.wait()
            await asyncio.sleep(first_s)
            while True:
                async with asyncio.timeout(ANSWERED_S):
                    begun_s = time.monotonic()
                    path = f"/api/sessions/{session_id}/messages"
                    async with client.post(path, json={"text": QUESTION}) as response:
                        is_answered = "event: done" in await response.text()
                taken_s = time.monotonic() - begun_s
                self.answers.append((begun_s, taken_s if is_answered else None))
                await asyncio.sleep(max(0.0, CYCLE_S - taken_s))

    async def call(self, url: str, begin: asyncio.Event, first_s: float) -> None:
        """Hold a call over a socket until cancelled; ask from the beginning of the measurement."""
        address = f"{url.replace('http', 'ws', 1)}/v1/realtime?model=parley"
        async with connect(address, max_size=None, compression=None) as socket, asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_silence(socket), name="load.silence")
            tasks.create_task(self._ask(socket, begin, first_s), name="load.ask")
            async for text in socket:
                self._take(json.loads(text))

    async def _send_silence(self, socket: ClientConnection) -> None:
        begun_s, pieces = time.monotonic(), 0
        while True:
            await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": SILENCE}))
            pieces += 1
            await asyncio.sleep(max(0.0, begun_s + pieces * PIECE_S - time.monotonic()))

    async def _ask(self, socket: ClientConnection, begin: asyncio.Event, first_s: float) -> None:
        await begin.wait()
        await asyncio.sleep(first_s)
        content = [{"type": "input_text", "text": QUESTION}]
        item = {"type": "message", "role": "user", "content": content}
        while True:
            self.answers.append((time.monotonic(), None))
            await socket.send(json.dumps({"type": "conversation.item.create", "item": item}))
            await socket.send(json.dumps({"type": "response.create"}))
            await asyncio.sleep(CYCLE_S)

    def _take(self, message: dict[str, Any]) -> None:
        if message["type"] == "session.created":
            self.is_up.set()
        elif message["type"] in FIRST_AUDIO and self.answers and self.answers[-1][1] is None:
            asked_s = self.answers[-1][0]
            self.answers[-1] = asked_s, time.monotonic() - asked_s


async def _run(typist: Typist, kind: str, url: str, begin: asyncio.Event, first_s: float) -> None:
    try:
        await (typist.type_turns if kind == "text" else typist.call)(url, begin, first_s)
    except* (aiohttp.ClientError, OSError, TimeoutError, WebSocketException) as group:
        typist.refused = repr(group.exceptions[0])
    typist.is_up.set()


async def hold(kind: str, url: str, calls: int, seconds: float) -> dict[str, Any]:
    """Hold ``calls`` clients at a time and return the figures."""
    typists, begin = [Typist() for _ in range(calls)], asyncio.Event()
    running = [
        asyncio.create_task(_run(typist, kind, url, begin, number * CYCLE_S / calls), name=f"load.{number}")
        for number, typist in enumerate(typists)
    ]
    await asyncio.gather(*(typist.is_up.wait() for typist in typists))
    await asyncio.sleep(SETTLE_S)
    print("measuring", flush=True)
    begin.set()
    from_s, from_cpu_s = time.monotonic(), time.process_time()
    await asyncio.sleep(seconds)
    to_s, cpu_s = time.monotonic(), time.process_time() - from_cpu_s
    print("measured", flush=True)
    held = sum(not task.done() for task in running)
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
    # A question of the last seconds may still have been answered.
    answers = [
        taken_s
        for typist in typists
        for asked_s, taken_s in typist.answers
        if from_s <= asked_s < to_s - ANSWERED_S
    ]
    return {
        "held": held,
        "refused": [typist.refused for typist in typists if typist.refused][:3],
        "answer_ms": spread([1000 * taken_s for taken_s in answers if taken_s is not None]),
        "unanswered": sum(taken_s is None for taken_s in answers),
        "own_cpu_percent": round(100 * cpu_s / (to_s - from_s), 1),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Hold many typing clients at a time.")
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("url")
    parser.add_argument("calls", type=int)
    parser.add_argument("seconds", type=float)
    given = parser.parse_args()
    print(json.dumps(event_loop.run(hold(given.kind, given.url, given.calls, given.seconds))), flush=True)


if __name__ == "__main__":
    main()
