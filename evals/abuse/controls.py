"""Control callers: one each by WebRTC, by telephone and over a socket, which measure the audio they receive.

``python -m evals.abuse.controls URL SPEECH_CACHE TURNS TRANSPORT ...`` runs them in their own process, whose
priority is above that of attackers. Each caller places calls until a line arrives on standard input; the
present call is completed. A call receives a greeting of several seconds, asks a question and receives the
answer, or asks several times over a socket, where the bot does not speak first. It prints ``up`` when every
caller has received sound of the bot, and at the end one line of JSON, ``Report`` by transport.

The first second of a call is not measured: its audio begins when its pipeline does.
"""

import asyncio
import json
import re
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from websockets.exceptions import WebSocketException

from parley.core.errors import AgentError, PeerError
from parley.evals.abuse.gaps import Arrival, largest_ms
from parley.evals.harness.launcher import child
from parley.evals.harness.manners import Manners, hear_greeting
from parley.evals.harness.phone_caller import Recording, Script, call
from parley.evals.harness.phone_network import front_of
from parley.evals.harness.phone_speech import is_speech, said
from parley.evals.harness.questions import VOICES, WHOLE, Utterance
from parley.evals.harness.socket_caller import SocketCaller
from parley.evals.harness.speech import RATE_HZ, Speakers, Spoken
from parley.evals.harness.webrtc_caller import Line, QueuedError, now_us
from parley.protocols.twilio_media import RATE_HZ as PHONE_RATE_HZ

WEBRTC, PHONE, SOCKET = "webrtc", "phone", "socket"
TRANSPORTS = (WEBRTC, PHONE, SOCKET)
QUESTION = WHOLE[0]
MANNERS = Manners(
    greeting_ms=15_000, greeting_quiet_ms=800, answer_ms=10_000, reply_quiet_ms=1_000, reply_ms=20_000
)
SETTLE_S = 1.0
# Two callers of different places, and Twilio: with one address they would share the limits of an address.
BROWSER_ADDRESS, SOCKET_ADDRESS = "127.0.0.2", "127.0.0.3"
SOCKET_TURNS = 3
# A caller who is refused calls again a moment later.
AGAIN_S = 1.0
# In the messages of ``websockets``, ``evals.harness.webrtc_caller`` and ``evals.harness.phone_network``.
REFUSAL = re.compile(r"(?:HTTP|answered|way of) 503\b")
UP_S, REPORT_S = 45.0, 90.0
# On a server with admission, which admits a third call a minute after the second one at the latest when both
# go well, and a fourth a minute later.
ADMITTED_UP_S = 240.0


@dataclass
class Report:
    """Results of a caller, all calls together.

    Attributes:
        calls: number of placed calls.
        refused: calls that got 503, or a place in the queue and no line while a greeting lasts.
        broken: reasons for which calls broke or got another refusal, one line each.
        asked: number of questions.
        answered: number of answered questions. A question that was not recognised is not answered.
        waits_ms: from the end of a question to the first sound of its answer.
        gap_ms: the largest gap. None when there was no audio.
        calls_gaps_ms: the largest gap of each call.
    """

    calls: int = 0
    refused: int = 0
    broken: list[str] = field(default_factory=list)
    asked: int = 0
    answered: int = 0
    waits_ms: list[float] = field(default_factory=list)
    gap_ms: float | None = None
    calls_gaps_ms: list[float] = field(default_factory=list)

    def hear(self, stretches: Sequence[Sequence[Arrival]]) -> None:
        """Count the audio of one call."""
        largest = largest_ms(stretches)
        if largest is not None:
            self.calls_gaps_ms.append(round(largest, 1))
            self.gap_ms = max(self.calls_gaps_ms)


