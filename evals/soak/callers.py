"""Callers of a soak in a process of their own: one line that is always up, and short calls that overlap.

``python -m evals.soak.callers URL --seconds S`` prints one line of JSON: the number of calls held of each
kind, the failures, and the latencies of typed answers and phone greetings with their times. ``--calls N``
places N calls of each kind, one after the other, without the line that is always up. Short calls take turns:
WebRTC with the cascade and with full duplex, telephone, OpenAI's realtime protocol over a socket and over
WebRTC, and a typed turn in a session of its own. Each asks one question, receives the answer or part of it,
and hangs up.
"""

import argparse
import asyncio
import itertools
import json
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import soxr

from parley.audio import g711
from parley.core.errors import AgentError, PeerError
from parley.evals.harness.command import count, positive_number
from parley.evals.harness.questions import Utterance
from parley.evals.harness.socket_caller import SocketCaller
from parley.evals.harness.speech import RATE_HZ, Speakers, Spoken
from parley.evals.harness.webrtc_caller import Line
from parley.protocols.twilio_media import RATE_HZ as PHONE_HZ
from parley.transports.twilio.simulated_caller import Caller, SimulatedCall

QUESTION = Utterance(("What are your opening hours on Saturday?",), 0, "flite", "rms", 0)
ANSWERED_MS, LISTEN_S = 8_000, 1.5
# A call that takes longer than this is counted as one that failed.
CALL_S = 60.0
LONG_PAUSE_S = 20.0

# Returns a latency in ms where the call has measured one.
Call = Callable[[str, Spoken], Awaitable[float | None]]


class RealtimeLine(Line):
    """Call by OpenAI's realtime protocol over WebRTC."""

    def greet(self, channel: Any) -> None:
        """Send nothing: the session has its defaults."""

    async def post(self, body: dict[str, object]) -> dict[str, Any]:
        """Send an offer; return the answer."""
        headers = {"Content-Type": "application/sdp"}
        async with (
            aiohttp.ClientSession(self._url) as client,
            client.post("/v1/realtime/calls", data=body["sdp"], headers=headers) as response,
        ):
            if response.status != 201:
                raise PeerError(f"{self._url}/v1/realtime/calls answered {response.status}")
            return {"sdp": await response.text(), "type": "answer"}


async def webrtc(line: Line, spoken: Spoken) -> None:
    """Ask over WebRTC and hang up while the answer is spoken."""
    try:
        await line.dial()
        sent = await line.microphone.speak(spoken)
        await line.wait_bot_audible(line.microphone.at_us(sent.slot + len(spoken.packets)), ANSWERED_MS)
        await asyncio.sleep(LISTEN_S)
    finally:
        await line.hang_up()


async def cascade(url: str, spoken: Spoken) -> None:
    """Hold a WebRTC call with the cascade."""
    await webrtc(Line(url, mode="cascade"), spoken)


async def duplex(url: str, spoken: Spoken) -> None:
    """Hold a WebRTC call in full duplex."""
    await webrtc(Line(url, mode="duplex"), spoken)


async def realtime(url: str, spoken: Spoken) -> None:
    """Hold a call by OpenAI's realtime protocol over WebRTC."""
    await webrtc(RealtimeLine(url), spoken)


async def phone(url: str, spoken: Spoken) -> float:
    """Hold a telephone call; return the time to the first sound of the greeting."""
    pcm = soxr.resample(spoken.pcm.astype(np.float32) / 32_768, RATE_HZ, PHONE_HZ)
    mu_law = g711.encode(np.rint(pcm * 32_767).astype(np.int16), g711.Law.MU)
    heard = await SimulatedCall(url, mu_law, caller=Caller(tail_ms=1_500)).hold()
    if heard.voice_at_ms is None:
        raise PeerError("a phone call heard no greeting")
    return heard.voice_at_ms


async def socket(url: str, _spoken: Spoken) -> None:
    """Hold a call over OpenAI's realtime socket."""
    await SocketCaller(f"{url.replace('http', 'ws', 1)}/v1/realtime?model=parley", 1).call()


