"""Server that speaks the protocol of moshi-server's batched recogniser, with faults.

It takes one message for each step of its model, as the real one does: audio makes a step, and a marker is
returned when the steps of the model's delay have been made after it. A word is reported when the delay has
passed since its beginning, and its end when a delay has passed since that. Each loud stretch of ``WORD_MS``
is a word.
"""

from dataclasses import dataclass, field

import msgpack
import numpy as np
from websockets.asyncio.server import ServerConnection
from websockets.http11 import Request

from parley.evals.harness.services.cloud_recognisers import (
    KEY,
    WORD_MS,
    WORDS,
    CloudRecogniser,
    HeardWord,
    RecogniserFault,
)

STEP_SAMPLES, STEP_MS = 1_920, 80
# Of ``stt-1b-en_fr``.
DELAY_STEPS = 6
_LOUD = 300 / 32_768


@dataclass
class _Stream:
    """Stream of one client.

    Attributes:
        steps: number of steps that were made.
        words: those that begin in the audio so far.
        began, ended: numbers of words that were reported, and whose ends were.
        markers: markers that were not returned, with the steps at which they are.
    """

    steps: int = 0
    loud: int = 0
    words: list[HeardWord] = field(default_factory=list)
    began: int = 0
    ended: int = 0
    markers: list[tuple[int, int]] = field(default_factory=list)


class MoshiServer(CloudRecogniser):
    """The server.

    Attributes:
        said: words that it writes.
        repeats: after the last of them it writes the first one again.
        steps: steps of the last client.
    """

    path = "/api/asr-streaming"
    said: tuple[str, ...] = WORDS
    repeats = True
    steps = 0

    def knows(self, request: Request) -> bool:
        return request.headers.get("kyutai-api-key") == KEY and request.path == self.path

    async def open(self, client: ServerConnection) -> None:
        if self.fault is RecogniserFault.LIMITED:
            await self.limit(client)
        else:
            await client.send(msgpack.packb({"type": "Ready"}))

    async def limit(self, client: ServerConnection) -> None:
        await client.send(msgpack.packb({"type": "Error", "message": "no free channels"}))
        await client.close()

    def asks_for_finals(self, message: str) -> bool:
        raise AssertionError("a client sends binary messages")

    def results(self, words: list[HeardWord], *, are_final: bool) -> list[str]:
        raise AssertionError("there are no results")

    async def listen(self, client: ServerConnection) -> None:
        stream = _Stream()
        async for message in client:
            assert isinstance(message, bytes)
            if self.fault is RecogniserFault.GARBAGE:
                await client.send("<html>502 Bad Gateway</html>")
            if self.fault in (RecogniserFault.HANGS, RecogniserFault.GARBAGE):
                continue
            fields = msgpack.unpackb(message)
            if fields["type"] == "Marker":
                stream.markers.append((fields["id"], stream.steps + DELAY_STEPS))
                continue
            assert fields["type"] == "Audio" and len(fields["pcm"]) == STEP_SAMPLES, message[:40]
            await self._step(client, stream, np.array(fields["pcm"], np.float32))
            if self.fault is RecogniserFault.CUT and stream.began >= self.cut_words:
                client.transport.abort()
                return

    async def _step(self, client: ServerConnection, stream: _Stream, pcm: np.ndarray) -> None:
        # In parts of 10 ms, as a voice begins and ends in the middle of a step.
        for part in pcm.reshape(-1, 240):
            stream.loud += 10 if np.sqrt(np.mean(part.astype(float) ** 2)) > _LOUD else 0
        stream.steps += 1
        self.steps = stream.steps
        end_ms = stream.steps * STEP_MS
        while stream.loud >= WORD_MS * (len(stream.words) + 1):
            if not self.repeats and len(stream.words) == len(self.said):
                break
            text = self.said[len(stream.words) % len(self.said)]
            stream.words.append(HeardWord(text, end_ms - WORD_MS, end_ms))
        await self._report(client, stream, end_ms - DELAY_STEPS * STEP_MS)

    async def _report(self, client: ServerConnection, stream: _Stream, known_ms: int) -> None:
        probabilities = [0.1, 0.2, 0.3, 0.4]
        messages: list[dict[str, object]] = [
            {"type": "Step", "step_idx": stream.steps, "prs": probabilities, "buffered_pcm": 0}
        ]
        while stream.ended < stream.began and stream.words[stream.ended].end_ms <= known_ms:
            messages.append({"type": "EndWord", "stop_time": stream.words[stream.ended].end_ms / 1000})
            stream.ended += 1
        while stream.began < len(stream.words) and stream.words[stream.began].start_ms <= known_ms:
            word = stream.words[stream.began]
            if stream.ended < stream.began:
                break
            messages.append({"type": "Word", "text": word.text, "start_time": word.start_ms / 1000})
            stream.began += 1
        while stream.markers and stream.markers[0][1] <= stream.steps:
            number, _ = stream.markers.pop(0)
            if self.fault is not RecogniserFault.NO_FINALS:
                messages.append({"type": "Marker", "id": number})
        for each in messages:
            await client.send(msgpack.packb(each))