class Controls:
    """Control callers of one server.

    Args:
        url: of the server.
        cache: folder of synthesised speech.
        turns: questions of each call over a socket.
    """

    def __init__(self, url: str, cache: Path, *, turns: int) -> None:
        self._url = url
        self._cache = cache
        self._turns = turns
        self._enough = asyncio.Event()
        self._heard: dict[str, asyncio.Event] = {}

    async def hold(self, transports: Sequence[str]) -> dict[str, Report]:
        """Place calls until ``enough``; return the reports by transport."""
        rounds = {WEBRTC: self._webrtc, PHONE: self._phone, SOCKET: self._socket}
        reports = {transport: Report() for transport in transports}
        self._heard = {transport: asyncio.Event() for transport in transports}
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._print_up(), name="controls.up")
            for transport, report in reports.items():
                tasks.create_task(
                    self._again(rounds[transport], report, self._heard[transport]),
                    name=f"controls.{transport}",
                )
        return reports

    def enough(self) -> None:
        """Place no further call."""
        self._enough.set()

    async def _print_up(self) -> None:
        for heard in self._heard.values():
            await heard.wait()
        print("up", flush=True)

    async def _again(
        self,
        place: Callable[[Report, asyncio.Event], Awaitable[None]],
        report: Report,
        heard: asyncio.Event,
    ) -> None:
        while not self._enough.is_set():
            report.calls += 1
            try:
                await place(report, heard)
            except (AgentError, OSError, WebSocketException, TimeoutError) as error:
                if isinstance(error, QueuedError) or REFUSAL.search(str(error)):
                    report.refused += 1
                else:
                    report.broken.append(" ".join(f"{type(error).__name__}: {error}".split())[:200])
                await asyncio.sleep(AGAIN_S)
        # A caller who never got through must not keep the others waiting.
        heard.set()

    async def _webrtc(self, report: Report, heard: asyncio.Event) -> None:
        line = Line(self._url, address=BROWSER_ADDRESS)
        try:
            await line.dial()
            listening = asyncio.create_task(
                _when(lambda: line.ears.last_audible_us is not None, heard), name="controls.first_sound"
            )
            try:
                await hear_greeting(line, MANNERS)
            finally:
                listening.cancel()
            question = await asyncio.to_thread(_spoken, self._cache)
            report.asked += 1
            await line.microphone.speak(question)
            ended_us = now_us()
            if await line.wait_bot_audible(ended_us, MANNERS.answer_ms):
                report.waits_ms.append(round((now_us() - ended_us) / 1000))
                await line.wait_bot_quiet(MANNERS.reply_quiet_ms, MANNERS.reply_ms)
                turns = line.server_messages("turn")
                report.answered += not turns or any(turn.get("user_text") for turn in turns)
            if not line.alive:
                raise PeerError("the call failed")
        finally:
            arrivals = line.ears.arrivals
            report.hear(
                [packets_audio(arrivals.at_us, arrivals.rtp_timestamps, connected_us=line.connected_us)]
            )
            await line.hang_up()

    async def _phone(self, report: Report, heard: asyncio.Event) -> None:
        marks: list[float] = []

        def script(recording: Recording) -> Script:
            yield from recording.until_heard(0.0, MANNERS.greeting_ms / 1000)
            heard.set()
            yield from recording.until_quiet(MANNERS.greeting_quiet_ms / 1000, MANNERS.reply_ms / 1000)
            report.asked += 1
            marks.append(time.perf_counter())
            spoken = yield from recording.say(QUESTION, said(QUESTION))
            marks.append(spoken.last_s)
            if (yield from recording.until_heard(spoken.last_s, MANNERS.answer_ms / 1000)):
                report.answered += 1
                report.waits_ms.append(round(((recording.loud_s or 0.0) - spoken.last_s) * 1000))
                yield from recording.until_quiet(MANNERS.reply_quiet_ms / 1000, MANNERS.reply_ms / 1000)
            marks.append(time.perf_counter())

        async with front_of(self._url) as front:
            try:
                held = await call(front.url, script)
            except PeerError:
                if any("<Stream" not in answer for answer in front.answers):
                    raise PeerError("the webhook's TwiML opens no stream, which is its way of 503") from None
                raise
        if len(marks) < 3:
            raise PeerError(f"the call ended before its answer: {held.result.closed_by}")
        asked_s, spoken_s, over_s = marks
        stretches = [(0.0, asked_s), (spoken_s, over_s)]
        report.hear([_of_phone(held.recording, from_s, to_s) for from_s, to_s in stretches])

    async def _socket(self, report: Report, heard: asyncio.Event) -> None:
        url = f"{self._url.replace('http', 'ws', 1)}/v1/realtime?model=parley-cascade"
        caller = SocketCaller(url, self._turns, address=SOCKET_ADDRESS)
        listening = asyncio.create_task(_when(lambda: any(caller.pieces), heard), name="controls.first_sound")
        try:
            await caller.call()
        finally:
            listening.cancel()
            report.asked += len(caller.latencies_ms) + caller.unanswered
            report.answered += min(len(caller.latencies_ms), sum(map(bool, caller.heard)))
            report.waits_ms += [round(each) for each in caller.latencies_ms]
            report.hear([[Arrival(*piece) for piece in pieces] for pieces in caller.pieces])
        if not caller.latencies_ms:
            raise PeerError(f"no question was answered: {caller.errors[:3]}")


