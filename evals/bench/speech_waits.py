"""Callers of a recogniser and of a voice, and their waiting times.

Each caller is a stream of its own. Audio comes in real time, 20 ms at a time; a clause is requested when the
one before was made. Waits are measured on the loop, where they would affect the pipeline.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from parley.models.stt import Transcript
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.runtime.utterances import UtteranceEngine

PIECE_S = 0.02
PIECE_BYTES = 640
# Longest pause between two utterances of a caller.
PAUSE_S = 0.3


@dataclass
class Waits:
    """Waiting times in milliseconds.

    Attributes:
        first_ms: to the first partial, or the final when none came in time. To the first audio for a voice.
        whole_ms: from the end of the audio to the final. To the last audio of a clause for a voice.
        lost: number of utterances or clauses without a result.
    """

    first_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    lost: int = 0

    def summary(self) -> dict[str, object]:
        """Return p50 and p99 of each."""
        return {
            "first_ms": percentiles(self.first_ms),
            "whole_ms": percentiles(self.whole_ms),
            "measured": len(self.whole_ms),
            "lost": self.lost,
        }


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """Return p50 and p99; None without values."""
    if len(values) < 2:
        return {"p50": round(values[0], 2), "p99": round(values[0], 2)} if values else None
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}


async def heard(
    engine: UtteranceEngine[Transcript], utterances: Sequence[bytes], *, streams: int, each: int
) -> Waits:
    """Run ``streams`` callers, each with ``each`` utterances."""
    waits = Waits()

    async def caller(number: int) -> None:
        draw = random.Random(number)
        loop = asyncio.get_running_loop()
        partial_s: list[float] = []
        stream = await engine.open_stream(lambda _partial: partial_s.append(loop.time()), lambda _error: None)
        for turn in range(each):
            await asyncio.sleep(draw.uniform(0, PAUSE_S))
            audio = utterances[(number + turn) % len(utterances)]
            partial_s.clear()
            began_s = due_s = loop.time()
            stream.start()
            for at in range(0, len(audio), PIECE_BYTES):
                stream.feed(audio[at : at + PIECE_BYTES])
                due_s += PIECE_S
                await asyncio.sleep(max(0.0, due_s - loop.time()))
            ended_s = loop.time()
            text = (await stream.finish()).text
            final_s = loop.time()
            if not text:
                waits.lost += 1
                continue
            waits.whole_ms.append((final_s - ended_s) * 1000)
            # A late engine makes its partials only when they are no longer of use.
            waits.first_ms.append(((partial_s[0] if partial_s else final_s) - began_s) * 1000)
        stream.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(streams):
            tasks.create_task(caller(number))
    return waits


async def spoken(
    voice: TextToSpeech, executor: Executor, clauses: Sequence[str], *, streams: int, each: int
) -> Waits:
    """Run ``streams`` callers, each with ``each`` clauses of the voice."""
    waits = Waits()
    loop = asyncio.get_running_loop()

    async def caller(number: int) -> None:
        draw = random.Random(number)
        for turn in range(each):
            await asyncio.sleep(draw.uniform(0, PAUSE_S))
            clause = clauses[(number + turn) % len(clauses)]
            first_s: list[float] = []
            began_s = time.monotonic()
            spoken_all = await loop.run_in_executor(executor, _speak, voice, clause, first_s.append)
            if not spoken_all or not first_s:
                waits.lost += 1
                continue
            waits.whole_ms.append((time.monotonic() - began_s) * 1000)
            waits.first_ms.append((first_s[0] - began_s) * 1000)

    async with asyncio.TaskGroup() as tasks:
        for number in range(streams):
            tasks.create_task(caller(number))
    return waits


def _speak(voice: TextToSpeech, clause: str, on_audio: Callable[[float], None]) -> bool:
    def sink(piece: SpeechPiece) -> bool:
        if piece.pcm:
            on_audio(time.monotonic())
        return True

    return voice.synthesize(clause, sink)
