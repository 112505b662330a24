"""``python -m research.turn_taking.spotter_cost``: cost of recognising short voices twice.

The spotter that ships runs in a child process, as in a server, with ``StopWords`` on the loop before it. It
gets voices over the bot one by one, faster than real time: short ones (commands, questions, backchannels,
hums, coughs) and sentences. Reported separately are the processor time of the child for each voice, that of
the loop for each second of audio, and the wall-clock time to a result. The cost of a call follows from how
often a sound is made over the bot; ``--every-s`` sets that.

Voices are synthetic, without an echo path, which does not affect the cost.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import AgentError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16
from parley.evals.echo.rooms import RATE_HZ
from parley.evals.harness.command import machine, positive, positive_number
from parley.evals.harness.report import percentile
from parley.evals.turns import audio, overlap_calls, sounds
from parley.evals.turns.texts import sentences
from parley.models.keyword_spotting import COMMANDS
from parley.models.keyword_spotting.pocketsphinx import CommandSettings
from parley.models.stt import Transcript
from parley.processors.front_end.vad import VadSettings
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.processors.turns.stop_words import StopWords
from parley.runtime.engine_process import EngineProcess

PIECE_BYTES = 20 * RATE_HZ // 1000 * PCM_BYTES_PER_SAMPLE
# Time that voice activity detection takes to confirm a voice, and its end.
START_MS, STOP_MS = VadSettings().start_ms, VadSettings().stop_ms
# Length of a call in which only the bot talks.
QUIET_S = 60
# A later result is a failure: the child's own deadline is earlier.
RESULT_S = 10
TICKS_A_S = os.sysconf("SC_CLK_TCK")
SHORT_TEXTS = (
    *overlap_calls.STOP_TEXTS,
    *overlap_calls.QUESTION_TEXTS,
    *overlap_calls.CORRECTION_TEXTS,
    *overlap_calls.BACKCHANNEL_TEXTS,
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    root = argparse.ArgumentParser(prog="python -m research.turn_taking.spotter_cost")
    root.add_argument(
        "--voices", type=positive, default=60, help="short voices; half as many sentences are used"
    )
    root.add_argument(
        "--every-s",
        type=positive_number,
        default=10.0,
        help="interval of the bot's speech between two short voices",
    )
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--json", type=Path, help="write the figures to this JSON file")
    arguments = root.parse_args(argv)
    try:
        figures = asyncio.run(measure(arguments.voices, arguments.seed, arguments.every_s))
    except AgentError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    return 0


async def measure(voices: int, seed: int, every_s: float) -> dict[str, Any]:
    """Return the figures by name.

    Raises:
        ConfigError: the spotter does not load.
        EngineError: the spotter does not load.
    """
    rng = np.random.default_rng(seed)
    short, long = await asyncio.to_thread(_made, voices, rng)
    target = COMMANDS.row("pocketsphinx").target
    child = EngineProcess(target, CommandSettings(), decode=transcript_from_fields, name="spotter")
    await child.start()
    try:
        stop_words = StopWords(child)
        await stop_words.open()
        quiet_s = _hear(stop_words, bytes(QUIET_S * RATE_HZ * PCM_BYTES_PER_SAMPLE))
        of_short = [await _listen(stop_words, child, pcm) for pcm in short]
        of_long = [await _listen(stop_words, child, pcm) for pcm in long]
        stop_words.close()
        rss_kb = _status_kb(child.pid, "VmRSS")
    finally:
        await child.close()
    child_ms = [1000 * each["child_s"] for each in of_short]
    loop_ms = [1000 * each["loop_s"] for each in of_short]
    return {
        "voices": len(short),
        "sentences": len(long),
        "child_ms_of_a_short_voice": {
            "mean": round(float(np.mean(child_ms)), 1),
            "p95": percentile(child_ms, 95),
        },
        "child_ms_of_a_sentence": round(1000 * float(np.mean([each["child_s"] for each in of_long])), 1),
        "loop_ms_of_a_short_voice": round(float(np.mean(loop_ms)), 3),
        "loop_ms_of_a_sentence": round(1000 * float(np.mean([each["loop_s"] for each in of_long])), 3),
        "loop_ms_of_a_second_without_a_voice": round(1000 * quiet_s / QUIET_S, 3),
        "result_ms": {
            f"p{p}": percentile([1000 * each["result_s"] for each in of_short], p) for p in (50, 95)
        },
        "every_s": every_s,
        "cpu_s_of_a_call_second": {
            "bot_talks": round((float(np.mean(child_ms)) + float(np.mean(loop_ms))) / 1000 / every_s, 5),
            "bot_is_silent": round(quiet_s / QUIET_S, 6),
        },
        "child_mb": round(rss_kb / 1024, 1),
        "machine": machine(),
    }


def _made(voices: int, rng: np.random.Generator) -> tuple[list[bytes], list[bytes]]:
    """Return short voices and sentences as 16-bit PCM."""
    speakers = audio.Speakers()

    def said(text: str, place: int) -> np.ndarray:
        voice = overlap_calls.CALLERS[place % len(overlap_calls.CALLERS)]
        return audio.trimmed(speakers.speak(*voice, text)[0])

    short: list[np.ndarray] = []
    for place in range(voices):
        kind = rng.integers(8)
        if kind == 0:
            short.append(sounds.hum(rng))
        elif kind == 1:
            short.append(sounds.cough(rng))
        else:
            short.append(said(SHORT_TEXTS[int(rng.integers(len(SHORT_TEXTS)))], place))
    corpus = sentences(held_out=False)
    long = [said(corpus[int(rng.integers(len(corpus)))], place) for place in range(voices // 2)]
    return [float_to_pcm16(each) for each in short], [float_to_pcm16(each) for each in long]


async def _listen(stop_words: StopWords, child: EngineProcess[Transcript], pcm: bytes) -> dict[str, float]:
    """Process one voice; return the seconds of the child, of the loop, and until the result."""
    found = asyncio.Event()
    before_s = _cpu_s(child.pid)
    start_bytes = START_MS * RATE_HZ // 1000 * PCM_BYTES_PER_SAMPLE
    loop_s = _hear(stop_words, bytes(RATE_HZ) + pcm[:start_bytes])
    began_s = time.thread_time()
    stop_words.on_voice_started(START_MS)
    loop_s += time.thread_time() - began_s
    loop_s += _hear(stop_words, pcm[start_bytes:] + bytes(STOP_MS * RATE_HZ // 1000 * PCM_BYTES_PER_SAMPLE))
    began_s, ended_s = time.thread_time(), time.monotonic()
    if stop_words.on_voice_stopped(lambda _command: found.set()):
        loop_s += time.thread_time() - began_s
        async with asyncio.timeout(RESULT_S):
            await found.wait()
    return {
        "child_s": _cpu_s(child.pid) - before_s,
        "loop_s": loop_s,
        "result_s": time.monotonic() - ended_s,
    }


def _hear(stop_words: StopWords, pcm: bytes) -> float:
    """Return the processor seconds that this audio takes, piece by piece."""
    pieces = [pcm[at : at + PIECE_BYTES] for at in range(0, len(pcm), PIECE_BYTES)]
    began_s = time.thread_time()
    for piece in pieces:
        stop_words.hear(piece)
    return time.thread_time() - began_s


def _cpu_s(pid: int | None) -> float:
    """Return the user and system time of a process (proc(5), fields 14 and 15 of stat)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_A_S


def _status_kb(pid: int | None, name: str) -> int:
    """Return the number in one line of proc(5)'s status."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


if __name__ == "__main__":
    sys.exit(main())
