"""Client of a conversation whose server may die at any moment: by text, and in a call of the same session.

It records the server's acknowledgements. A typed turn that was under way at a kill is kept with its key, so
that it can be sent again. The call's client is the one of ``evals.latency``.
"""

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from parley.core.errors import PeerError
from parley.evals.crash.model_peer import QUESTION
from parley.evals.crash.phases import Phase, Progress
from parley.evals.crash.statements import TEXT, Statement, heard_replies, spoken_turns
from parley.evals.harness.questions import COURTESY, LONG_ANSWERS, Utterance
from parley.evals.harness.speech import Speakers, Spoken
from parley.evals.harness.webrtc_caller import Line, now_us

REQUEST_S = 30.0
VOICE = ("flite", "rms")
SPOKEN_QUESTION = "what is my code"
# A recogniser may mishear; the recognised question is checked before the answer.
ATTEMPTS = 3
GREETING_MS = 10_000
ANSWER_MS = 8_000
REPLY_MS = 30_000
QUIET_MS = 700
RECORD_S = 3.0


@dataclass
class Talk:
    """State of one session at the client.

    Attributes:
        session_id: of the session.
        code: the fact.
        stated: acknowledgements of the server, in order.
        unanswered: the typed turn under way, with its key.
        settled_us: when the newest acknowledged turn had been sent, on the client's clock.
        line: the present call.
        unsettled: replies heard so shortly before a kill that they were not promised yet.
    """

    session_id: str
    code: str
    stated: list[Statement] = field(default_factory=list)
    unanswered: tuple[str, str] | None = None
    settled_us: int = 0
    line: Line | None = None
    unsettled: list[Statement] = field(default_factory=list)

    async def over(self) -> None:
        """Record the statements of the call, and release it: the call or its server has ended."""
        line, self.line = self.line, None
        if line is None:
            return
        settled, unsettled = heard_replies(line.messages, settled_us=self.settled_us)
        self.stated += [*spoken_turns(line.messages), *settled]
        self.unsettled += unsettled
        # Closing the connection of a dead peer may take aiortc longer than the deadline.
        with suppress(TimeoutError):
            await line.hang_up()


async def new_session(client: aiohttp.ClientSession) -> str:
    """Create a session; return its id."""
    async with client.post("/api/sessions") as response:
        if response.status != 201:
            raise PeerError(f"no session: {response.status}")
        return str((await response.json())["id"])


async def say(
    client: aiohttp.ClientSession,
    talk: Talk,
    text: str,
    *,
    key: str | None = None,
    progress: Progress | None = None,
) -> str:
    """Send a typed turn and record its acknowledgements; return the answer.

    Args:
        client: of the server.
        talk: the session.
        text: unique in it.
        key: of a turn that is sent again.
        progress: notified of each phase of the turn.

    Raises:
        aiohttp.ClientError: the server is gone.
        PeerError: it refused.
    """
    enter = progress.enter if progress is not None else lambda _phase: None
    key = key or uuid.uuid4().hex
    talk.unanswered = (text, key)
    sent_us = now_us()
    answer: str | None = None
    enter(Phase.SENDING)
    url = f"/api/sessions/{talk.session_id}/messages"
    async with client.post(url, json={"text": text}, headers={"Idempotency-Key": key}) as response:
        if response.status != 200:
            raise PeerError(f"{response.status}: {await response.text()}")
        talk.stated.append(Statement("200", "typed", "user_turn", {"key": key, "text": text}))
        talk.settled_us = sent_us
        async for name, data in _events(response):
            if name == "error":
                raise PeerError(data["error"])
            if name == "turn":
                fields = {"seq": data["seq"], "text": data["text"], "key": key, "transport": TEXT}
                talk.stated.append(Statement("turn", "typed", "user_turn", fields))
                enter(Phase.COMMITTED)
            elif name == "delta" and answer is None:
                answer = ""
                enter(Phase.ANSWERING)
            elif name == "done":
                answer = str(data["text"])
                fields = {"seq": data["seq"], "text": answer, "truncated": False, "transport": TEXT}
                talk.stated.append(Statement("done", "typed", "bot_turn", fields))
                talk.unanswered = None
    if talk.unanswered is not None:
        raise aiohttp.ClientPayloadError("the stream ended early")
    enter(Phase.BETWEEN)
    assert answer is not None
    return answer


@asynccontextmanager
async def server_client(url: str) -> AsyncIterator[aiohttp.ClientSession]:
    """Open a client of a server."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_S)
    async with aiohttp.ClientSession(url, timeout=timeout) as client:
        yield client


class Voice:
    """Spoken questions of the client's calls.

    Args:
        cache: folder for the sound.
    """

    def __init__(self, cache: Path) -> None:
        speakers = Speakers(cache)

        def speak(text: str) -> Spoken:
            engine, voice = VOICE
            return speakers.speak(Utterance((text,), 0, engine, voice, 0))

        self.question = speak(SPOKEN_QUESTION)
        # Six seconds without a pause: a kill interrupts the speech.
        self.long = speak(f"{COURTESY} {LONG_ANSWERS[0]}")
        self.short = speak(LONG_ANSWERS[0])


async def dial(client: aiohttp.ClientSession, url: str, talk: Talk) -> Line:
    """Place a call of the session; return when the greeting is over.

    Raises:
        PeerError: it does not connect, or there is no greeting.
    """
    async with client.post("/start", json={"body": {"session": talk.session_id}}) as response:
        if response.status != 200:
            raise PeerError(f"no call: {response.status}")
        started = (await response.json())["sessionId"]
    line = talk.line = Line(f"{url}/sessions/{started}")
    await line.dial()
    if not await line.wait_bot_audible(line.connected_us, GREETING_MS):
        raise PeerError("a call got no greeting")
    await line.wait_bot_quiet(QUIET_MS, REPLY_MS)
    return line


async def ask_for_code(line: Line, voice: Voice) -> str | None:
    """Ask by voice until the question is recognised; return the answer that was heard, None
    without success.
    """
    for _ in range(ATTEMPTS):
        known = len(line.messages)
        await line.microphone.speak(voice.question)
        if await line.wait_bot_audible(now_us(), ANSWER_MS):
            await line.wait_bot_quiet(QUIET_MS, REPLY_MS)
        heard = await _heard_since(line, known)
        understood = " ".join(
            str(message.body["data"]["text"])
            for message in line.messages[known:]
            if message.body.get("type") == "user-transcription" and message.body["data"].get("final")
        )
        if QUESTION.search(understood):
            return heard
    return None


async def _heard_since(line: Line, known: int) -> str:
    """Return the text heard of the replies since a message, as soon as there is one."""
    deadline_s = time.monotonic() + RECORD_S
    while True:
        settled, _ = heard_replies(line.messages[known:], settled_us=now_us())
        if settled or time.monotonic() > deadline_s:
            return " ".join(str(statement.fields["text"]) for statement in settled)
        await asyncio.sleep(0.05)


async def _events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Yield server-sent events."""
    name = ""
    async for raw in response.content:
        line = raw.decode().rstrip("\n")
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))
