"""Phone calls whose server is killed: how long their callers hear nothing, and which words they hear.

Each round places a call through the simulated phone network, kills the server at a random moment of the bot's
greeting, and starts it again on the same port. The network asks how the call goes on, as Twilio does: through
a proxy that repeats a refused connection, or by the fallback document of the number, which asks every second.
The reply must go on in the same session, from the first clause that is not recorded as heard. The gap is
the time from the first answer of the new process to ``GET /health`` until the caller hears speech again.
"""

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from parley.core.errors import PeerError
from parley.evals.harness.launcher import PRODUCT, Server, command, free_port, started
from parley.evals.harness.phone_caller import Recording, Script, call
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC, Front, front_of
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import markdown, percentile
from parley.evals.harness.sessions import newest

PROXY, FALLBACK = "proxy", "fallback"
PHRASE = "Sorry, we were cut off for a moment."
# About 20 s of speech in clauses that differ.
GREETING = (
    "Hello, this is Parley. We open at nine in the morning. We close at five in the afternoon. "
    "On Saturdays we are open until two. On Sundays the office stays closed. "
    "A lost card is blocked within a minute. A new one arrives in three days. "
    "Statements are sent at the end of the month. Savings earn two percent a year."
)
DOCUMENT = (
    f'<Response><Pause length="1"/><Redirect method="POST">{PUBLIC}/twilio/reconnect</Redirect></Response>'
)
PROXY_WAITS_S = 60.0
WITHIN_S = 60.0
POLL_S = 0.02
# Into the greeting: after its first clause, before its last.
FIRST_S, LAST_S = 2.0, 12.0


@dataclass
class CallFindings:
    """Figures of a run.

    Attributes:
        network: how calls are broken and go on.
        kills: number of kills, or of losses of the network.
        went_on: calls that went on in the same session, with another stream.
        whole: calls whose reply went on with exactly the words that were not recorded as heard.
        gaps_ms: from the readiness of the new process, or the return of the network, to speech at the caller.
        silences_ms: from the kill, or the loss of the network, to speech at the caller.
        restarts_ms: from the start of the new process to its readiness; empty where none was killed.
        details: of every fault.
        of: calls that were broken.
    """

    network: str
    kills: int = 0
    went_on: int = 0
    whole: int = 0
    gaps_ms: list[int] = field(default_factory=list)
    silences_ms: list[int] = field(default_factory=list)
    restarts_ms: list[int] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    of: str = "phone calls"

    def passed(self) -> bool:
        """Return whether every call went on with the right words."""
        return bool(self.kills) and self.went_on == self.whole == self.kills

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {**vars(self), "passed": self.passed()}

    def table(self) -> str:
        """Return the figures as Markdown."""
        rows: list[tuple[str, object]] = [
            ("calls that were broken", self.kills),
            ("calls that went on in their session", self.went_on),
            ("- with no word lost or repeated", self.whole),
            ("from the return of server or network to speech ms, p50 / p95 / max", spread(self.gaps_ms)),
            ("from the break of the call to speech ms, p50 / p95 / max", spread(self.silences_ms)),
            ("- of it the start of the new process ms, p50 / p95 / max", spread(self.restarts_ms)),
        ]
        return markdown((f"{self.of}, {self.network}", ""), rows) + "\n"


async def run_calls(kills: int, seed: int, *, network: str = PROXY, store: str | None = None) -> CallFindings:
    """Run all rounds.

    Args:
        kills: number of kills.
        seed: of their moments.
        network: how the network reaches the new process (``PROXY``, ``FALLBACK``).
        store: address of the session store; None for a new SQLite file.

    Raises:
        PeerError: the first server does not start.
    """
    findings, dice = CallFindings(network), random.Random(seed)
    progress = Progress("kills", kills)
    with tempfile.TemporaryDirectory() as name:
        rounds = _Rounds(Path(name), findings, store)
        async with front_of(rounds.url) as front:
            front.proxy_s, front.fallback = (PROXY_WAITS_S, "") if network == PROXY else (0.0, DOCUMENT)
            for _ in range(kills):
                try:
                    await rounds.one(front, dice.uniform(FIRST_S, LAST_S))
                except (PeerError, TimeoutError, aiohttp.ClientError) as error:
                    findings.details.append(f"call {findings.kills}: {error!r}")
                progress.step()
    return findings


