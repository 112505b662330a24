"""A language model that only knows its prompt: OpenAI's chat completions, streamed, on loopback.

It is not told what the evaluation expects. Asked for the code, it looks for "my code is X" in the messages
that it was given; asked to order, it calls the tool ``place_order`` unless a result of that call stands
behind the question already. What it answers is therefore what the server put into the prompt.
"""

import asyncio
import json
import re
from contextlib import suppress
from typing import Any

from aiohttp import web

PIECE_S = 0.015
CODE = re.compile(r"\bcode is (\w+)", re.IGNORECASE)
ORDER = re.compile(r"\border (\w+)", re.IGNORECASE)
UNKNOWN = "I was not told your code."


class ModelPeer:
    """The model, for ``aiohttp.web``."""

    def __init__(self) -> None:
        self._calls = 0

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """``POST /v1/chat/completions`` with ``stream: true``."""
        with suppress(ConnectionResetError):
            # The server that asked is killed in the middle of answers: that is what this is for.
            return await self._complete(request)
        return web.Response(status=499)

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        messages = body["messages"]
        order, text = self._decide(messages)
        if order is None:
            for piece in re.findall(r"\S+\s*", text):
                await asyncio.sleep(PIECE_S)
                await self._send(response, {"content": piece})
            await self._send(response, {}, finish="stop")
        else:
            self._calls += 1
            function = {"name": "place_order", "arguments": json.dumps({"item": order})}
            call = {"index": 0, "id": f"call_{self._calls}", "type": "function", "function": function}
            await self._send(response, {"tool_calls": [call]})
            await self._send(response, {}, finish="tool_calls")
        await response.write(b"data: [DONE]\n\n")
        return response

    def _decide(self, messages: list[dict[str, Any]]) -> tuple[str | None, str]:
        asked = max(at for at, message in enumerate(messages) if message["role"] == "user")
        question = text_of(messages[asked]).strip().splitlines()[-1]
        results = [text_of(message) for message in messages[asked:] if message["role"] == "tool"]
        if "what is my code" in question.lower():
            codes = [code for message in messages for code in CODE.findall(text_of(message))]
            return None, f"Your code is {codes[-1]}." if codes else UNKNOWN
        order = ORDER.search(question)
        if order is None:
            return None, "Thank you, I have noted that for you and will remember it."
        if results:
            return None, f"This is what came of the order: {results[-1]}"
        return order.group(1), ""

    async def _send(
        self, response: web.StreamResponse, delta: dict[str, object], *, finish: str | None = None
    ) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_767_600_000,
            "model": "peer",
            "choices": [choice],
        }
        await response.write(f"data: {json.dumps(chunk)}\n\n".encode())


def text_of(message: dict[str, Any]) -> str:
    """The words of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""
