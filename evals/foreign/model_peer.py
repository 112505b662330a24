"""Language model of the programs: OpenAI's chat completions, streamed or whole, on loopback.

Its answer depends on the last message of the request alone: it calls the client's tool for a question about
hours, repeats what the tool has returned, names a price, and has a short answer for the questions of
``SocketCaller``. Anything else gets an answer of nine seconds. A request to play a user, of a program that
tests agents, gets that user's next line.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from aiohttp import web

from parley.evals.harness.services.chat_completions import send_delta

LONG = (
    "We open at nine. We close at six in the evening. On Saturday we open at ten, and we close at two. "
    "On Sunday we are closed all day long."
)
PRICE = "It costs five euros."
SHORT = "Yes, we are open then."
# Lines of a user; the last one is repeated.
USER_LINES = ("What are your opening hours?", "Are you open on Saturday?")
PIECE_S = 0.01


def decide(messages: Sequence[Mapping[str, Any]], *, has_tools: bool) -> tuple[bool, str]:
    """Return whether the tool is called, and else the answer."""
    last = messages[-1]
    said = text_of(last)
    if last["role"] == "tool":
        return False, f"They say: {said}. {LONG}"
    said = said.lower()
    if "price" in said:
        return False, PRICE
    if re.search(r"saturday|sunday|morning", said):
        return False, SHORT
    return (True, "") if "hours" in said and has_tools else (False, LONG)


def user_line(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the next line of the user that a request has the model play; None for another request."""
    if "pretending to be a user" not in text_of(messages[0]):
        return None
    said = sum(message["role"] == "assistant" for message in messages)
    return USER_LINES[min(said, len(USER_LINES) - 1)]


def text_of(message: Mapping[str, Any]) -> str:
    """Return the words of a message."""
    content = message.get("content")
    if isinstance(content, list):
        return " ".join(str(part.get("text", "")) for part in content)
    return content if isinstance(content, str) else ""


async def complete(request: web.Request) -> web.StreamResponse:
    """Handle ``POST /v1/chat/completions``; a tool is called in a stream only."""
    body = await request.json()
    if not body.get("stream"):
        text = user_line(body["messages"]) or decide(body["messages"], has_tools=False)[1]
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "peer"}
        return web.json_response({**whole, "choices": [choice]})
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    calls, text = decide(body["messages"], has_tools=bool(body.get("tools")))
    # A server that is interrupted closes the request, also before the first word.
    with suppress(ConnectionResetError):
        await response.prepare(request)
        if calls:
            function = {"name": "weather", "arguments": '{"city": "Paris"}'}
            call = {"index": 0, "id": "call_0", "type": "function", "function": function}
            await send_delta(response, {"tool_calls": [call]})
            await send_delta(response, {}, finish="tool_calls")
        else:
            for piece in re.findall(r"\S+\s*", text):
                await send_delta(response, {"content": piece})
                await asyncio.sleep(PIECE_S)
            await send_delta(response, {}, finish="stop")
        await response.write(b"data: [DONE]\n\n")
    return response
