"""Language model that depends on its prompt alone: OpenAI's chat completions, streamed, on loopback.

It is independent of the expectations of the evaluation. Asked for the code, it searches the user's messages
for "my code is X"; asked to order or to book, it calls the tool unless that call follows the question
already. Its answers therefore show the content of the server's prompt. Every answer has a number of its own,
which reveals repeated ones.
"""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from parley.evals.crash.outside import BOOKING, ORDER
from parley.evals.harness.services.chat_completions import send_delta

# To the first word, and from word to word. Constant, so that a kill comes in the phase that was drawn.
THOUGHT_S = 0.2
PIECE_S = 0.015
CODE = re.compile(r"\bmy code is (\w+)", re.IGNORECASE)
QUESTION = re.compile(r"\bwhat\b.*\bcode\b", re.IGNORECASE)
# A recogniser's mistake makes no such word.
WISH = re.compile(r"\b(order|book) (item\w+)", re.IGNORECASE)
DONE = re.compile(r'"done": ?"(item\w+)"')
TOOLS = {"order": ORDER, "book": BOOKING}
UNKNOWN = "I was not told your code."
# About ten seconds of speech: long enough for a kill during it.
NOTED = (
    "Thank you, I have noted that as number {}, and I will remember it for as long as this conversation "
    "goes on, whatever may happen meanwhile to the line, or to me, or to the machine that I am running on."
)


@dataclass
class ModelPeer:
    """The model, for ``aiohttp.web``.

    Attributes:
        results: items whose results it was shown.
    """

    results: list[str] = field(default_factory=list)
    _answers: int = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Handle ``POST /v1/chat/completions`` with ``stream: true``."""
        with suppress(ConnectionResetError):
            # The client is a server that is killed in the middle of answers: this is expected.
            return await self._complete(request)
        return web.Response(status=499)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        messages = body["messages"]
        self.results += [item for item in shown_results(messages) if item not in self.results]
        self._answers += 1
        wish, text = decide(messages, self._answers)
        await asyncio.sleep(THOUGHT_S)
        if wish is None:
            for piece in re.findall(r"\S+\s*", text):
                await send_delta(response, {"content": piece})
                await asyncio.sleep(PIECE_S)
            await send_delta(response, {}, finish="stop")
        else:
            tool, item = wish
            function = {"name": tool, "arguments": json.dumps({"item": item})}
            call = {"index": 0, "id": f"call_{self._answers}", "type": "function", "function": function}
            await send_delta(response, {"tool_calls": [call]})
            await send_delta(response, {}, finish="tool_calls")
        await response.write(b"data: [DONE]\n\n")
        return response


def decide(messages: Sequence[Mapping[str, Any]], number: int) -> tuple[tuple[str, str] | None, str]:
    """Return the tool to call with its item, or else the answer.

    Args:
        messages: of the request.
        number: of the answer.
    """
    answered = [at for at, m in enumerate(messages) if m["role"] == "assistant" and text_of(m)]
    pending = messages[answered[-1] + 1 if answered else 0 :]
    if not any(message["role"] == "user" for message in pending):
        # A turn whose answer was interrupted is asked again; the part of the answer that was said follows it.
        pending = messages[max(at for at, m in enumerate(messages) if m["role"] == "user") :]
    lines = [line for m in pending if m["role"] == "user" for line in text_of(m).splitlines() if line.strip()]
    if QUESTION.search(lines[-1]):
        codes = [code for m in messages if m["role"] == "user" for code in CODE.findall(text_of(m))]
        return None, f"Your code is {codes[-1]}." if codes else UNKNOWN
    called = [json.dumps(message["tool_calls"]) for message in messages if message.get("tool_calls")]
    for verb, item in (wish for line in lines for wish in WISH.findall(line)):
        if not any(re.search(rf"\b{item}\b", call) for call in called):
            return (TOOLS[verb.lower()], item), ""
    results = [text_of(message) for message in pending if message["role"] == "tool"]
    if results:
        return None, f"As number {number}: this is what came of it: {results[-1]}"
    return None, NOTED.format(number)


def shown_results(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the items whose results are in the messages; a call of unknown outcome has none."""
    return [item for m in messages if m["role"] == "tool" for item in DONE.findall(text_of(m))]


def text_of(message: Mapping[str, Any]) -> str:
    """Return the words of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""
