"""Phone calls whose conversation process is killed: the line stays up, and the call goes on over it.

The server has ``server.conversations.own_process``. Callers are connected through the simulated phone
network, and the conversation process is killed at a random moment: of the bot's greeting, or of the caller's
question. No call may lose its stream. Each caller must hear the filler, and then what the killed process
owed. That is the rest of the greeting, so that the words recorded as heard and those said later are the
greeting; or the answer to the whole question, which is committed once. One server holds all calls of a phase,
with a new conversation process after each kill.
"""

import asyncio
import json
import os
import random
import signal
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from parley.core.errors import PeerError
from parley.evals.crash.calls import FIRST_S, GREETING, LAST_S, POLL_S, WITHIN_S, spread, when_ready
from parley.evals.harness import sessions
from parley.evals.harness.launcher import PRODUCT, command, free_port, started
from parley.evals.harness.phone_caller import Recording, Script, call
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC, Front, front_of
from parley.evals.harness.phone_speech import said
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import markdown

LINE = "line"
CONVERSATIONS = b"parley.command.conversation_process"
SHORT_GREETING = "Hello, this is Parley."
QUESTION = "what are your opening hours on saturday"
# Audio that the network already has when the process is killed.
LEFT_S = 0.3
# The caller begins when the bot has been silent for that long.
QUIET_S = 1.0
# Part of the question's words that have to be recognised: the recogniser errs in speech that nothing breaks.
LEAST_WORDS = 0.7
LOOK_S = 0.2


@dataclass
class LineFindings:
    """Figures of a run.

    Attributes:
        kills: number of kills.
        calls: number of calls at the kills.
        stayed: calls that kept their stream.
        fillers: calls in which the caller heard something before a new process served.
        went_on: calls in which the bot spoke again.
        whole: calls without a word lost or repeated.
        filler_ms: from the kill to the first sound of the filler.
        answer_ms: from the kill to speech of the new process.
        gaps_ms: from the readiness of the new process to its speech.
        restarts_ms: from the kill to the readiness of the new process.
        details: of every fault.
    """

    kills: int = 0
    calls: int = 0
    stayed: int = 0
    fillers: int = 0
    went_on: int = 0
    whole: int = 0
    filler_ms: list[int] = field(default_factory=list)
    answer_ms: list[int] = field(default_factory=list)
    gaps_ms: list[int] = field(default_factory=list)
    restarts_ms: list[int] = field(default_factory=list)
    details: list[str] = field(default_factory=list)

    def passed(self) -> bool:
        """Return whether every call kept its line and went on with the right words."""
        return bool(self.calls) and self.stayed == self.fillers == self.went_on == self.whole == self.calls

    def as_json(self) -> dict[str, Any]:
        """Return all figures."""
        return {**vars(self), "passed": self.passed()}

    def table(self) -> str:
        """Return the figures as Markdown, and the line that states the requirement."""
        rows: list[tuple[str, object]] = [
            ("kills of the conversation process; calls at these moments", f"{self.kills}; {self.calls}"),
            ("calls that kept their stream", self.stayed),
            ("- that heard the filler", self.fillers),
            ("- in which the bot spoke again", self.went_on),
            ("- with no word lost or repeated", self.whole),
            ("from the kill to the filler ms, p50 / p95 / max", spread(self.filler_ms)),
            ("from the kill to the bot's speech ms, p50 / p95 / max", spread(self.answer_ms)),
            ("- of it the start of the new process ms, p50 / p95 / max", spread(self.restarts_ms)),
            ("from its readiness to speech ms, p50 / p95 / max", spread(self.gaps_ms)),
        ]
        return (
            f"{markdown(('phone calls, line', ''), rows)}\n\nline stayed up {self.stayed} of {self.calls}\n"
        )


async def run_lines(kills: int, seed: int, *, callers: int = 1, store: str | None = None) -> LineFindings:
    """Run all rounds, the greetings first.

    Args:
        kills: number of kills, half of them while the bot speaks and half while the caller does.
        seed: of their moments.
        callers: number of calls at each.
        store: address of the session store; None for a new SQLite file.

    Raises:
        PeerError: a server does not start.
    """
    findings, dice, progress = LineFindings(), random.Random(seed), Progress("kills", kills)
    of_caller = kills // 2
    for phase, count in ((_WhileBotSpeaks, kills - of_caller), (_WhileCallerSpeaks, of_caller)):
        if not count:
            continue
        with tempfile.TemporaryDirectory() as name:
            rounds = phase(Path(name), findings, dice, callers, store)
            async with rounds.server() as server, front_of(rounds.url) as front:
                assert server.pid is not None
                for _ in range(count):
                    await rounds.one(front, server.pid)
                    progress.step()
    return findings


