"""Many silent callers in a process of their own, who record the arrival times of the packets they receive.

The command is ``python -m evals.phone.crowd URL CALLS SECONDS``. It prints ``measuring`` when all calls are
up and have received speech, ``measured`` after that many seconds, and one line of JSON after the hang-ups.
Thirty of streamdouble's callers would take a core and be measured themselves. These callers do only what
Twilio has to: the webhook, ``start``, a packet each 20 ms with the noise of a quiet line, marks back when
their audio has been played, ``stop``.

The accuracy depends on this process too: ``own_late_ms`` is the lateness of its own packets.
"""

import asyncio
import json
import secrets
import sys
import time
from base64 import b64decode, b64encode
from collections import deque
from dataclasses import dataclass, field
from typing import Any
from xml.etree import ElementTree

import aiohttp
import numpy as np
import orjson
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from parley.audio import g711
from parley.evals.harness.collector import uncollected
from parley.evals.harness.phone_caller import Piece
from parley.evals.harness.phone_speech import PACKET, is_speech
from parley.evals.harness.report import spread
from parley.evals.phone.pacing import Pacing, pacing
from parley.protocols.twilio_media import ENCODING, PACKET_MS, RATE_HZ
from parley.runtime import event_loop

PACKET_S = PACKET_MS / 1000
# Calls begin one after the other: a simultaneous start would be another measurement.
APART_S = 0.15
SPEECH_S, SETTLE_S = 30.0, 2.0
# No line is all zeros. As on a quiet one, the product's detector rests.
NOISE_DBOV, NOISE_PACKETS = -68.0, 50


def _noise() -> list[str]:
    """Return packets of noise, in base64."""
    size = NOISE_PACKETS * len(PACKET)
    sound = np.random.default_rng(1).standard_normal(size) * 32_768 * 10 ** (NOISE_DBOV / 20)
    mu_law = g711.encode(np.rint(sound).astype(np.int16), g711.Law.MU)
    return [b64encode(mu_law[at : at + len(PACKET)]).decode() for at in range(0, size, len(PACKET))]


NOISE = _noise()


