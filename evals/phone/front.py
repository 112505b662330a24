"""Twilio's side of a telephone call, on this machine: asks what to do with the call, and opens the stream.

A caller (streamdouble) connects to ``Front.url``. For each the front posts the webhook, signed by Twilio's
own library, reads the TwiML with an XML parser, opens the stream that it names with a signed upgrade, and
passes messages both ways as they are, after the time of the way; ``start`` gets the parameters of the TwiML.
Addresses are signed as the public ones, and reached on this machine. A ``clear`` returns the marks that are
still out, as Twilio does and streamdouble does not; what the caller sends is numbered anew behind them.

It is a bad line's jitter too: what the caller says is held back for a time of its own, piece by piece, and
no piece overtakes another, because a socket keeps the order. streamdouble's own jitter is not taken: it
waits inside of the loop that sends, 30 ms in the mean for ``jitter_ms=60``, and packets of 20 ms then leave
one each 30 ms. That is no jitter, that is a caller who speaks at two thirds of the speed.
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

from core.errors import PeerError

PUBLIC = "https://talk.example.org"
AUTH_TOKEN = "0123456789abcdef0123456789abcdef"
CALLER, CALLED = "+15550100", "+15550199"


Held = asyncio.Queue[tuple[float, str | bytes] | None]


@dataclass
class _Marks:
    """Of one stream.

    Attributes:
        out: that the server has sent, in order, and that have not come back.
        returned: by a ``clear``.
        number: of the last message to the server.
    """

    out: dict[str, None] = field(default_factory=dict)
    returned: int = 0
    number: int = 1

    def cleared(self, stream_sid: object) -> list[str]:
        """The messages that return what is out."""
        names, self.out = list(self.out), {}
        mark = {"event": "mark", "sequenceNumber": "", "streamSid": stream_sid}
        return [json.dumps({**mark, "mark": {"name": name}}) for name in names]

    def numbered(self, data: str) -> str | None:
        """What the caller sends, with its place in what the server gets; None: it has been returned."""
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
    """Of one server.

    Attributes:
        server: its address on this machine.
        url: where callers connect.
        there_s, back_s: of the way from the server to the caller, and of the other.
        answers: TwiML of each call, in order.
        violations: what was wrong with an answer, or with what was sent to the caller.
        from_server: messages that the server sent, all calls together.
        direction: who placed the calls, as Twilio says it.
        jitter_ms: a piece of what a caller says is held back for 0 to this.
        dice: draw how long.
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
        """The call goes on elsewhere: its stream is over, on both sides."""
        caller, held, stream_sid = self._calls[call_sid]
        stop = {"event": "stop", "sequenceNumber": "", "streamSid": stream_sid, "stop": {"callSid": call_sid}}
        held.put_nowait((0.0, json.dumps(stop)))
        caller.transport.close()

    def headers(self, address: str, form: dict[str, str] | None = None) -> dict[str, str]:
        """What Twilio shows for a request."""
        return {"X-Twilio-Signature": RequestValidator(AUTH_TOKEN).compute_signature(address, form or {})}

    async def answer(self, **changed: str) -> str:
        """Posts the webhook of a call, with these fields changed; the TwiML."""
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
        """The stream that an answer asks for, and its parameters."""
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
    """What comes, so much later than it did and in its order."""
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
    """A front of the server at this address."""
    front = Front(server)
    async with serve(front._serve, "127.0.0.1", 0, max_size=None) as listening:
        port = next(iter(listening.sockets)).getsockname()[1]
        front.url = f"ws://127.0.0.1:{port}"
        yield front
