"""OpenAI's chat completions on loopback: the chunk stream as the provider documents it."""

import json
from typing import Any

from aiohttp import web

from tests.peers.llm_script import ModelServer, Turn, pace


class OpenAiServer(ModelServer):
    """Server of ``POST /v1/chat/completions`` with ``stream: true``."""

    path = "/v1/chat/completions"

    async def stream(self, response: web.StreamResponse, turn: Turn) -> None:
        async def send(choices: list[dict[str, Any]], **more: Any) -> None:
            chunk = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1_767_600_000,
                "model": self.requests[-1]["model"],
                "choices": choices,
                **more,
            }
            await response.write(f"data: {json.dumps(chunk)}\n\n".encode())

        def delta(finish: str | None = None, **content: Any) -> list[dict[str, Any]]:
            return [{"index": 0, "delta": content, "finish_reason": finish, "logprobs": None}]

        await send(delta(role="assistant", content=""))
        if turn.tool is not None:
            call = {"index": 0, "id": "call_1", "type": "function"}
            await send(delta(tool_calls=[{**call, "function": {"name": turn.tool, "arguments": ""}}]))
            await send(delta(tool_calls=[{"index": 0, "function": {"arguments": turn.arguments}}]))
        else:
            for sent, piece in enumerate([*turn.pieces, None]):
                await pace(turn, sent)
                if turn.error_after == sent:
                    error = {"error": {"message": "overloaded", "type": "server_error", "code": None}}
                    await response.write(f"data: {json.dumps(error)}\n\n".encode())
                    return
                if piece is not None:
                    await send(delta(content=piece))
        await send(delta("stop" if turn.tool is None else "tool_calls"))
        if self.requests[-1].get("stream_options", {}).get("include_usage"):
            usage = {
                "prompt_tokens": 12 + turn.cached_tokens,
                "completion_tokens": len(turn.pieces),
                "total_tokens": 12 + turn.cached_tokens + len(turn.pieces),
                "prompt_tokens_details": {"cached_tokens": turn.cached_tokens},
            }
            await send([], usage=usage)
        await response.write(b"data: [DONE]\n\n")

    def whole(self, turn: Turn) -> dict[str, Any]:
        message = {"role": "assistant", "content": "".join(turn.pieces), "refusal": None}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_767_600_000,
            "model": self.requests[-1]["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15},
        }

    def error_body(self, status: int) -> dict[str, Any]:
        return {"error": {"message": "refused", "type": "server_error", "param": None, "code": None}}
