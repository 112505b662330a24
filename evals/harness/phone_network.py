"""Twilio's side of a telephone call, on this machine: requests the TwiML of a call and opens its stream.

A caller (streamdouble) connects to ``Front.url``. For each caller the front posts the webhook, signed by
Twilio's own library, reads the TwiML with an XML parser, and opens the stream in it with a signed upgrade. It
passes messages both ways unchanged, delayed by the time of the way; ``start`` gets the parameters of the
TwiML. Addresses are signed as the public ones, and reached on this machine. A ``clear`` returns the marks
that are still out, as with Twilio but not with streamdouble; later messages of the caller are renumbered.

The front also simulates a bad line's jitter: each piece of the caller's speech is delayed by a time of its
own, and no piece overtakes another, because a socket keeps the order. The jitter of streamdouble is not used.
It waits inside the loop that sends, 30 ms in the mean for ``jitter_ms=60``, and packets of 20 ms then leave
every 30 ms. That is not jitter, but a caller who speaks at two thirds of the speed.
"""

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx
from twilio.request_validator import RequestValidator
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from parley.core.errors import PeerError

PUBLIC = "https://talk.example.org"
AUTH_TOKEN = "0123456789abcdef0123456789abcdef"
CALLER, CALLED = "+15550100", "+15550199"


Held = asyncio.Queue[tuple[float, str | bytes] | None]


@dataclass
class _Marks:
    """Marks of a stream.

    Attributes:
        out: marks sent by the server, in order, that have not come back.
        returned: number of marks returned by a ``clear``.
        number: of the last message to the server.
    """

    out: dict[str, None] = field(default_factory=dict)
    returned: int = 0
    number: int = 1

    def cleared(self, stream_sid: object) -> list[str]:
        """Return the messages that return the marks that are out."""
        names, self.out = list(self.out), {}
        mark = {"event": "mark", "sequenceNumber": "", "streamSid": stream_sid}
        return [json.dumps({**mark, "mark": {"name": name}}) for name in names]

    def numbered(self, data: str) -> str | None:
        """Renumber a message of the caller for the server; return None for a mark that was
        returned already.
        """
        message = json.loads(data)
        given = message.get("sequenceNumber")
        if given is None:
            return data
        if given == "":
            self.returned += 1
            self.number += 1
        elif message["event"] == "mark" and message["mark"]["name"] not in self.out:
            self.returned -= 1
            return None
        else:
            self.number = int(given) + self.returned
            if message["event"] == "mark":
                del self.out[message["mark"]["name"]]
        return json.dumps({**message, "sequenceNumber": str(self.number)})


