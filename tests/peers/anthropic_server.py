"""Anthropic's Messages API on loopback: the event stream as the provider documents it."""

import json
from typing import Any

from aiohttp import web

from tests.peers.llm_script import ModelServer, Turn, pace

_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class AnthropicServer(ModelServer):
    """Server of ``POST /v1/messages`` with ``stream: true``."""

    path = "/v1/messages"

    async def stream(self, response: web.StreamResponse, turn: Turn) -> None:
        async def send(kind: str, **data: Any) -> None:
            body = json.dumps({"type": kind, **data})
            await response.write(f"event: {kind}\ndata: {body}\n\n".encode())

        usage = {
            "input_tokens": 12,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": turn.cached_tokens,
            "output_tokens": 1,
        }
        await send(
            "message_start",
            message={
                "id": "msg_01",
                "type": "message",
                "role": "assistant",
                "model": self.requests[-1]["model"],
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": usage,
            },
        )
        await send("ping")
        if turn.tool is not None:
            await self._call_tool(send, turn.tool)
        else:
            await send("content_block_start", index=0, content_block={"type": "text", "text": ""})
            for sent, piece in enumerate([*turn.pieces, None]):
                await pace(turn, sent)
                if turn.error_after == sent:
                    await send("error", error={"type": "overloaded_error", "message": "Overloaded"})
                    return
                if piece is not None:
                    await send("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
        await send("content_block_stop", index=0)
        await send(
            "message_delta",
            delta={"stop_reason": "end_turn" if turn.tool is None else "tool_use", "stop_sequence": None},
            usage={**usage, "output_tokens": 1 + len(turn.pieces)},
        )
        await send("message_stop")

    async def _call_tool(self, send: Any, name: str) -> None:
        block = {"type": "tool_use", "id": "toolu_01", "name": name, "input": {}}
        await send("content_block_start", index=0, content_block=block)
        for part in ("{", "}"):
            await send(
                "content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": part}
            )

    def whole(self, turn: Turn) -> dict[str, Any]:
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": self.requests[-1]["model"],
            "content": [{"type": "text", "text": "".join(turn.pieces)}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 12, "output_tokens": 3},
        }

    def error_body(self, status: int) -> dict[str, Any]:
        return {"type": "error", "error": {"type": _ERRORS[status], "message": "refused"}}
