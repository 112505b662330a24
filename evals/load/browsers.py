"""Many browser callers in a process of their own, who cost a tenth of a browser and of aiortc's peers.

The command is ``python -m evals.load.browsers URL CALLS SECONDS FOLDER [--typed]``. It prints ``measuring``
when all calls are up, ``measured`` after that many seconds, and one line of JSON after the hang-ups.

aiortc makes the connection and keeps the data channel. Media go past it: packets are encoded before, get
their header and their protection here, and leave in groups, a fifth of the calls every 4 ms. Received packets
are not decoded and not even unprotected: the header of SRTP is in the clear (RFC 3711), and a packet of
speech is longer than one of silence.

A caller asks one question each ``CYCLE_S``, a third of which it takes; with ``--typed`` it types the question
as well, for a server whose voice activity detection is a fake. The time of an answer runs from the last
packet of the question, or from the typed text, to the first packet of speech. ``own_late_ms`` is the lateness
of the callers' own packets.
"""

import argparse
import asyncio
import json
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription

from parley.core.errors import PeerError
from parley.evals.harness.collector import uncollected
from parley.evals.harness.playout import lateness_us
from parley.evals.harness.questions import Utterance
from parley.evals.harness.report import spread
from parley.evals.harness.speech import FRAME_SAMPLES, RATE_HZ, Speakers
from parley.evals.harness.webrtc_caller import CLIENT_READY, now_us
from parley.evals.library_internals import DirectMedia
from parley.evals.load.ramp import late_packets
from parley.runtime import event_loop

QUESTION = (
    "Good morning, I am calling because I would like to know what your opening hours are on a Saturday."
)
CYCLE_S = 15.0
PACKET_S = 0.02
GROUPS = 5
DIAL_APART_S, DIAL_S, SETTLE_S, PING_S = 0.1, 20.0, 3.0, 1.0
# Header, extensions and tag of an SRTP packet take 34 to 46 bytes, and Opus 3 bytes for silence. Speech at
# 32 kbit/s has about 80.
SPEECH_BYTES = 70
# A reply has ended when no speech came for this long.
REPLY_GAP_US = 700_000
ANSWERED_US = 10_000_000


@dataclass
class Caller:
    """A call.

    Attributes:
        number: of the caller.
        at_us: arrival of each audio packet.
        stamps: RTP timestamp of each.
        sizes: length of each.
        asked_us: end of each question.
        refused: reason for which there is no call.
    """

    number: int
    at_us: list[int] = field(default_factory=list)
    stamps: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    asked_us: list[int] = field(default_factory=list)
    refused: str = ""
    _media: DirectMedia | None = None
    _sent: int = 0
    _payload_type: int = 0

    async def dial(self, url: str) -> None:
        """Connect; a failure is noted."""
        connection = self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        connected = asyncio.Event()
        transceiver = connection.addTransceiver("audio", direction="sendrecv")
        channel = self._channel = connection.createDataChannel("rtvi-ai")
        channel.on("open", lambda: channel.send(json.dumps(CLIENT_READY)))
        connection.on(
            "connectionstatechange",
            lambda: connected.set() if connection.connectionState == "connected" else None,
        )
        media = DirectMedia(transceiver, self._take)
        await connection.setLocalDescription(await connection.createOffer())
        try:
            async with asyncio.timeout(DIAL_S), aiohttp.ClientSession() as session:
                body = {"sdp": connection.localDescription.sdp, "type": "offer"}
                async with session.post(f"{url}/api/offer", json=body) as response:
                    if response.status != 200:
                        raise PeerError(f"the offer was answered {response.status}")
                    answer = await response.json()
                await connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))
                self._payload_type = _opus_type(answer["sdp"])
                await connected.wait()
        except (PeerError, aiohttp.ClientError, TimeoutError) as error:
            self.refused = repr(error)
            return
        self._media = media

    def send(self, payload: bytes) -> None:
        """Send the packet of the present slot."""
        if self._media is not None:
            self._media.send(
                struct.pack(
                    "!BBHII",
                    0x80,
                    self._payload_type,
                    self._sent & 0xFFFF,
                    self._sent * FRAME_SAMPLES & 0xFFFFFFFF,
                    self._media.ssrc,
                )
                + payload
            )
            self._sent += 1

    def write(self, text: str) -> None:
        """Send a message on the data channel, if it is open."""
        if self._media is not None and self._channel.readyState == "open":
            self._channel.send(text)

    async def hang_up(self) -> None:
        """Close the call."""
        await self._connection.close()

    def _take(self, datagram: bytes) -> None:
        self.at_us.append(now_us())
        self.stamps.append(int.from_bytes(datagram[4:8]))
        self.sizes.append(len(datagram))

    def late_us(self, from_us: int, to_us: int) -> list[int]:
        """Return the lateness of the packets of speech that arrived in this time."""
        late = lateness_us(self.at_us, self.stamps, RATE_HZ)
        return [
            each
            for each, at_us, size in zip(late, self.at_us, self.sizes, strict=True)
            if from_us <= at_us < to_us and size >= SPEECH_BYTES
        ]

    def answers_us(self, from_us: int, to_us: int) -> list[int | None]:
        """Return the time of the answer to each question that ended in this time; None for none.

        A question that ended while the bot spoke is left out: what follows may be the rest of that.
        """
        speech = [at_us for at_us, size in zip(self.at_us, self.sizes, strict=True) if size >= SPEECH_BYTES]
        found: list[int | None] = []
        for asked_us in self.asked_us:
            spoke = any(asked_us - REPLY_GAP_US < at_us <= asked_us for at_us in speech)
            if from_us <= asked_us < to_us - ANSWERED_US and not spoke:
                limit_us = asked_us + ANSWERED_US
                found.append(
                    next((at_us - asked_us for at_us in speech if asked_us < at_us < limit_us), None)
                )
        return found


