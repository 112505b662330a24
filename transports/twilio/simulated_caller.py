"""Simulation of Twilio and a caller: one phone call over the real webhook and the real socket.

Inputs: the address of a server on this machine that checks no signatures, and the caller's speech. Output:
the audio that the caller received, on one time line, with the server's violations of the protocol. The
webhook is posted as Twilio posts it, the stream that the answer requests is opened, and a packet goes out
every 20 ms. The server's audio is played in real time. A mark goes back when the audio before it has been
played; ``clear`` drops unplayed audio and sends its marks back at once.

The caller lets the bot greet, says everything, listens until the bot has been silent for ``tail_ms``, and
hangs up. A server that checks signatures is reached with a signature for each address (``sign``), by its
public address or, as behind its proxy, by a local one. Owns two tasks while the call lasts: the receiver, and
the clock of the line.
"""

import asyncio
import base64
import secrets
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlencode
from xml.etree import ElementTree

import numpy as np
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException

from parley.audio import g711
from parley.core.errors import PeerError
from parley.protocols.twilio_media import ENCODING, PACKET_BYTES, PACKET_MS, RATE_HZ, SILENCE
from parley.recording.stereo import Side, StereoRecording
from parley.runtime.loop_clock import LoopClock

CALLER, CALLED = "+15550100", "+15550199"
# Between comfort noise (66 dB under full scale) and the softest of a voice.
VOICE_RMS = 10 ** (-46 / 20) * 32_768
SETTLE_MS = 500
POST_S, OPEN_S, CLOSE_S = 15.0, 10.0, 5.0
WRITE_PACKETS = 250


# Returns the headers of a request to an address with the fields of a form.
Sign = Callable[[str, Mapping[str, str]], Mapping[str, str]]


