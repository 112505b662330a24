"""Chunks of OpenAI's chat completions, as a streaming server sends them."""

import json
from collections.abc import Mapping

from aiohttp import web


async def send_delta(
    response: web.StreamResponse, delta: Mapping[str, object], *, finish: str | None = None
) -> None:
    """Send one chunk of an answer."""
    chunk = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1_767_600_000,
        "model": "peer",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
    }
    await response.write(f"data: {json.dumps(chunk)}\n\n".encode())
