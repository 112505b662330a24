"""Twilio's side of a telephone call, on this machine: requests the TwiML of a call and opens its stream.

A caller (streamdouble) connects to ``Front.url``. For each caller the front posts the webhook, signed by
Twilio's own library, reads the TwiML with an XML parser, and opens the stream in it with a signed upgrade. It
passes messages both ways unchanged, delayed by the time of the way; ``start`` gets the parameters of the
TwiML. Addresses are signed as the public ones, and reached on this machine. A ``clear`` returns the marks
that are still out, as with Twilio but not with streamdouble; later messages of the caller are renumbered.

When a stream ends and its caller has not hung up, the call goes on with the instructions after it, as with
Twilio: a pause, words, a number that is dialled, a request for other instructions. A request that fails (no
connection, another status than 200) is answered by the number's fallback document, or, without one, ends the
call. A fallback document stands for a TwiML Bin, which Twilio serves itself. Audio of the caller between two
streams is lost; each stream has a name and numbers of its own. With ``proxy_s`` a proxy before the server
repeats a refused connection for that time.

The front also simulates a bad line's jitter: each piece of the caller's speech is delayed by a time of its
own, and no piece overtakes another, because a socket keeps the order. The jitter of streamdouble is not used.
It waits inside the loop that sends, 30 ms in the mean for ``jitter_ms=60``, and packets of 20 ms then leave
every 30 ms. That is not jitter, but a caller who speaks at two thirds of the speed.
"""

import asyncio
import json
import random
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from xml.etree import ElementTree

import httpx
from twilio.request_validator import RequestValidator
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed, WebSocketException

from parley.core.errors import PeerError

PUBLIC = "https://talk.example.org"
AUTH_TOKEN = "0123456789abcdef0123456789abcdef"
REQUEST_S = 15.0
# Interval at which a proxy repeats a refused connection.
PROXY_STEP_S = 0.05
# Documents of one call in a row without a stream: a loop of redirections that never ends.
MOST_DOCUMENTS = 200
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

    def cleared(self) -> list[str]:
        """Return the messages that return the marks that are out."""
        names, self.out = list(self.out), {}
        mark = {"event": "mark", "sequenceNumber": "", "streamSid": ""}
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
class _Caller:
    """Caller of one call, over all of its streams.

    Attributes:
        socket: of the caller.
        start: first message of the caller.
        call_sid, stream_sid: as the caller knows them.
        held: messages on their way to the present stream; None between two streams.
        lost: ends the present stream without a word to its server; None between two streams.
        is_connected: true once it has had a stream.
        is_gone: true when the caller has hung up, or the call was redirected.
    """

    socket: ServerConnection
    start: dict[str, Any]
    call_sid: str
    stream_sid: str
    held: Held | None = None
    lost: asyncio.Event | None = None
    is_connected: bool = False
    is_gone: bool = False