def _unsigned(_address: str, _form: Mapping[str, str]) -> Mapping[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Caller:
    """Behaviour of a caller.

    Attributes:
        number, called: the two numbers, as the webhook has them.
        patience_ms: time for which the caller waits for a greeting to begin.
        tail_ms: silence of the bot after which the caller hangs up.
        limit_ms: longest call beyond the caller's speech.
        keys: keys that the caller presses before speaking, 200 ms apart.
        listens_only: hang up as soon as the bot has spoken.
    """

    number: str = CALLER
    called: str = CALLED
    patience_ms: int = 3_000
    tail_ms: int = 3_000
    limit_ms: int = 120_000
    keys: str = ""
    listens_only: bool = False


@dataclass
class SimulatedCallResult:
    """Result of a call.

    Attributes:
        ended: side that ended it: "caller", "server".
        duration_ms: length of the call.
        voice_at_ms: when the bot was first heard; None: it was not.
        marks: number of marks sent back as played.
        clears: number of ``clear`` messages received.
        violations: messages of the server that do not follow the protocol.
    """

    ended: str = "caller"
    duration_ms: int = 0
    voice_at_ms: int | None = None
    marks: int = 0
    clears: int = 0
    violations: list[str] = field(default_factory=list)


class SimulatedCall:
    """Simulated call to a server.

    Args:
        server: ``http://HOST:PORT``.
        speech: speech of the caller, mu-law at 8 kHz.
        caller: behaviour of the caller.
        recording: takes both sides, at 8 kHz; None for none. Closed by its owner.
        sign: returns the headers of a request to an address with a form; None: nothing is signed.
        public_url: address that the server has for the network, where that is not ``server``.
    """

    def __init__(
        self,
        server: str,
        speech: bytes,
        *,
        caller: Caller | None = None,
        recording: StereoRecording | None = None,
        sign: Sign | None = None,
        public_url: str | None = None,
    ) -> None:
        self._server, self._speech = server.rstrip("/"), speech
        self._sign = sign or _unsigned
        self._public_url = self._server if public_url is None else public_url.rstrip("/")
        self._caller = caller or Caller()
        self._recording = recording
        self._clock = LoopClock()
        self._call_sid, self._stream_sid = _sid("CA"), _sid("MZ")
        self._sequence = 0
        # Audio that the bot sent and that is not played yet, and names of marks.
        self._line: deque[bytes | str] = deque()
        self._voice_until_ms: int | None = None
        self.heard = SimulatedCallResult()

    async def hold(self) -> SimulatedCallResult:
        """Call, talk, listen and hang up; return the result.

        Raises:
            PeerError: the server does not answer, refuses the call, or requests something other than a
                stream.
        """
        address, parameters = _stream_of(await asyncio.to_thread(self._ask))
        try:
            socket = await connect(
                self._local(address),
                additional_headers=self._sign(address, {}),
                open_timeout=OPEN_S,
                close_timeout=CLOSE_S,
                max_size=2**20,
            )
        except (OSError, TimeoutError, WebSocketException) as error:
            raise PeerError(f"cannot open the stream of the call: {error}") from error
        try:
            receiving = asyncio.create_task(self._receive(socket), name="caller.ear")
            talking = asyncio.create_task(self._talk(socket, parameters), name="caller.line")
            await asyncio.wait({receiving, talking}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done():
                self.heard.ended = "server"
            for task in (receiving, talking):
                task.cancel()
            results = await asyncio.gather(receiving, talking, return_exceptions=True)
        finally:
            await socket.close()
        for result in results:
            if isinstance(result, Exception) and not isinstance(result, ConnectionClosed):
                raise result
            if isinstance(result, ConnectionClosed):
                self.heard.ended = "server"
        return self.heard

    # The call.

    def _ask(self) -> str:
        form = {
            "AccountSid": "AC" + "0" * 32,
            "CallSid": self._call_sid,
            "From": self._caller.number,
            "To": self._caller.called,
            "Direction": "inbound",
            "CallStatus": "ringing",
        }
        headers = dict(self._sign(f"{self._public_url}/twilio/voice", form))
        request = urllib.request.Request(
            f"{self._server}/twilio/voice", urlencode(form).encode(), headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=POST_S) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            raise PeerError(f"the server answered the call with {error.code} {error.reason}") from error
        except OSError as error:
            raise PeerError(f"the server did not answer the call: {error}") from error

    def _local(self, address: str) -> str:
        """Return the address at which a stream is reached here."""
        public, local = (each.split("://", 1)[1] for each in (self._public_url, self._server))
        scheme, rest = address.split("://", 1)
        if public == local or not rest.startswith(f"{public}/"):
            return address
        scheme = "wss" if self._server.startswith("https://") else "ws"
        return f"{scheme}://{local}{rest.removeprefix(public)}"

    async def _talk(self, socket: ClientConnection, parameters: Mapping[str, str]) -> None:
        await self._send(socket, {"event": "connected", "protocol": "Call", "version": "1.0.0"})
        await self._send(socket, self._start(parameters), is_counted=True)
        said, keys, is_speaking, said_ms = 0, deque(self._caller.keys), False, None
        started_ms = self._clock.now_ms()
        packets = 0
        while True:
            at_ms = packets * PACKET_MS
            await self._clock.sleep_until_ms(started_ms + at_ms + PACKET_MS)
            self.heard.duration_ms = at_ms + PACKET_MS
            is_speaking = is_speaking or self._is_asked(at_ms)
            packet = SILENCE * PACKET_BYTES
            if is_speaking and keys:
                if packets % 10 == 0:
                    await self._press(socket, keys.popleft())
            elif is_speaking and said < len(self._speech):
                packet = self._speech[said : said + PACKET_BYTES].ljust(PACKET_BYTES, SILENCE)
                said += PACKET_BYTES
            await self._speak(socket, packet, at_ms, packets)
            await self._play(socket, at_ms)
            packets += 1
            if said_ms is None and is_speaking and not keys and said >= len(self._speech):
                said_ms = at_ms
            limit_ms = self._caller.limit_ms + len(self._speech) * 1000 // RATE_HZ
            is_heard = self._caller.listens_only and self.heard.voice_at_ms is not None
            if at_ms > limit_ms or is_heard or (said_ms is not None and self._is_over(at_ms, said_ms)):
                await self._send(socket, {"event": "stop", "stop": self._names()}, is_counted=True)
                return

    def _is_asked(self, at_ms: int) -> bool:
        if self._voice_until_ms is None:
            return at_ms >= self._caller.patience_ms
        return at_ms - self._voice_until_ms >= SETTLE_MS

    def _is_over(self, at_ms: int, said_ms: int) -> bool:
        return at_ms - max(said_ms, self._voice_until_ms or 0) >= self._caller.tail_ms

    async def _speak(self, socket: ClientConnection, packet: bytes, at_ms: int, number: int) -> None:
        self._record(Side.CALLER, at_ms, packet)
        media = {
            "track": "inbound",
            "chunk": str(number + 1),
            "timestamp": str(at_ms),
            "payload": base64.b64encode(packet).decode(),
        }
        await self._send(socket, {"event": "media", "media": media}, is_counted=True)
        if self._recording is not None and number % WRITE_PACKETS == WRITE_PACKETS - 1:
            self._recording.settle()
            await asyncio.to_thread(self._recording.write)

    async def _press(self, socket: ClientConnection, key: str) -> None:
        dtmf = {"track": "inbound_track", "digit": key}
        await self._send(socket, {"event": "dtmf", "dtmf": dtmf}, is_counted=True)

    # Audio to the caller.

    async def _play(self, socket: ClientConnection, at_ms: int) -> None:
        """Play the next 20 ms, and send back the marks that it reaches."""
        packet = b""
        while self._line and len(packet) < PACKET_BYTES:
            what = self._line.popleft()
            if isinstance(what, str):
                self.heard.marks += 1
                await self._mark_back(socket, what)
                continue
            room = PACKET_BYTES - len(packet)
            packet += what[:room]
            if len(what) > room:
                self._line.appendleft(what[room:])
        if packet:
            pcm = self._record(Side.BOT, at_ms, packet)
            if np.sqrt(np.mean(pcm.astype(np.float64) ** 2)) > VOICE_RMS:
                self._voice_until_ms = at_ms + PACKET_MS
                if self.heard.voice_at_ms is None:
                    self.heard.voice_at_ms = at_ms

    async def _receive(self, socket: ClientConnection) -> None:
        async for data in socket:
            try:
                message = orjson.loads(data) if isinstance(data, str) else None
            except orjson.JSONDecodeError:
                message = None
            if not isinstance(message, dict) or message.get("streamSid") != self._stream_sid:
                self.heard.violations.append("a message that is invalid, or of another stream")
                continue
            await self._take(socket, message)

    async def _take(self, socket: ClientConnection, message: dict[str, object]) -> None:
        match message:
            case {"event": "media", "media": {"payload": str(payload)}}:
                self._line.append(base64.b64decode(payload))
            case {"event": "mark", "mark": {"name": str(name)}}:
                self._line.append(name)
            case {"event": "clear"}:
                self.heard.clears += 1
                dropped = [each for each in self._line if isinstance(each, str)]
                self._line.clear()
                for name in dropped:
                    await self._mark_back(socket, name)
            case _:
                self.heard.violations.append(f"the event {str(message.get('event'))[:40]}")

    async def _mark_back(self, socket: ClientConnection, name: str) -> None:
        await self._send(socket, {"event": "mark", "mark": {"name": name}}, is_counted=True)

    # Messages.

    def _start(self, parameters: Mapping[str, str]) -> dict[str, object]:
        facts = {
            **self._names(),
            "streamSid": self._stream_sid,
            "tracks": ["inbound"],
            "customParameters": dict(parameters),
            "mediaFormat": {"encoding": ENCODING, "sampleRate": RATE_HZ, "channels": 1},
        }
        return {"event": "start", "start": facts}

    def _names(self) -> dict[str, object]:
        return {"accountSid": "AC" + "0" * 32, "callSid": self._call_sid}

    async def _send(
        self, socket: ClientConnection, message: dict[str, object], *, is_counted: bool = False
    ) -> None:
        if is_counted:
            self._sequence += 1
            message |= {"sequenceNumber": str(self._sequence), "streamSid": self._stream_sid}
        await socket.send(orjson.dumps(message).decode())

    def _record(self, side: Side, at_ms: int, mu_law: bytes) -> np.ndarray:
        pcm = g711.decode(mu_law, g711.Law.MU)
        if self._recording is not None:
            self._recording.place(side, at_ms * RATE_HZ // 1000, pcm.astype("<i2").tobytes())
        return pcm


def _stream_of(twiml: str) -> tuple[str, dict[str, str]]:
    """Return the stream that an answer requests, and its parameters. Raises PeerError."""
    try:
        response = ElementTree.fromstring(twiml)
    except ElementTree.ParseError as error:
        raise PeerError("the server's answer to the call is not TwiML") from error
    stream = response.find("./Connect/Stream")
    if stream is None:
        words = response.findtext("./Say") or "the line is engaged"
        raise PeerError(f"the server refused the call: {words}")
    given = {each.get("name", ""): each.get("value", "") for each in stream.findall("Parameter")}
    return stream.get("url", ""), given


def _sid(kind: str) -> str:
    return kind + secrets.token_hex(16)