@dataclass
class Front:
    """Twilio's side of the calls to one server.

    Attributes:
        server: its address on this machine.
        url: address for callers.
        there_s: delay of the way from the server to the caller.
        back_s: delay of the way from the caller to the server.
        answers: TwiML of each call, in order.
        violations: faults in an answer, or in the messages to the caller.
        from_server: messages of the server, all calls together.
        direction: direction of the calls, in Twilio's words.
        jitter_ms: a piece of the caller's speech is delayed by 0 to this.
        dice: draws the delays.
    """

    server: str
    url: str = ""
    jitter_ms: float = 0.0
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    there_s: float = 0.0
    back_s: float = 0.0
    answers: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    from_server: list[dict[str, object]] = field(default_factory=list)
    direction: str = "inbound"
    _calls: dict[str, tuple[ServerConnection, Held, str]] = field(default_factory=dict)

    def redirect(self, call_sid: str) -> None:
        """Redirect the call: its stream ends, on both sides."""
        caller, held, stream_sid = self._calls[call_sid]
        stop = {"event": "stop", "sequenceNumber": "", "streamSid": stream_sid, "stop": {"callSid": call_sid}}
        held.put_nowait((0.0, json.dumps(stop)))
        caller.transport.close()

    def headers(self, address: str, form: dict[str, str] | None = None) -> dict[str, str]:
        """Return Twilio's headers of a request."""
        return {"X-Twilio-Signature": RequestValidator(AUTH_TOKEN).compute_signature(address, form or {})}

    async def answer(self, **changed: str) -> str:
        """Post the webhook of a call, with these fields changed; return the TwiML."""
        form = {
            "AccountSid": "AC" + "1" * 32,
            "CallSid": "CA" + secrets.token_hex(16),
            "From": CALLER,
            "To": CALLED,
            "Direction": self.direction,
            "CallStatus": "ringing",
        } | changed
        headers = self.headers(f"{PUBLIC}/twilio/voice", form) | {"Host": urlsplit(PUBLIC).netloc}
        async with httpx.AsyncClient(timeout=15) as client:
            answer = await client.post(f"{self.server}/twilio/voice", data=form, headers=headers)
        answer.raise_for_status()
        self.answers.append(answer.text)
        return answer.text

    async def open(self, twiml: str) -> tuple[ClientConnection, dict[str, str]]:
        """Open the stream of an answer; return it and its parameters."""
        response = ElementTree.fromstring(twiml)
        stream = response.find("./Connect/Stream")
        if stream is None:
            raise PeerError(f"the answer opens no stream: {twiml[:300]}")
        address = stream.attrib["url"]
        if not address.startswith("wss://") or "?" in address:
            self.violations.append(f"the address of a stream: {address}")
        parameters = {each.attrib["name"]: each.attrib["value"] for each in stream.findall("Parameter")}
        here = urlsplit(self.server)
        stream_of = connect(
            address.replace("wss://", "ws://"),
            host=here.hostname,
            port=here.port,
            additional_headers=self.headers(address),
            max_size=None,
        )
        return await stream_of, parameters

    async def _serve(self, caller: ServerConnection) -> None:
        connected, start = str(await caller.recv()), json.loads(await caller.recv())
        told = start["start"]
        answer = await self.answer(CallSid=told["callSid"], AccountSid=told["accountSid"])
        stream, told["customParameters"] = await self.open(answer)
        async with stream:
            await stream.send(connected)
            await stream.send(json.dumps(start))
            held, marks = Held(), _Marks()
            self._calls[told["callSid"]] = caller, held, start["streamSid"]
            up = asyncio.create_task(self._up(caller, stream, held, marks))
            down = asyncio.create_task(self._down(stream, caller, held, marks))
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)

    async def _up(
        self, caller: ServerConnection, stream: ClientConnection, held: Held, marks: _Marks
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._hold_back(held, stream, marks), name="front.up")
            due_s = 0.0
            try:
                async for data in caller:
                    late_s = self.dice.uniform(0, self.jitter_ms) / 1000 if self.jitter_ms else 0.0
                    due_s = max(due_s, asyncio.get_running_loop().time() + self.back_s + late_s)
                    held.put_nowait((due_s, data))
            except ConnectionClosed:
                pass
            held.put_nowait(None)

    async def _hold_back(self, held: Held, stream: ClientConnection, marks: _Marks) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (next_one := await held.get()) is not None:
                due_s, data = next_one
                if due_s > loop.time():
                    await asyncio.sleep(due_s - loop.time())
                passed = marks.numbered(data) if isinstance(data, str) else data
                if passed is not None:
                    await stream.send(passed)
        except ConnectionClosed:
            return

    async def _down(
        self, stream: ClientConnection, caller: ServerConnection, held: Held, marks: _Marks
    ) -> None:
        try:
            async for data in _later(stream, self.there_s):
                if not isinstance(data, str):
                    self.violations.append("a binary message")
                    continue
                message = json.loads(data)
                self.from_server.append(message)
                if message.get("event") == "mark":
                    marks.out[message["mark"]["name"]] = None
                await caller.send(data)
                if message.get("event") == "clear":
                    back_s = asyncio.get_running_loop().time() + self.back_s
                    for mark in marks.cleared(message.get("streamSid")):
                        held.put_nowait((back_s, mark))
        except ConnectionClosed:
            return


async def _later(socket: ServerConnection | ClientConnection, by_s: float) -> AsyncIterator[str | bytes]:
    """Yield the messages of a socket, delayed by ``by_s`` and in order."""
    now_s = asyncio.get_running_loop().time
    came: asyncio.Queue[tuple[float, str | bytes] | None] = asyncio.Queue()

    async def read() -> None:
        try:
            async for data in socket:
                came.put_nowait((now_s() + by_s, data))
        finally:
            came.put_nowait(None)

    reading = asyncio.create_task(read())
    try:
        while (next_ := await came.get()) is not None:
            at_s, data = next_
            if at_s > now_s():
                await asyncio.sleep(at_s - now_s())
            yield data
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


@asynccontextmanager
async def front_of(server: str) -> AsyncIterator[Front]:
    """Run a front of the server at this address until the end of the context."""
    front = Front(server)
    async with serve(front._serve, "127.0.0.1", 0, max_size=None) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        front.url = f"ws://127.0.0.1:{port}"
        yield front