class _Caller:
    """A caller of a round.

    Attributes:
        recording: of the call, once it has begun.
        hangs_up: set when the call may end.
        task: of the call.
    """

    def __init__(self, front: Front, words: Sequence[bytes]) -> None:
        self.recording: Recording | None = None
        self.hangs_up = asyncio.Event()
        self.asked_s: float | None = None
        self._words = words
        self.task = asyncio.create_task(call(front.url, self._script), name="crash.caller")

    def _script(self, recording: Recording) -> Script:
        self.recording = recording
        if self._words:
            yield from recording.until_heard(0.0, WITHIN_S)
            yield from recording.until_quiet(QUIET_S, WITHIN_S)
            self.asked_s = time.perf_counter()
            yield from recording.say(QUESTION, self._words)
        while not self.hangs_up.is_set():
            yield from recording.wait(0.1)

    @property
    def loud_s(self) -> float | None:
        """Time at which the bot was last heard; None before that."""
        return None if self.recording is None else self.recording.loud_s

    def first_s(self, from_s: float, to_s: float) -> float | None:
        """Return when the bot was first heard within a time; None where it was not."""
        heard = [] if self.recording is None else self.recording.speech_between(from_s, to_s)
        return heard[0].at_s if heard else None

    async def until(self, is_so: Any) -> None:
        """Wait for something to happen in the call.

        Raises:
            PeerError: the call ended before.
            TimeoutError: it did not happen.
        """
        async with asyncio.timeout(WITHIN_S):
            while not is_so():
                if self.task.done():
                    raise PeerError("the call has ended")
                await asyncio.sleep(POLL_S)


