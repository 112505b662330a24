"""A conversation of OpenAI's Python SDK: typed, by voice with a tool and an interruption, and on the side.

``python -m tests.peers.foreign.openai_client URL QUESTION STOP`` takes the server and two WAVs of 24 kHz.
QUESTION makes the model call the client's tool; STOP is spoken during the answer. The caller is that of the
tests (``RealtimeCaller``). The program prints what it has seen as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

from tests.peers.foreign.player import RATE_HZ, LoopWatch, Player, keep_imports, pcm_of
from tests.peers.realtime_caller import RealtimeCaller, calling

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "How the weather is.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
CUT_AFTER_MS = 1_500


async def converse(caller: RealtimeCaller, question: bytes, stop: bytes) -> dict[str, Any]:
    """Hold the conversation; return what was seen of it but the gaps."""
    called: list[str] = []

    def weather(arguments: str) -> str:
        called.append(json.loads(arguments)["city"])
        return f"sunny in {called[-1]}"

    caller.answers["weather"] = weather
    item = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "What is the price?"}],
    }
    await caller.connection.conversation.item.create(item=item)
    await caller.connection.response.create()
    await caller.until("response.done")
    aside = {"conversation": "none", "input": [item], "metadata": {"topic": "aside"}}
    await caller.connection.response.create(response={**aside, "output_modalities": ["text"]})
    await caller.until("response.done", count=2)
    caller.append(bytes(RATE_HZ * 2 // 5) + question)
    await caller.until("response.function_call_arguments.done")
    await caller.connection.response.create()
    # The second item with sound; the answer on the side had none.
    await caller.until_true(lambda: len(caller.speaker.length_ms) > 1)
    [_, started] = caller.speaker.length_ms
    await caller.until_true(lambda: caller.speaker.played_ms(started) > CUT_AFTER_MS)
    caller.append(stop)
    await caller.until("response.done", count=5)
    await caller.connection.conversation.item.retrieve(item_id=started)
    cut_off = (await caller.until("conversation.item.retrieved")).item
    caller.order.over()
    return {
        "called": called,
        "heard": caller.understood(),
        "answers": [_answer(done.response) for done in caller.of("response.done")],
        "cut_off": {
            "truncated": [event.item_id == started for event in caller.of("conversation.item.truncated")],
            "words": cut_off.content[0].transcript,
        },
        "errors": [str(event.error) for event in caller.of("error")],
    }


def _answer(response: Any) -> list[Any]:
    """Return the state, the kinds, the words and the metadata of a response."""
    parts = [part for item in response.output if item.type == "message" for part in item.content]
    words = " ".join(part.transcript or part.text or "" for part in parts)
    return [response.status, [item.type for item in response.output], words, response.metadata]


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    player, watch = Player(), LoopWatch()
    async with calling(url, tools=[WEATHER]) as caller:
        watch.begin()
        async with asyncio.timeout(120):
            seen = await converse(caller, question, stop)
        await watch.end()
        for event, at_s in zip(caller.events, caller.times_s, strict=True):
            if event.type == "response.output_audio.delta":
                player.take(event.item_id, len(event.delta) * 3 // 4 / 2 / RATE_HZ, at_s)
    return {**seen, **player.report(watch)}


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
