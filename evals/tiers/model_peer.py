"""Language model that asks for what its prompt does not hold: OpenAI's chat completions, on loopback.

It is independent of the expectations of the evaluation. It searches its prompt for "my city is Oslo" in words
of the person, and for "- city: Oslo" in notes, and asks for the first of ``SLOTS`` that it does not find.
Asked what it knows, it says all of it. A fact that a change of the tier loses is therefore asked again.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

SLOTS = ("city", "street", "branch", "plan", "card", "bank")
_STATED = re.compile(rf"(?:\bmy ({'|'.join(SLOTS)}) is|- ({'|'.join(SLOTS)}):) (\w+)", re.IGNORECASE)
_QUESTION = re.compile(rf"\bWhat is your ({'|'.join(SLOTS)})\?")
_ALL = re.compile(r"\bwhat do you know\b", re.IGNORECASE)
NOTHING_LEFT = "Thank you, that is all I need."


def stated(text: str) -> dict[str, str]:
    """Return the facts in a text, by slot; the later one counts."""
    return {(mine or noted).lower(): value.lower() for mine, noted, value in _STATED.findall(text)}


def question(slot: str) -> str:
    """Return the question for a slot."""
    return f"What is your {slot}?"


def asked_in(text: str) -> list[str]:
    """Return the slots for which a text asks."""
    return _QUESTION.findall(text)


def answer(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the answer to a prompt."""
    said = [words_of(message["content"]) for message in messages if message["role"] == "user"]
    known = stated("\n".join(said))
    if said and _ALL.search(said[-1].splitlines()[-1]):
        return f"I know this: {', '.join(f'your {slot} is {value}' for slot, value in known.items())}."
    missing = next((slot for slot in SLOTS if slot not in known), None)
    return NOTHING_LEFT if missing is None else question(missing)


def words_of(content: str | Sequence[Mapping[str, Any]]) -> str:
    """Return the words of a message, without its pictures."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part["type"] == "text")


def known_in(text: str) -> dict[str, str]:
    """Return what an answer says that the model knows."""
    return dict(re.findall(r"your (\w+) is (\w+)", text))


async def complete(request: web.Request) -> web.StreamResponse:
    """Handle ``POST /v1/chat/completions`` with ``stream: true``."""
    body = await request.json()
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for delta, finish in (({"content": answer(body["messages"])}, None), ({}, "stop")):
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        chunk = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "peer"}
        await response.write(f"data: {json.dumps({**chunk, 'choices': [choice]})}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    return response