async def _when(condition: Callable[[], bool], then: asyncio.Event) -> None:
    while True:
        await asyncio.sleep(0.05)
        if condition():
            then.set()
            return


def _spoken(cache: Path) -> Spoken:
    engine, voice = VOICES[0]
    return Speakers(cache).speak(Utterance((QUESTION,), 0, engine, voice, gap_ms=0))


def packets_audio(at_us: Sequence[int], rtp_timestamps: Sequence[int], *, connected_us: int) -> list[Arrival]:
    """Return the packets of a WebRTC call after its first second, with lengths from their RTP timestamps.

    Args:
        at_us: arrivals.
        rtp_timestamps: of the same packets; of 32 bits, beginning anywhere.
        connected_us: beginning of the call.
    """
    lengths = [
        (later - earlier) % 2**32 for earlier, later in zip(rtp_timestamps, rtp_timestamps[1:], strict=False)
    ]
    from_us = connected_us + SETTLE_S * 1e6
    return [
        Arrival(at / 1e6, length / RATE_HZ)
        # The length of the last packet is not known, and not needed.
        for at, length in zip(at_us, [*lengths, 0], strict=False)
        if at >= from_us
    ]


def _of_phone(recording: Recording, from_s: float, to_s: float) -> list[Arrival]:
    """Return the audio of one stretch of speech, without the first second of it and the noise after it."""
    pieces = [piece for piece in recording.heard if from_s <= piece.at_s <= to_s]
    loud = [piece.at_s for piece in pieces if is_speech(piece.mu_law)]
    if not loud:
        return []
    begun_s, ended_s = loud[0] + (SETTLE_S if from_s == 0.0 else 0.0), loud[-1]
    return [
        Arrival(piece.at_s, len(piece.mu_law) / PHONE_RATE_HZ)
        for piece in pieces
        if begun_s <= piece.at_s <= ended_s
    ]


class ControlProcess:
    """Handle of the process of the control callers.

    Args:
        process: started.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def up(self, limit_s: float = UP_S) -> bool:
        """Wait until every caller has received sound of the bot; return False when one does not in time."""
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(limit_s):
                return (await self._process.stdout.readline()).strip() == b"up"
        except TimeoutError:
            return False

    async def reports(self) -> dict[str, Report]:
        """End the process after the present calls; return the reports.

        Raises:
            PeerError: it gave no report.
        """
        try:
            async with asyncio.timeout(REPORT_S):
                output, _ = await self._process.communicate(b"enough\n")
            found = json.loads(output.splitlines()[-1])
            return {transport: Report(**given) for transport, given in found.items()}
        except (TimeoutError, IndexError, ValueError, TypeError, OSError) as error:
            raise PeerError(f"the control callers returned no report: {error!r}") from error


@asynccontextmanager
async def controls(
    url: str, cache: Path, transports: Sequence[str], *, turns: int = SOCKET_TURNS
) -> AsyncIterator[ControlProcess]:
    """Run the control callers of a server until the end of the context."""
    async with child("parley.evals.abuse.controls", url, str(cache), str(turns), *transports) as process:
        yield ControlProcess(process)


async def main(url: str, cache: Path, turns: int, transports: Sequence[str]) -> dict[str, Any]:
    """Hold calls until a line, or the end, of standard input."""
    held = Controls(url, cache, turns=turns)
    loop = asyncio.get_running_loop()

    def on_line() -> None:
        loop.remove_reader(sys.stdin)
        held.enough()

    loop.add_reader(sys.stdin, on_line)
    reports = await held.hold(transports)
    return {transport: asdict(report) for transport, report in reports.items()}


if __name__ == "__main__":
    _url, _cache, _turns, *_transports = sys.argv[1:]
    print(json.dumps(asyncio.run(main(_url, Path(_cache), int(_turns), _transports))), flush=True)
