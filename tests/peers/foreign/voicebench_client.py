"""A scripted conversation of voicebench, over its adapter for Pipecat's WebSocket.

``python voicebench_client.py ADDRESS QUESTION STOP``, in an environment with ``voicebench[pipecat]``, takes
the socket and two WAVs: QUESTION is asked, STOP is spoken over the answer, and a noise comes over the next
one. voicebench judges from the audio whether the bot answered, stopped and went on. The program prints what
it has seen as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

from player import LoopWatch, Player, keep_imports
from voicebench.adapters.pipecat import PipecatAdapter
from voicebench.audio import FloatArray
from voicebench.bench import run_benchmark
from voicebench.scenario import parse_scenario

RATE_HZ = 16_000
# Longer than the pauses of a voice inside of an answer, so that one answer is one piece of speech.
PAUSE_MS = 900
# A machine under load answers late.
LONGEST_MS = 30_000
PLAYER, WATCH = Player(), LoopWatch()


class TimedAdapter(PipecatAdapter):
    """The adapter, with the times at which the bot's audio came."""

    async def connect(self) -> None:
        await super().connect()
        WATCH.begin()

    def emit(self, event: Any) -> None:
        pcm: FloatArray | None = getattr(event, "pcm", None)
        if pcm is None:
            PLAYER.over()
        else:
            PLAYER.take("answer", pcm.size / RATE_HZ)
        super().emit(event)

    async def close(self) -> None:
        await WATCH.end()
        await super().close()


def turn(name: str, audio: dict[str, Any], after: str, delay_ms: int, expect: str) -> dict[str, Any]:
    """Return a turn of the script."""
    start = {"after": after, "delay_ms": delay_ms, "timeout_ms": LONGEST_MS}
    return {
        "id": name,
        "audio": audio,
        "start": start,
        "expect": expect,
        "response_timeout_ms": LONGEST_MS,
        "max_stop_ms": 3_000,
    }


async def main(address: str, question: str, stop: str) -> dict[str, Any]:
    """Hold the conversation; return voicebench's judgement of it."""
    asked = {"file": question}
    noise = {"synth": "noise", "duration_ms": 250, "level_db": -25}
    script = {
        "name": "parley",
        "sample_rate": RATE_HZ,
        "vad": {"agent": {"min_silence_ms": PAUSE_MS}},
        "turns": [
            # After the greeting.
            turn("question", asked, "agent_speech_end", 300, "respond"),
            turn("stop", {"file": stop}, "agent_speech_start", 1_500, "stop"),
            turn("again", asked, "agent_speech_end", 300, "respond"),
            turn("cough", noise, "agent_speech_start", 1_500, "ignore"),
        ],
    }
    found = await run_benchmark(parse_scenario(script), "__main__:TimedAdapter", {"url": address})
    [session] = found.sessions
    return {
        "turns": [[each.id, each.passed, each.trigger, each.notes] for each in session.turns],
        "answered_in_ms": session.turns[0].response_latency_ms,
        "stopped_in_ms": session.turns[1].stop_latency_ms,
        "truncated": session.truncated,
        **PLAYER.report(WATCH),
    }


if __name__ == "__main__":
    keep_imports()
    print(json.dumps(asyncio.run(main(*sys.argv[1:]))))