@dataclass
class Caller:
    """A call.

    Attributes:
        came: received packets, in order.
        late_s: lateness of each packet of the caller.
        marks: number of received marks.
        begins: set when speech has come, or when the call was refused.
        refused: reason of a refusal.
    """

    came: list[Piece] = field(default_factory=list)
    late_s: list[float] = field(default_factory=list)
    marks: int = 0
    begins: asyncio.Event = field(default_factory=asyncio.Event)
    refused: str = ""
    _plays_until_s: float = 0.0
    _due_marks: deque[tuple[float, str]] = field(default_factory=deque)
    _sequence: int = 0

    async def hold(self, url: str, over: asyncio.Event) -> None:
        """Hold the call until ``over`` is set."""
        try:
            call_sid = "CA" + secrets.token_hex(16)
            address = await _answer(url, call_sid)
            async with connect(address, compression=None, max_size=None) as socket:
                async with asyncio.TaskGroup() as tasks:
                    hearing = tasks.create_task(self._hear(socket), name="crowd.hear")
                    await self._talk(socket, call_sid, over)
                    hearing.cancel()
        except* (aiohttp.ClientError, OSError, ValueError, ConnectionClosed, TimeoutError) as group:
            self.refused = repr(group.exceptions[0])
        self.begins.set()

    async def _talk(self, socket: ClientConnection, call_sid: str, over: asyncio.Event) -> None:
        sid = "MZ" + secrets.token_hex(16)
        start = {
            "accountSid": "AC" + "1" * 32,
            "callSid": call_sid,
            "streamSid": sid,
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": ENCODING, "sampleRate": RATE_HZ, "channels": 1},
            "customParameters": {},
        }
        await socket.send(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"}))
        await socket.send(self._message("start", sid, start))
        begun_s, number = time.perf_counter(), 0
        while not over.is_set():
            number += 1
            due_s = begun_s + number * PACKET_S
            await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
            now_s = time.perf_counter()
            self.late_s.append(now_s - due_s)
            place = {"track": "inbound", "chunk": str(number), "timestamp": str(number * PACKET_MS)}
            payload = NOISE[number % NOISE_PACKETS]
            await socket.send(self._message("media", sid, {**place, "payload": payload}))
            while self._due_marks and self._due_marks[0][0] <= now_s:
                await socket.send(self._message("mark", sid, {"name": self._due_marks.popleft()[1]}))
        await socket.send(self._message("stop", sid, {"callSid": start["callSid"]}))

    def _message(self, kind: str, sid: str, facts: dict[str, Any]) -> str:
        self._sequence += 1
        message = {"event": kind, "sequenceNumber": str(self._sequence), "streamSid": sid, kind: facts}
        return orjson.dumps(message).decode()

    async def _hear(self, socket: ClientConnection) -> None:
        async for text in socket:
            now_s = time.perf_counter()
            message = orjson.loads(text)
            if message["event"] == "media":
                piece = Piece(now_s, b64decode(message["media"]["payload"]))
                self.came.append(piece)
                self._plays_until_s = max(self._plays_until_s, now_s) + len(piece.mu_law) / RATE_HZ
                if not self.begins.is_set() and is_speech(piece.mu_law):
                    self.begins.set()
            elif message["event"] == "mark":
                self.marks += 1
                self._due_marks.append((self._plays_until_s, message["mark"]["name"]))


async def _answer(url: str, call_sid: str) -> str:
    """Request the stream's address of a call."""
    form = {"CallSid": call_sid, "From": "+15550100", "To": "+15550199"}
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as client,
        client.post(f"{url}/twilio/voice", data=form) as response,
    ):
        text = await response.text()
        stream = ElementTree.fromstring(text).find("./Connect/Stream") if response.status == 200 else None
        if stream is None:
            raise ValueError(f"no stream: {response.status} {text[:200]}")
        return stream.attrib["url"]


async def hold(url: str, calls: int, seconds: float) -> dict[str, Any]:
    """Hold ``calls`` calls at a time and return the figures."""
    callers, over = [Caller() for _ in range(calls)], asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number, caller in enumerate(callers):
            tasks.create_task(caller.hold(url, over), name=f"crowd.{number}")
            await asyncio.sleep(APART_S)
        for caller in callers:
            async with asyncio.timeout(SPEECH_S):
                await caller.begins.wait()
        await asyncio.sleep(SETTLE_S)
        print("measuring", flush=True)
        with uncollected():
            from_s, from_cpu_s = time.perf_counter(), time.process_time()
            await asyncio.sleep(seconds)
            to_s, cpu_s = time.perf_counter(), time.process_time() - from_cpu_s
        print("measured", flush=True)
        over.set()
    found = [pacing(caller.came, from_s, to_s) for caller in callers]
    held = [each for each in found if each is not None]
    refused = [caller.refused for caller in callers if caller.refused]
    return {
        "held": len(held) - len(refused),
        "refused": refused[:3],
        "packets": sum(len(each.errors_ms) for each in held),
        "pacing_error_ms": spread([error for each in held for error in each.errors_ms]),
        "gap_ms": spread([gap for each in held for gap in each.gaps_ms]),
        "worst_call_p99_ms": max((_p99(each) for each in held), default=None),
        "audio_percent": spread([100 * each.audio_s / (to_s - from_s) for each in held]),
        "starved_ms_per_minute": spread([each.starved_ms * 60 / (to_s - from_s) for each in held]),
        "marks": sum(caller.marks for caller in callers),
        "own_late_ms": spread([late * 1000 for caller in callers for late in caller.late_s]),
        "own_cpu_percent": round(100 * cpu_s / (to_s - from_s), 1),
    }


def _p99(held: Pacing) -> float:
    return float(spread(held.errors_ms)["p99"])


if __name__ == "__main__":
    print(json.dumps(event_loop.run(hold(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))), flush=True)
