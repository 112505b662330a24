"""Twilio's side of a media stream in virtual time: a line with delays that plays audio and returns marks."""

import asyncio
import base64
import json
from collections import deque
from dataclasses import dataclass, field

from parley.protocols.twilio_media import PACKET_BYTES

STREAM, CALL = "MZ1", "CA1"
# Louder than noise: the speech of the tests.
SPEECH, NOISE = b"\x10" * PACKET_BYTES, b"\x7f" * PACKET_BYTES


def message(kind: str, number: int, **facts: object) -> str:
    return json.dumps({"event": kind, "sequenceNumber": str(number), "streamSid": STREAM, **facts})


def audio(number: int, at_ms: int, mu_law: bytes = b"\xff" * PACKET_BYTES) -> str:
    payload = base64.b64encode(mu_law).decode()
    media = {"track": "inbound", "chunk": str(number), "timestamp": str(at_ms), "payload": payload}
    return message("media", number, media=media)


@dataclass
class TwilioSide:
    """Implementation of ``transports.twilio.stream.PhonePeer``.

    Attributes:
        there_s, back_s: delays to Twilio and back.
        returns_marks: whether marks are returned.
        stalled_until_s: nothing arrives before this time, and then everything.
        fails: ``send`` raises.
        takes_s: time that each message takes to send.
        got: messages with the time of their arrival.
        played: start and content of each played packet.
        audio_s: length of the caller's audio; 0: none comes.
    """

    there_s: float = 0.0
    back_s: float = 0.0
    returns_marks: bool = True
    stalled_until_s: float = 0.0
    fails: bool = False
    takes_s: float = 0.0
    call_sid: str = CALL
    audio_s: float = 60.0
    got: list[tuple[float, dict[str, object]]] = field(default_factory=list)
    played: list[tuple[float, bytes]] = field(default_factory=list)
    cleared_at_s: list[float] = field(default_factory=list)
    closed: tuple[int, str] | None = None
    incoming: "asyncio.Queue[str | None]" = field(default_factory=asyncio.Queue)
    number: int = 1
    _ends_s: float = 0.0
    _out: dict[str, asyncio.TimerHandle] = field(default_factory=dict)
    _arrived_s: float = 0.0
    _on_the_way: deque[str] = field(default_factory=deque)

    def begin(self) -> None:
        """Start the stream, and send the caller's audio."""
        connected = {"event": "connected", "protocol": "Call", "version": "1.0.0"}
        start = {
            "streamSid": STREAM,
            "callSid": self.call_sid,
            "accountSid": "AC1",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": {},
        }
        self.incoming.put_nowait(json.dumps(connected))
        self.incoming.put_nowait(message("start", 1, start=start))
        self._talk(0)

    def send_event(self, kind: str, **facts: object) -> None:
        """Send a message of the stream."""
        self.number += 1
        self.incoming.put_nowait(message(kind, self.number, **facts))

    def _talk(self, at_ms: int) -> None:
        if at_ms < self.audio_s * 1000:
            self.number += 1
            self.incoming.put_nowait(audio(self.number, at_ms))
            self._loop.call_later(0.02, self._talk, at_ms + 20)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def receive(self) -> str | None:
        return await self.incoming.get()

    async def send(self, text: str) -> bool:
        if self.fails:
            raise RuntimeError("no socket is like that")
        if self.takes_s:
            await asyncio.sleep(self.takes_s)
        # One after the other, as TCP delivers them.
        self._arrived_s = max(self._arrived_s, self._loop.time() + self.there_s, self.stalled_until_s)
        self._on_the_way.append(text)
        self._loop.call_at(self._arrived_s, self._arrives)
        return True

    async def close(self, code: int, reason: str) -> None:
        self.closed = code, reason

    def _arrives(self) -> None:
        said, now_s = json.loads(self._on_the_way.popleft()), self._loop.time()
        self.got.append((now_s, said))
        if said["event"] == "media":
            data = base64.b64decode(said["media"]["payload"])
            begins_s = max(now_s, self._ends_s)
            self.played.append((begins_s, data))
            self._ends_s = begins_s + len(data) / 8000
        elif said["event"] == "mark" and self.returns_marks:
            name = said["mark"]["name"]
            self._out[name] = self._loop.call_at(max(now_s, self._ends_s), self._return, name)
        elif said["event"] == "clear":
            self.cleared_at_s.append(now_s)
            self.played = [(at_s, data) for at_s, data in self.played if at_s < now_s]
            self._ends_s = now_s
            for name, timer in list(self._out.items()):
                timer.cancel()
                self._return(name)

    def _return(self, name: str) -> None:
        self._out.pop(name, None)
        self._loop.call_later(self.back_s, lambda: self.send_event("mark", mark={"name": name}))

    def heard_ms(self, until_s: float, what: bytes = SPEECH) -> float:
        """Return how much of this audio was played until then, in ms."""
        return sum(
            min(0.02, max(0.0, until_s - at_s)) * 1000 for at_s, data in self.played if data[:1] == what[:1]
        )