@dataclass
class _Stream:
    """Stream of a call: its name, and the numbers of its messages.

    Attributes:
        sid: of the stream.
        is_first: the caller's own numbers hold.
        first: numbers of the caller's first message in this stream: sequence, chunk and time.
    """

    sid: str
    is_first: bool
    first: tuple[int, int, int] | None = None

    def renamed(self, data: str) -> str:
        """Return a message of the caller as one of this stream."""
        message = json.loads(data)
        message["streamSid"] = self.sid
        if self.is_first or message.get("sequenceNumber") in (None, ""):
            return json.dumps(message)
        sequence, media = int(message["sequenceNumber"]), message.get("media")
        if self.first is None:
            chunk, time_ms = (int(media["chunk"]), int(media["timestamp"])) if media else (1, 0)
            self.first = sequence, chunk, time_ms
        # ``start`` is the first message of a stream.
        message["sequenceNumber"] = str(sequence - self.first[0] + 2)
        if media:
            media["chunk"] = str(max(1, int(media["chunk"]) - self.first[1] + 1))
            media["timestamp"] = str(max(0, int(media["timestamp"]) - self.first[2]))
        return json.dumps(message)


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
        fallback: document for a request that fails; empty: the call ends.
        proxy_s: time for which a refused connection is repeated.
        streams: number of streams that were opened.
        said: words of documents that callers heard.
        dialled: numbers to which calls were connected.
        failed: requests that failed.
        hung_up: calls that ended by a document, not by a socket.
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
    fallback: str = ""
    proxy_s: float = 0.0
    streams: int = 0
    said: list[str] = field(default_factory=list)
    dialled: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    hung_up: int = 0
    _calls: dict[str, _Caller] = field(default_factory=dict)
    # Sockets of lost streams, open until the front ends.
    _abandoned: list[ClientConnection] = field(default_factory=list)

    def redirect(self, call_sid: str) -> None:
        """Redirect the call: its stream ends, on both sides."""
        caller = self._calls[call_sid]
        stop = {"event": "stop", "sequenceNumber": "", "streamSid": "", "stop": {"callSid": call_sid}}
        caller.is_gone = True
        if caller.held is not None:
            caller.held.put_nowait((0.0, json.dumps(stop)))
        caller.socket.transport.close()

    def lose_streams(self) -> None:
        """Lose the streams of all calls as a network does: their server is not notified. The calls go on."""
        for caller in self._calls.values():
            if caller.lost is not None:
                caller.lost.set()

    async def close(self) -> None:
        """Close the sockets of lost streams."""
        for socket in self._abandoned:
            await socket.close()

    def headers(self, address: str, form: dict[str, str] | None = None) -> dict[str, str]:
        """Return Twilio's headers of a request."""
        return {"X-Twilio-Signature": RequestValidator(AUTH_TOKEN).compute_signature(address, form or {})}

    async def answer(self, **changed: str) -> str:
        """Post the webhook of a call, with these fields changed; return the TwiML."""
        text = await self._post(f"{PUBLIC}/twilio/voice", changed)
        self.answers.append(text)
        return text

    async def _post(self, address: str, changed: Mapping[str, str]) -> str:
        """Post a webhook; return the answer.

        Raises:
            httpx.HTTPError: it failed.
        """
        form = {
            "AccountSid": "AC" + "1" * 32,
            "CallSid": "CA" + secrets.token_hex(16),
            "From": CALLER,
            "To": CALLED,
            "Direction": self.direction,
            "CallStatus": "ringing",
            **changed,
        }
        headers = self.headers(address, form) | {"Host": urlsplit(PUBLIC).netloc}
        until_s = asyncio.get_running_loop().time() + self.proxy_s
        async with httpx.AsyncClient(timeout=REQUEST_S) as client:
            while True:
                try:
                    answer = await client.post(
                        address.replace(PUBLIC, self.server), data=form, headers=headers
                    )
                    break
                except httpx.ConnectError:
                    if asyncio.get_running_loop().time() >= until_s:
                        raise
                    await asyncio.sleep(PROXY_STEP_S)
        answer.raise_for_status()
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

    async def _serve(self, socket: ServerConnection) -> None:
        connected, start = str(await socket.recv()), json.loads(await socket.recv())
        facts = start["start"]
        caller = _Caller(socket, start, facts["callSid"], start["streamSid"])
        answer = await self.answer(CallSid=caller.call_sid, AccountSid=facts["accountSid"])
        self._calls[caller.call_sid] = caller
        hearing = asyncio.create_task(self._hear(caller), name="front.caller")
        call = asyncio.create_task(self._follow(caller, connected, answer), name="front.call")
        try:
            await asyncio.wait({hearing, call}, return_when=asyncio.FIRST_COMPLETED)
            if hearing.done() and caller.held is not None:
                # What the caller has said is still delivered, and then the end of the stream.
                await asyncio.wait({call}, timeout=REQUEST_S)
        finally:
            for task in (hearing, call):
                task.cancel()
            results = await asyncio.gather(hearing, call, return_exceptions=True)
        for result in results:
            if isinstance(result, Exception):
                raise result

    async def _follow(self, caller: _Caller, connected: str, document: str) -> None:
        """Follow the instructions of a call until it ends."""
        for _ in range(MOST_DOCUMENTS):
            following = ""
            for verb in ElementTree.fromstring(document):
                if caller.is_gone:
                    return
                if verb.tag == "Connect":
                    await self._stream(caller, connected, document)
                elif verb.tag == "Pause":
                    await asyncio.sleep(float(verb.get("length", "1")))
                elif verb.tag == "Say":
                    self.said.append(verb.text or "")
                elif verb.tag == "Dial":
                    self.dialled += [each.text or "" for each in verb]
                elif verb.tag == "Redirect":
                    following = await self._fetch(caller, verb.text or "")
                    break
            if not following:
                self.hung_up += 1
                return
            document = following

    async def _fetch(self, caller: _Caller, address: str) -> str:
        """Return the document of an address, or the fallback where there is one; empty to end the call."""
        try:
            return await self._post(address, {"CallSid": caller.call_sid, "CallStatus": "in-progress"})
        except httpx.HTTPError as error:
            self.failed.append(f"{address}: {error!r}")
            return self.fallback

    async def _stream(self, caller: _Caller, connected: str, document: str) -> None:
        """Connect a caller to the stream of a document until it ends."""
        try:
            socket, parameters = await self.open(document)
        except (OSError, WebSocketException) as error:
            self.failed.append(f"a stream: {error!r}")
            return
        self.streams += 1
        is_first, caller.is_connected = not caller.is_connected, True
        stream = _Stream(caller.stream_sid if is_first else f"MZ{secrets.token_hex(16)}", is_first)
        start = caller.start
        facts = start["start"] | {"customParameters": parameters, "streamSid": stream.sid}
        lost = asyncio.Event()
        try:
            await socket.send(connected)
            await socket.send(json.dumps(start | {"start": facts, "streamSid": stream.sid}))
            held, marks = Held(), _Marks()
            caller.held, caller.lost = held, lost
            tasks = [
                asyncio.create_task(self._hold_back(held, socket, marks, stream), name="front.up"),
                asyncio.create_task(self._down(socket, caller, held, marks), name="front.down"),
                asyncio.create_task(lost.wait(), name="front.lost"),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                caller.held = caller.lost = None
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
        finally:
            if lost.is_set():
                self._abandoned.append(socket)
            else:
                await socket.close()

    async def _hear(self, caller: _Caller) -> None:
        """Pass the caller's messages on to the present stream; between two of them they are lost."""
        due_s = 0.0
        try:
            async for data in caller.socket:
                if caller.held is None:
                    continue
                late_s = self.dice.uniform(0, self.jitter_ms) / 1000 if self.jitter_ms else 0.0
                due_s = max(due_s, asyncio.get_running_loop().time() + self.back_s + late_s)
                caller.held.put_nowait((due_s, data))
        except ConnectionClosed:
            pass
        caller.is_gone = True
        if caller.held is not None:
            caller.held.put_nowait(None)

    async def _hold_back(self, held: Held, socket: ClientConnection, marks: _Marks, stream: _Stream) -> None:
        loop = asyncio.get_running_loop()
        try:
            while (next_one := await held.get()) is not None:
                due_s, data = next_one
                if due_s > loop.time():
                    await asyncio.sleep(due_s - loop.time())
                named = stream.renamed(data) if isinstance(data, str) else data
                passed = marks.numbered(named) if isinstance(named, str) else named
                if passed is not None:
                    await socket.send(passed)
        except ConnectionClosed:
            return

    async def _down(self, socket: ClientConnection, caller: _Caller, held: Held, marks: _Marks) -> None:
        try:
            async for data in _later(socket, self.there_s):
                if not isinstance(data, str):
                    self.violations.append("a binary message")
                    continue
                message = json.loads(data)
                self.from_server.append(message)
                if message.get("event") == "mark":
                    marks.out[message["mark"]["name"]] = None
                await caller.socket.send(json.dumps(message | {"streamSid": caller.stream_sid}))
                if message.get("event") == "clear":
                    back_s = asyncio.get_running_loop().time() + self.back_s
                    for mark in marks.cleared():
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
        try:
            yield front
        finally:
            await front.close()
