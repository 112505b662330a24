"""Callers of a recogniser and of a voice, and how long they wait.

Each caller is a stream of its own: audio comes as fast as it is spoken, 20 ms at a time; a clause is asked
for when the one before was made. Waits are on the loop, where the pipeline would feel them.
"""

import asyncio
import random
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from models.stt import Transcript
from models.tts import SpeechPiece, TextToSpeech
from runtime.utterances import UtteranceEngine

PIECE_S = 0.02
PIECE_BYTES = 640
# Between two utterances of a caller, at most.
PAUSE_S = 0.3


@dataclass
class Waits:
    """In milliseconds.

    Attributes:
        first_ms: to the first partial, or the final where none came in time; to the first audio.
        whole_ms: from the end of the audio to the final, or to the last of a clause.
        lost: utterances or clauses that came to nothing.
    """

    first_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    lost: int = 0

    def summary(self) -> dict[str, object]:
        """p50 and p99 of each."""
        return {
            "first_ms": percentiles(self.first_ms),
            "whole_ms": percentiles(self.whole_ms),
            "measured": len(self.whole_ms),
            "lost": self.lost,
        }


def percentiles(values: Sequence[float]) -> dict[str, float] | None:
    """p50 and p99; None of nothing."""
    if len(values) < 2:
        return {"p50": round(values[0], 2), "p99": round(values[0], 2)} if values else None
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {"p50": round(cuts[49], 2), "p99": round(cuts[98], 2)}


async def heard(
    engine: UtteranceEngine[Transcript], utterances: Sequence[bytes], *, streams: int, each: int
) -> Waits:
    """``streams`` callers, ``each`` of whom says so many utterances."""
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
            # An engine that is behind has its partials made too late for anybody to want them.
            waits.first_ms.append(((partial_s[0] if partial_s else final_s) - began_s) * 1000)
        stream.close()

    async with asyncio.TaskGroup() as tasks:
        for number in range(streams):
            tasks.create_task(caller(number))
    return waits


async def spoken(
    voice: TextToSpeech, executor: Executor, clauses: Sequence[str], *, streams: int, each: int
) -> Waits:
    """``streams`` callers, to ``each`` of whom so many clauses are said."""
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