class _Rounds:
    """Servers of a run, one after the other on one port and one store."""

    def __init__(self, folder: Path, findings: CallFindings, store: str | None) -> None:
        self._port, self._folder, self._findings = free_port(), folder, findings
        self._config, self._log = folder / "phone.yaml", folder / "server.log"
        self._environment = {
            "TWILIO_AUTH_TOKEN": AUTH_TOKEN,
            "PARLEY_STORE_URL": store or f"sqlite:///{folder}/sessions.db",
        }
        self.url = f"http://127.0.0.1:{self._port}"
        deployment = {
            "phone": {"public_url": PUBLIC, "reconnect": {"phrase": PHRASE}},
            "bot": {"greeting": GREETING},
            "server": {"open": True, "admission": "off", "sessions_per_minute": 10_000},
        }
        self._config.write_text(json.dumps(deployment))

    async def one(self, front: Front, after_s: float) -> None:
        """Hold one call, and kill its server so long after the first word of it."""
        hangs_up = asyncio.Event()
        recordings: list[Recording] = []

        def listen(recording: Recording) -> Script:
            recordings.append(recording)
            while not hangs_up.is_set():
                yield from recording.wait(0.1)

        streams = front.streams
        async with self._server() as server:
            calling = asyncio.create_task(call(front.url, listen), name="crash.caller")
            try:
                await _until(lambda: bool(recordings) and recordings[0].loud_s is not None, calling)
                await asyncio.sleep(after_s)
                killed_s = time.perf_counter()
                kill(server)
                self._findings.kills += 1
            except BaseException:
                hangs_up.set()
                await asyncio.wait({calling}, timeout=WITHIN_S)
                raise
        try:
            await self._after(front, calling, recordings[0], streams, killed_s)
        finally:
            hangs_up.set()
            await asyncio.wait({calling}, timeout=WITHIN_S)

    async def _after(
        self,
        front: Front,
        calling: "asyncio.Task[Any]",
        recording: Recording,
        streams: int,
        killed_s: float,
    ) -> None:
        findings, begun_s = self._findings, time.perf_counter()
        watching = asyncio.create_task(when_ready(self.url), name="crash.ready")
        try:
            async with self._server():
                ready_s = await watching
                await _until(lambda: front.streams > streams + 1, calling)
                await _until(lambda: bool(recording.speech_between(ready_s, time.perf_counter())), calling)
                spoke_s = recording.speech_between(ready_s, time.perf_counter())[0].at_s
                findings.went_on += 1
                findings.restarts_ms.append(round((ready_s - begun_s) * 1000))
                findings.gaps_ms.append(round((spoke_s - ready_s) * 1000))
                findings.silences_ms.append(round((spoke_s - killed_s) * 1000))
                await check_words(self.url, findings, calling.done)
        finally:
            watching.cancel()

    def _server(self) -> Any:
        arguments = command(PRODUCT, self._port, "--config", str(self._config))
        return started(arguments, self._port, self._log, environment=self._environment)


async def check_words(url: str, findings: CallFindings, is_over: Callable[[], bool]) -> None:
    """Check the words of a call that went on, when its reply is over.

    Raises:
        PeerError: the call ended while the bot spoke.
        TimeoutError: the reply does not end.
    """
    async with asyncio.timeout(WITHIN_S):
        while not _is_said(events := await newest(url)):
            if is_over():
                raise PeerError("the call ended while the bot spoke")
            await asyncio.sleep(0.1)
    # The newest record of each reply has all that was heard of it.
    parts = {
        each["reply_id"]: str(each["text"]).removeprefix(PHRASE).strip()
        for each in _of_kind(events, "heard") + _of_kind(events, "bot_turn")
    }
    is_one = len(_of_kind(events, "joined")) == 2
    if is_one and " ".join(filter(None, parts.values())) == GREETING:
        findings.whole += 1
    else:
        findings.details.append(f"heard {list(parts.values())!r}; one session: {is_one}")


def _is_said(events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a reply was said to its end."""
    return any(not each.get("truncated") for each in _of_kind(events, "bot_turn"))


async def _until(is_so: Any, calling: "asyncio.Task[Any]") -> None:
    """Wait for something to happen in a call.

    Raises:
        PeerError: the call ended before.
        TimeoutError: it did not happen.
    """
    async with asyncio.timeout(WITHIN_S):
        while not is_so():
            if calling.done():
                raise PeerError("the call has ended")
            await asyncio.sleep(POLL_S)


async def when_ready(url: str) -> float:
    """Return when a server first answers, on the caller's clock."""
    async with asyncio.timeout(WITHIN_S), aiohttp.ClientSession() as session:
        while True:
            try:
                async with session.get(f"{url}/health") as response:
                    if response.status == 200:
                        return time.perf_counter()
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(POLL_S)


def kill(server: Server) -> None:
    """Kill a server."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGKILL)


def _of_kind(events: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [event["payload"] for event in events if event["kind"] == kind]


def spread(values: Sequence[int]) -> str:
    """Return the median, the 95th percentile and the maximum of some values."""
    if not values:
        return "none"
    return f"{percentile(values, 50)} / {percentile(values, 95)} / {max(values)}"
