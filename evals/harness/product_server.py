"""The product's server with a change that a measurement needs: ``python -m evals.harness.product_server``.

It is set up as in ``bot.py``. With ``--samples`` it writes one line of JSON about itself to that file every
``--every-s``. ``--faked`` removes the cost of two engines, for the cost of the rest of a call: voice activity
detection never reports a voice, and the voice synthesises each clause once in the process and then takes it
from memory. Calls then consist of the greeting.
"""

import argparse
import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from loguru import logger

from parley.command.gateway import gateway
from parley.command.interpreter import settle
from parley.command.listener import claim_port
from parley.command.log import is_news
from parley.configs.load import load_deployment
from parley.core.errors import PeerError
from parley.evals.harness.comparison_server import HOST
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.pipelines.engines.engines import Engines
from parley.pipelines.sessions import open_conversations
from parley.runtime import event_loop
from parley.runtime.heap import bound_heap

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1_048_576


class Deaf:
    """Voice activity detector that never reports a voice; its own stream as well."""

    rate_hz, window_samples = 16_000, 512

    def open_stream(self) -> "Deaf":
        """Return the detector itself."""
        return self

    def probability(self, window: np.ndarray) -> float:
        """Return 0: there is never a voice."""
        return 0.0

    def reset(self) -> None:
        """Do nothing: there is no state."""


class Remembered:
    """Voice that repeats its first synthesis of each text.

    Args:
        voice: synthesises a text for the first time.
    """

    def __init__(self, voice: TextToSpeech) -> None:
        self.rate_hz = voice.rate_hz
        self._voice = voice
        self._said: dict[str, list[SpeechPiece]] = {}

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Pass the stored pieces of a text to the sink, synthesised at its first use."""
        pieces = self._said.get(text)
        if pieces is None:
            pieces = []

            def keep(piece: SpeechPiece) -> bool:
                pieces.append(piece)
                return True

            self._voice.synthesize(text, keep)
            self._said[text] = pieces
        return all(sink(piece) for piece in pieces)


class Collections:
    """Pauses of the garbage collector, by generation."""

    def __init__(self) -> None:
        self._begun_s = 0.0
        self.counts = [0, 0, 0]
        self.longest_ms = [0.0, 0.0, 0.0]
        self.freed = [0, 0, 0]
        gc.callbacks.append(self._note)

    def _note(self, phase: str, facts: dict[str, int]) -> None:
        if phase == "start":
            self._begun_s = time.perf_counter()
            return
        generation = facts["generation"]
        self.counts[generation] += 1
        self.freed[generation] += facts["collected"]
        pause_ms = (time.perf_counter() - self._begun_s) * 1000
        self.longest_ms[generation] = max(self.longest_ms[generation], pause_ms)


def sample(collections: Collections) -> dict[str, Any]:
    """Return memory, threads, descriptors, tasks and objects of the process."""
    return {
        "at_s": time.monotonic(),
        "rss_mb": int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB,
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "tasks": len(asyncio.all_tasks()),
        # Without those that were there when the server began, which are frozen.
        "objects": len(gc.get_objects()),
        "collections": list(collections.counts),
        "longest_collection_ms": [round(pause, 1) for pause in collections.longest_ms],
        "collected": list(collections.freed),
    }


async def watch(samples: Path, every_s: float) -> None:
    """Write samples to a file until cancelled."""
    collections = Collections()
    with samples.open("w") as file:
        while True:
            file.write(json.dumps(sample(collections)) + "\n")
            file.flush()
            await asyncio.sleep(every_s)


def fake(engines: Engines) -> None:
    """Remove the cost of voice activity detection and of the voice.

    Raises:
        PeerError: the voice is a service.
    """
    voice = engines.voice
    if voice is None:
        raise PeerError("the deployment's voice is a service")
    engines.vad = Deaf()
    engines.executors = replace(engines.executors, vad=None)
    engines.exchange(tts=Remembered(voice), front_end=None)


async def serve(arguments: argparse.Namespace) -> None:
    """Serve until a signal."""
    deployment = load_deployment(arguments.config)
    bound_heap()
    listener = claim_port(HOST, arguments.port)
    async with (
        await Engines.load(deployment, duplex=True) as engines,
        open_conversations(deployment, engines.answering) as conversations,
    ):
        if arguments.faked:
            fake(engines)
        async with gateway(engines, conversations, mode="cascade") as server:
            engines.host_front_end()
            engines.host_specialists()
            settle()
            watching = [
                asyncio.create_task(watch(samples, arguments.every_s), name="product_server.watch")
                for samples in [arguments.samples]
                if samples is not None
            ]
            try:
                await server.serve(sockets=[listener])
            finally:
                for task in watching:
                    task.cancel()
                await asyncio.gather(*watching, return_exceptions=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Run the product's server, changed for a measurement.")
    parser.add_argument("--config", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--samples", type=Path)
    parser.add_argument("--every-s", type=float, default=5.0)
    parser.add_argument("--faked", action="store_true")
    arguments = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING", filter=is_news)
    event_loop.run(serve(arguments))
    return 0


if __name__ == "__main__":
    sys.exit(main())