class _Rounds(ABC):
    """Calls of one phase on one server."""

    greeting = GREETING

    def __init__(
        self, folder: Path, findings: LineFindings, dice: random.Random, callers: int, store: str | None
    ) -> None:
        self._port, self._findings, self._dice, self._callers = free_port(), findings, dice, callers
        self._config, self._log = folder / "phone.yaml", folder / "server.log"
        self.url = f"http://127.0.0.1:{self._port}"
        self._environment = {
            "TWILIO_AUTH_TOKEN": AUTH_TOKEN,
            "PARLEY_STORE_URL": store or f"sqlite:///{folder}/sessions.db",
        }
        deployment = {
            # Every round is a loss of new calls alone.
            "phone": {"public_url": PUBLIC},
            "bot": {"greeting": self.greeting},
            "server": {
                "open": True,
                "admission": "off",
                "sessions_per_minute": 10_000,
                "conversations": {"own_process": True},
            },
        }
        self._config.write_text(json.dumps(deployment))

    def server(self) -> Any:
        """Return the context of the server."""
        arguments = command(PRODUCT, self._port, "--config", str(self._config))
        return started(arguments, self._port, self._log, environment=self._environment)

    async def one(self, front: Front, pid: int) -> None:
        """Hold calls, and kill their conversation process in the middle."""
        findings, streams = self._findings, front.streams
        callers = [_Caller(front, self._words()) for _ in range(self._callers)]
        try:
            try:
                await self._begun(callers)
            except (PeerError, TimeoutError) as error:
                findings.details.append(f"kill {findings.kills + 1}: no call to break: {error!r}")
                return
            killed_s = time.perf_counter()
            os.kill(conversation_pid(pid), signal.SIGKILL)
            findings.kills += 1
            findings.calls += len(callers)
            ready_s = await when_ready(self.url)
            findings.restarts_ms.append(round((ready_s - killed_s) * 1000))
            results = await asyncio.gather(
                *(self._check(each, killed_s, ready_s) for each in callers), return_exceptions=True
            )
            faults = [result for result in results if isinstance(result, Exception)]
            findings.details += [f"kill {findings.kills}: {fault!r}" for fault in faults]
            is_kept = front.streams == streams + len(callers)
            stayed = [each for each in callers if not each.task.done()]
            findings.stayed += len(stayed) if is_kept else 0
            if not is_kept or len(stayed) < len(callers):
                findings.details.append(f"kill {findings.kills}: {front.streams - streams} streams")
            try:
                await self._check_words(findings)
            except (PeerError, TimeoutError) as error:
                findings.details.append(f"kill {findings.kills}: {error!r}")
        finally:
            for each in callers:
                each.hangs_up.set()
            await asyncio.wait([each.task for each in callers], timeout=WITHIN_S)

    def _words(self) -> Sequence[bytes]:
        """Return the packets of what a caller says; none where they only listen."""
        return ()

    @abstractmethod
    async def _begun(self, callers: Sequence[_Caller]) -> None:
        """Wait until the moment of the kill."""

    async def _check(self, caller: _Caller, killed_s: float, ready_s: float) -> None:
        findings = self._findings
        filler_s = caller.first_s(killed_s + LEFT_S, ready_s)
        if filler_s is None:
            findings.details.append(f"kill {findings.kills}: no filler")
        else:
            findings.fillers += 1
            findings.filler_ms.append(round((filler_s - killed_s) * 1000))
        await caller.until(lambda: caller.first_s(ready_s, time.perf_counter()) is not None)
        spoke_s = caller.first_s(ready_s, time.perf_counter())
        assert spoke_s is not None
        findings.went_on += 1
        findings.answer_ms.append(round((spoke_s - killed_s) * 1000))
        findings.gaps_ms.append(round((spoke_s - ready_s) * 1000))

    async def _check_words(self, findings: LineFindings) -> None:
        """Check the sessions of the calls, when their replies are over.

        Raises:
            TimeoutError: they are not.
        """
        async with asyncio.timeout(WITHIN_S):
            for session_id in await sessions.newest_ids(self.url, self._callers):
                events = await self._said(session_id)
                if fault := self._fault_of(events):
                    findings.details.append(f"kill {findings.kills}: {fault}")
                else:
                    findings.whole += 1

    async def _said(self, session_id: str) -> Sequence[Mapping[str, Any]]:
        """Return the events of a session when what was owed has been said."""
        events: Sequence[Mapping[str, Any]] = ()
        while not self._is_said(events):
            await asyncio.sleep(LOOK_S)
            events = await sessions.timeline(self.url, session_id)
        return events

    @abstractmethod
    def _is_said(self, events: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether what was owed was said to its end."""

    @abstractmethod
    def _fault_of(self, events: Sequence[Mapping[str, Any]]) -> str:
        """Return which words of a call are wrong; empty for none."""


class _WhileBotSpeaks(_Rounds):
    """Kills during the greeting."""

    async def _begun(self, callers: Sequence[_Caller]) -> None:
        await asyncio.gather(*(each.until(lambda each=each: each.loud_s is not None) for each in callers))
        await asyncio.sleep(self._dice.uniform(FIRST_S, LAST_S))

    def _is_said(self, events: Sequence[Mapping[str, Any]]) -> bool:
        return any(not each.get("truncated") for each in _of_kind(events, "bot_turn"))

    def _fault_of(self, events: Sequence[Mapping[str, Any]]) -> str:
        parts = {
            each["reply_id"]: str(each["text"]).strip()
            for each in _of_kind(events, "heard") + _of_kind(events, "bot_turn")
        }
        is_whole = " ".join(filter(None, parts.values())) == self.greeting
        return "" if is_whole and _is_one(events) else f"heard {list(parts.values())!r}"


class _WhileCallerSpeaks(_Rounds):
    """Kills during the caller's question."""

    greeting = SHORT_GREETING

    def _words(self) -> Sequence[bytes]:
        return _question()

    async def _begun(self, callers: Sequence[_Caller]) -> None:
        await asyncio.gather(*(each.until(lambda each=each: each.asked_s is not None) for each in callers))
        await asyncio.sleep(self._dice.uniform(0.1, 0.9) * len(self._words()) * 0.02)

    def _is_said(self, events: Sequence[Mapping[str, Any]]) -> bool:
        turns = [place for place, event in enumerate(events) if event["kind"] == "user_turn"]
        return bool(turns) and bool(_of_kind(events[turns[-1] :], "bot_turn"))

    def _fault_of(self, events: Sequence[Mapping[str, Any]]) -> str:
        turns = [str(each["text"]).lower() for each in _of_kind(events, "user_turn")]
        found = [word for word in QUESTION.split() if word in turns[-1]] if turns else []
        is_whole = len(turns) == 1 and len(found) >= LEAST_WORDS * len(QUESTION.split())
        return "" if is_whole and _is_one(events) else f"understood {turns!r}"


@cache
def _question() -> Sequence[bytes]:
    """Return the packets of the callers' question."""
    return said(QUESTION)


def conversation_pid(pid: int) -> int:
    """Return the conversation process of a media process.

    Raises:
        PeerError: there is none.
    """
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            if CONVERSATIONS in Path(f"/proc/{child}/cmdline").read_bytes():
                return int(child)
    raise PeerError("there is no conversation process")


def _is_one(events: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the call came twice into one session: before and after the kill."""
    return len(_of_kind(events, "joined")) == 2


def _of_kind(events: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [event["payload"] for event in events if event["kind"] == kind]