def _opus_type(sdp: str) -> int:
    for line in sdp.splitlines():
        if line.startswith("a=rtpmap:") and " opus/" in line.lower():
            return int(line.removeprefix("a=rtpmap:").partition(" ")[0])
    raise PeerError("the server's answer has no Opus")


class Crowd:
    """Callers who share one clock.

    Args:
        callers: all of the crowd.
        question: packets of the question.
        silence: packet between questions.
        is_typed: type the question too.
    """

    def __init__(
        self, callers: Sequence[Caller], question: Sequence[bytes], silence: bytes, *, is_typed: bool
    ) -> None:
        self._callers, self._question, self._silence = callers, question, silence
        self._is_typed = is_typed
        self._cycle = round(CYCLE_S / PACKET_S)
        self.late_us: list[int] = []

    async def talk(self, over: asyncio.Event) -> None:
        """Send every caller's packets until ``over`` is set."""
        begun_us, tick = now_us(), 0
        while not over.is_set():
            tick += 1
            due_us = begun_us + round(tick * PACKET_S * 1e6 / GROUPS)
            await asyncio.sleep(max(0, due_us - now_us()) / 1e6)
            self.late_us.append(now_us() - due_us)
            slot = tick // GROUPS
            for caller in self._callers[tick % GROUPS :: GROUPS]:
                self._send(caller, slot)

    def _send(self, caller: Caller, slot: int) -> None:
        # The callers are out of step.
        place = (slot + caller.number * self._cycle // max(1, len(self._callers))) % self._cycle
        if place == len(self._question):
            if self._is_typed:
                caller.write(_typed(caller.number, slot))
            caller.asked_us.append(now_us())
        caller.send(self._question[place] if place < len(self._question) else self._silence)
        if slot % round(PING_S / PACKET_S) == caller.number % round(PING_S / PACKET_S):
            caller.write("ping")


def _typed(number: int, slot: int) -> str:
    return json.dumps(
        {
            "label": "rtvi-ai",
            "type": "send-text",
            "id": f"{number}-{slot}",
            "data": {"content": QUESTION, "options": {"run_immediately": True, "audio_response": True}},
        }
    )


async def hold(url: str, calls: int, seconds: float, folder: Path, *, is_typed: bool) -> dict[str, Any]:
    """Hold ``calls`` calls at a time and return the figures."""
    spoken = await asyncio.to_thread(
        Speakers(folder / "voices").speak, Utterance((QUESTION,), 0, "flite", "rms", 0)
    )
    callers, over = [Caller(number) for number in range(calls)], asyncio.Event()
    crowd = Crowd(callers, spoken.packets, spoken.packets[0], is_typed=is_typed)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(crowd.talk(over), name="load.talk")
        for caller in callers:
            await caller.dial(url)
            await asyncio.sleep(DIAL_APART_S)
        await asyncio.sleep(SETTLE_S)
        crowd.late_us.clear()
        print("measuring", flush=True)
        with uncollected():
            from_us, from_cpu_s = now_us(), time.process_time()
            await asyncio.sleep(seconds)
            to_us, cpu_s = now_us(), time.process_time() - from_cpu_s
        print("measured", flush=True)
        over.set()
    await asyncio.gather(*(caller.hang_up() for caller in callers))
    answers = [each for caller in callers for each in caller.answers_us(from_us, to_us)]
    refused = [caller.refused for caller in callers if caller.refused]
    late_ms = [us / 1000 for caller in callers for us in caller.late_us(from_us, to_us)]
    return {
        "held": sum(bool(caller.at_us) and caller.at_us[-1] > to_us - 1_000_000 for caller in callers),
        "refused": refused[:3],
        "late_ms": spread(late_ms),
        "late_packets": late_packets(late_ms),
        "answer_ms": spread([us / 1000 for us in answers if us is not None]),
        "unanswered": sum(us is None for us in answers),
        "own_late_ms": spread([us / 1000 for us in crowd.late_us]),
        "own_cpu_percent": round(100 * cpu_s / (to_us - from_us) * 1e6, 1),
    }


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Hold many browser calls at a time.")
    parser.add_argument("url")
    parser.add_argument("calls", type=int)
    parser.add_argument("seconds", type=float)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--typed", action="store_true")
    given = parser.parse_args()
    figures = event_loop.run(hold(given.url, given.calls, given.seconds, given.folder, is_typed=given.typed))
    print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
