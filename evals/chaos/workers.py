"""Workers that are killed and stopped while a client has a stream to them, each before its next clause."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from parley.core.errors import EngineError
from parley.evals.fuzz.run import SECRET_ENV, WORKER_NAME, WORKER_SECRET, voice_worker
from parley.models.tts import SpeechPiece
from parley.models.tts.hosted.engine import WorkerTts, WorkerTtsSettings

if TYPE_CHECKING:
    from parley.evals.chaos.rows import ChaosRun

CLAUSE = "These are our opening hours on Saturday."
REQUEST_S, OPEN_S = 2.0, 15.0
# On a machine that does other work too; a peer's own limit is below 0.25 s.
KNOWN_S, BEYOND_S = 2.0, 3.0


class Clause:
    """Clause that a worker speaks in a thread.

    Attributes:
        error: the engine's error; None without one.
        took_s: time until its end.
        bytes: of speech.
    """

    def __init__(self) -> None:
        self.error: EngineError | None = None
        self.took_s = 0.0
        self.bytes = 0

    def speak(self, voice: WorkerTts) -> None:
        """Speak it to its end, or to the engine's error."""
        began_s = time.monotonic()
        try:
            voice.synthesize(CLAUSE, self._take)
        except EngineError as error:
            self.error = error
        self.took_s = time.monotonic() - began_s

    def _take(self, piece: SpeechPiece) -> bool:
        self.bytes += len(piece.pcm)
        return True


def voice_of(url: str) -> WorkerTts:
    """Return the client of a worker's voice."""
    os.environ[SECRET_ENV] = WORKER_SECRET
    return WorkerTts(
        WorkerTtsSettings(
            url=url, name=WORKER_NAME, request_timeout_s=REQUEST_S, open_timeout_s=OPEN_S, rest_ms=0
        )
    )


async def spoken(url: str) -> list[str]:
    """Return the faults of a clause that a worker should speak."""
    voice, clause = await asyncio.to_thread(voice_of, url), Clause()
    try:
        await asyncio.to_thread(clause.speak, voice)
    finally:
        await asyncio.to_thread(voice.close)
    return [] if clause.bytes and clause.error is None else [f"a clause is not spoken: {clause.error}"]


async def _signalled(url: str, pid: int, number: signal.Signals) -> tuple[Clause, list[str]]:
    """Speak a clause, send a signal to the worker, and speak another one over the same stream.

    Returns:
        The second clause, and the faults of the first one.
    """
    voice = await asyncio.to_thread(voice_of, url)
    before, after = Clause(), Clause()
    try:
        await asyncio.to_thread(before.speak, voice)
        os.kill(pid, number)
        await asyncio.to_thread(after.speak, voice)
    finally:
        await asyncio.to_thread(voice.close)
    faults = [] if before.bytes and before.error is None else [f"nothing is spoken before: {before.error}"]
    if after.error is None or after.bytes:
        faults.append(f"a clause after {number.name} is spoken by a worker that cannot")
    return after, faults


async def killed_worker(run: "ChaosRun") -> list[str]:
    """Kill a worker; start another one."""
    async with voice_worker(_folder(run, "killed")) as (url, pid):
        clause, faults = await _signalled(url, pid, signal.SIGKILL)
        if clause.took_s > KNOWN_S:
            faults.append(f"the kill is known after {clause.took_s:.1f} s")
    async with voice_worker(_folder(run, "killed")) as (url, _):
        return faults + await spoken(url)


async def stopped_worker(run: "ChaosRun") -> list[str]:
    """Stop a worker, and let it go on."""
    async with voice_worker(_folder(run, "stopped")) as (url, pid):
        clause, faults = await _signalled(url, pid, signal.SIGSTOP)
        os.kill(pid, signal.SIGCONT)
        if clause.took_s > REQUEST_S + BEYOND_S:
            faults.append(f"the worker is given up after {clause.took_s:.1f} s, not at {REQUEST_S:g} s")
        return faults + await spoken(url)


def _folder(run: "ChaosRun", name: str) -> Path:
    return run.folder / f"worker-{name}"