async def text(url: str, _spoken: Spoken) -> float:
    """Ask a typed question in a session of its own; return the time to the end of the answer."""
    async with aiohttp.ClientSession(url) as client:
        async with client.post("/api/sessions") as response:
            session_id = (await response.json())["id"]
        begun_s = time.monotonic()
        message = {"text": QUESTION.text}
        async with client.post(f"/api/sessions/{session_id}/messages", json=message) as response:
            body = await response.text()
            if response.status != 200 or "event: done" not in body:
                raise PeerError(f"a typed turn is not answered: {response.status}")
    return (time.monotonic() - begun_s) * 1000


CALLS: Mapping[str, Call] = {
    "cascade": cascade,
    "duplex": duplex,
    "phone": phone,
    "realtime": realtime,
    "socket": socket,
    "text": text,
}


class Soak:
    """Calls of one run.

    Args:
        url: of the server.
        kinds: of short calls.

    Attributes:
        held: number of calls of each kind.
        failed: number of failures, by kind of call and of error.
        latencies: of each kind that measures one: the monotonic time of its end, and the latency in ms.
    """

    def __init__(self, url: str, kinds: Sequence[str]) -> None:
        self._url = url
        self._kinds = kinds
        self.held: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.latencies: dict[str, list[tuple[float, float]]] = {}
        with tempfile.TemporaryDirectory() as folder:
            self._spoken = Speakers(Path(folder)).speak(QUESTION)

    async def keep_busy(self, seconds: float, at_a_time: int) -> None:
        """Hold the line and the short calls for ``seconds``."""
        until_s = time.monotonic() + seconds
        order = itertools.cycle(self._kinds)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._line(until_s), name="soak.line")
            for number in range(at_a_time):
                tasks.create_task(self._short_calls(until_s, order), name=f"soak.calls.{number}")

    async def place(self, calls: int) -> None:
        """Place ``calls`` short calls of each kind."""
        for kind in [*self._kinds] * calls:
            await self._one(kind)

    async def _short_calls(self, until_s: float, order: "itertools.cycle[str]") -> None:
        while time.monotonic() < until_s:
            await self._one(next(order))

    async def _one(self, kind: str) -> None:
        try:
            async with asyncio.timeout(CALL_S):
                latency_ms = await CALLS[kind](self._url, self._spoken)
        except (AgentError, OSError, ExceptionGroup, TimeoutError, aiohttp.ClientError) as error:
            self.failed[f"{kind}: {type(error).__name__}: {error}"[:200]] += 1
            await asyncio.sleep(1)
        else:
            self.held[kind] += 1
            if latency_ms is not None:
                measured = self.latencies.setdefault(kind, [])
                measured.append((time.monotonic(), round(latency_ms, 1)))

    async def _line(self, until_s: float) -> None:
        """Hold the line that is always up, with a question now and then."""
        line = Line(self._url, mode="cascade")
        try:
            await line.dial()
            while (left_s := until_s - time.monotonic()) > 0:
                await line.microphone.speak(self._spoken)
                line.ears.frames.clear()
                line.ears.frame_stamps.clear()
                await asyncio.sleep(min(LONG_PAUSE_S, max(0.0, left_s)))
                if not line.alive:
                    self.failed["line: it ended"] += 1
                    return
            self.held["line"] += 1
        except AgentError as error:
            self.failed[f"line: {error}"] += 1
        finally:
            await line.hang_up()


async def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the calls; return their counts."""
    soak = Soak(arguments.url, arguments.kinds)
    if arguments.calls:
        await soak.place(arguments.calls)
    else:
        await soak.keep_busy(arguments.seconds, arguments.at_a_time)
    return {"held": dict(soak.held), "failed": dict(soak.failed), "latencies": soak.latencies}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Run the callers of a soak test.")
    parser.add_argument("url")
    parser.add_argument("--seconds", type=positive_number, default=60.0)
    parser.add_argument("--at-a-time", type=count, default=2)
    parser.add_argument("--calls", type=count, default=0)
    parser.add_argument("--kinds", nargs="+", choices=sorted(CALLS), default=sorted(CALLS))
    print(json.dumps(asyncio.run(run(parser.parse_args()))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
