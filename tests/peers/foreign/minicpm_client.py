"""A conversation by the MiniCPM-o server's full-duplex dialects, as its pages hold it: a second at a time.

``python -m tests.peers.foreign.minicpm_client URL QUESTION STOP`` takes the address, ``/ws/duplex/{id}`` or
``/v1/realtime?mode=audio``, and two WAVs of 24 kHz. STOP is spoken during the answer to QUESTION. The clients
are those of the tests. The program prints what it has seen as one line of JSON.
"""

import asyncio
import json
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import soxr
from websockets.asyncio.client import ClientConnection, connect

from tests.peers.foreign.player import RATE_HZ, LoopWatch, Player, keep_imports, pcm_of
from tests.peers.minicpm_duplex_client import Client, RealtimeClient, in_base64, samples_in

MODEL_HZ = 16_000
CUT_AFTER_S, LONGEST_S = 1.5, 60
# The page's player waits so long before the first sound of an answer.
DELAY_S = 0.2


@dataclass(frozen=True)
class Unit:
    """Answer to a second of sound.

    Attributes:
        text: words of the bot in it.
        samples: its sound, of 24 kHz.
        is_over: the bot's turn ends with it.
        is_cut: the client drops what it has not played.
    """

    text: str
    samples: np.ndarray
    is_over: bool
    is_cut: bool


class DuplexSession(Client):
    """Conversation of ``/ws/duplex/{id}``."""

    async def begin(self) -> None:
        """Prepare the conversation."""
        await self.prepared()

    async def unit(self, heard: np.ndarray) -> Unit:
        """Send a second of sound; return the answer to it."""
        await self.chunk(heard)
        result = await self.next("result")
        samples = samples_in(result["audio_data"])
        return Unit(result["text"], samples, bool(result["end_of_turn"]), bool(result["interrupted"]))


class RealtimeSession(RealtimeClient):
    """Conversation of ``/v1/realtime?mode=audio``, with every message checked by its schema."""

    _speaks = False

    async def begin(self) -> None:
        """Prepare the conversation."""
        await self.next("session.queue_done")
        await self.update()
        await self.next("session.created")

    async def unit(self, heard: np.ndarray) -> Unit:
        """Send a second of sound; return the answer to it. A bot that listens has fallen silent."""
        await self.say("input_audio_buffer.append", audio=in_base64(heard))
        answer = await self.next("response.listen", "response.output_audio.delta")
        if answer["type"] == "response.listen":
            was_cut, self._speaks = self._speaks, False
            return Unit("", np.zeros(0, np.float32), False, was_cut)
        self._speaks = not answer["end_of_turn"]
        return Unit(answer["text"], samples_in(answer["audio"]), bool(answer["end_of_turn"]), False)


async def main(url: str, question: bytes, stop: bytes) -> dict[str, Any]:
    """Hold the conversation until the bot has answered what was said over it; return what was seen of it."""
    player, watch = Player(DELAY_S), LoopWatch()
    async with connect(url, max_size=None) as socket:
        one = session_of(url, socket)
        await one.begin()
        watch.begin()
        turns, cuts, answer, began_s = list[str](), 0, "", None
        is_answered = False
        speech = np.concatenate([np.zeros(MODEL_HZ * 3 // 10, np.float32), _heard(question)])
        due_s = time.monotonic()
        ends_s = due_s + LONGEST_S
        has_cut = False
        while time.monotonic() < ends_s and not is_answered:
            piece, speech = speech[:MODEL_HZ], speech[MODEL_HZ:]
            unit = await one.unit(np.pad(piece, (0, MODEL_HZ - len(piece))))
            answer += unit.text
            if unit.is_cut:
                turns.append(answer.strip())
                cuts, answer = cuts + 1, ""
                player.over()
            if len(unit.samples):
                player.take("answer", len(unit.samples) / RATE_HZ)
                began_s = began_s or time.monotonic()
            if unit.is_over and not unit.is_cut:
                turns.append(answer.strip())
                answer = ""
                player.over()
                is_answered = has_cut and turns[-1].endswith("euros.")
            if began_s is not None and not has_cut and time.monotonic() - began_s > CUT_AFTER_S:
                has_cut = True
                speech = np.concatenate([speech, _heard(stop)])
            due_s += 1
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        await watch.end()
    return {
        "cuts": cuts,
        "turns": turns,
        "errors": [message for message in one.got if message["type"] == "error"],
        **player.report(watch),
    }


def session_of(url: str, socket: ClientConnection) -> DuplexSession | RealtimeSession:
    """Return the conversation of an address."""
    return RealtimeSession(socket) if "/v1/realtime" in url else DuplexSession(socket)


def _heard(pcm: bytes) -> np.ndarray:
    samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32_768
    return np.clip(soxr.resample(samples, RATE_HZ, MODEL_HZ), -1, 1).astype(np.float32)


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
