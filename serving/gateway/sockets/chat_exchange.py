"""Request of ``POST /api/chat`` and its answer, as the other side of a socket.

Input: the body of a request, and the messages that a client of ``/ws/chat`` would read. Output: the one
object that the MiniCPM-o server answers, or the status and the reason of a failure. The conversation itself
is that of ``/ws/chat`` (``pipelines.sockets.chat_sockets``), for which this is a client that sends a single
message. A client that leaves is reported as gone, which ends the model.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from parley.protocols.chat_ws import VOICE_RATE_HZ

# JSON of this length takes a third of a millisecond.
LARGE_CHARS = 100_000
# Fields of the messages to a client of ``/ws/chat`` that the answer has too, where they are there.
KEPT = ("unused", "next_token", "passages", "voice_error", "stopped", "held", "recording_session_id")
_STATUS_OF_CODE = {"too_large": 413, "rate_limit_exceeded": 429, "session_lost": 409}
# Close codes of ``/ws/chat``: the server is full, or stops; the client was ended; it cannot be served here.
_STATUS_OF_CLOSE = {1013: 503, 1012: 503, 1008: 403, 1003: 422}


class ChatExchange:
    """Exchange of one request, as ``SocketPeer``.

    Args:
        text: body of the request.

    Attributes:
        came_s: when it came, on the loop's clock.
    """

    def __init__(self, text: str) -> None:
        self.came_s = asyncio.get_running_loop().time()
        self._text: str | None = text
        self._began_s = self.came_s
        self._over = asyncio.Event()
        self._facts: dict[str, Any] = {}
        self._cached_tokens: int | None = None
        self._done: dict[str, Any] | None = None
        self._error: dict[str, Any] = {}
        self._close: tuple[int, str] = (1000, "")

    def begin(self) -> None:
        """Note that the request is taken up: until now it waited."""
        self._began_s = asyncio.get_running_loop().time()

    def leave(self) -> None:
        """Report the client as gone."""
        self._over.set()

    # Methods of ``transports.websocket.session.SocketPeer``.

    async def receive(self) -> str | None:
        """Return the request, and then None when the client has left or the request is refused."""
        text, self._text = self._text, None
        if text is None:
            await self._over.wait()
        return text

    async def send(self, text: str) -> bool:
        """Take a message to the client; return whether it is still there."""
        is_large = len(text) > LARGE_CHARS
        message = await asyncio.to_thread(json.loads, text) if is_large else json.loads(text)
        match message["type"]:
            case "prefill_done":
                self._cached_tokens = message["cached_tokens"]
            case "done":
                self._done = message
            case "error":
                self._error = message
                # Nothing else comes over this exchange.
                self._over.set()
        self._facts |= {name: message[name] for name in KEPT if name in message}
        return message["type"] == "error" or not self._over.is_set()

    async def close(self, code: int, reason: str) -> None:
        """Note how the conversation has ended."""
        self._close = code, reason

    # Answer.

    def answer(self) -> dict[str, Any] | None:
        """Return the answer, as that server's ``ChatResponse`` and with our own fields; None for none."""
        done = self._done
        if done is None:
            return None
        read, generated = done["input_tokens"], done["generated_tokens"]
        counts = {
            "cached_tokens": self._cached_tokens,
            "input_tokens": read,
            "generated_tokens": generated,
        }
        now_s = asyncio.get_running_loop().time()
        return {
            "text": done["text"],
            "audio_data": done.get("audio_data") or None,
            "audio_sample_rate": VOICE_RATE_HZ,
            "tokens_generated": generated,
            "duration_ms": round((now_s - self._began_s) * 1000, 1),
            # A table of numbers in that server's schema: it is there when all of them are known.
            "token_stats": None if None in counts.values() else counts,
            "recording_session_id": None,
            "success": True,
            "error": None,
            "queue_wait_ms": round((self._began_s - self.came_s) * 1000, 1),
            # Language models run in the server's process: no request waits for one.
            "estimated_queue_wait_s": 0.0,
            "session_id": done["session_id"],
            **self._facts,
        }

    def failure(self) -> tuple[int, Mapping[str, Any]]:
        """Return status and body of the answer to a request without one."""
        code = str(self._error.get("code", ""))
        status = _STATUS_OF_CODE.get(code) or _STATUS_OF_CLOSE.get(self._close[0]) or (422 if code else 500)
        message = str(self._error.get("error") or self._close[1] or "no answer was made")
        return status, refusal_body(message, code)


def refusal_body(message: str, code: str = "") -> dict[str, Any]:
    """Return the body of a refusal: the reason under our name and under that server's."""
    return {"error": message, "detail": message, **({"code": code} if code else {})}
