"""The answer to a typed turn in sound: clause by clause, as fast as the voice is, for a client that plays it.

Text goes in as the model writes it, pieces of audio come out in order; the next clause is begun when the one
before is out. The voice works in the threads that all of the process share and never waits there for a
client: a clause is short and is taken into memory whole. Closed in the middle, it stops within a piece.
"""

import asyncio
from collections.abc import AsyncGenerator
from concurrent.futures import Executor
from contextlib import aclosing

import numpy as np

from audio.resample import Resampler
from core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, pcm16_to_float
from models.tts import SpeechPiece, TextToSpeech
from models.tts.clauses import ClauseSplitter
from processors.speech.engine_tts import Crossing, Ended, EngineTtsSettings
from protocols.chat_ws import VOICE_RATE_HZ

# Resampled on the loop, in 2.5 ms; more goes to a thread.
SMALL_MS = 250
# A message has at least so much, the last of a clause excepted.
PIECE_MS = 400


class SpokenAnswer:
    """One answer.

    Args:
        voice: embedded.
        executor: of synthesis.
        options: where clauses end, and how long the voice may take for the next piece.
    """

    def __init__(self, voice: TextToSpeech, executor: Executor, options: EngineTtsSettings) -> None:
        self._voice = voice
        self._executor = executor
        self._options = options
        self._splitter = ClauseSplitter(options.clauses)
        # Bounded by the answer, whose length the model bounds. None: it is complete.
        self._clauses: asyncio.Queue[str | None] = asyncio.Queue()
        self._resampler = Resampler(voice.rate_hz, VOICE_RATE_HZ)

    def write(self, text: str) -> None:
        """More of the answer."""
        for clause in self._splitter.push(text):
            self._clauses.put_nowait(clause)

    def end(self) -> None:
        """There is no more of it."""
        rest = self._splitter.flush()
        if rest.strip():
            self._clauses.put_nowait(rest)
        self._clauses.put_nowait(None)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Float32 at ``VOICE_RATE_HZ``, little-endian, until the end.

        Raises:
            EngineError: the voice failed.
        """
        while (clause := await self._clauses.get()) is not None:
            async with aclosing(self._spoken(clause.strip())) as pcm:
                async for each in pcm:
                    yield await self._at_rate(each)
        rest = self._resampler.feed(np.zeros(self._resampler.delay_samples, np.float32))
        if rest.size:
            yield rest.astype("<f4").tobytes()

    async def _spoken(self, clause: str) -> AsyncGenerator[bytes, None]:
        options, rate_hz = self._options, self._voice.rate_hz
        crossing = Crossing(
            self._voice,
            limit_bytes=ms_to_samples(options.buffer_ms, rate_hz) * PCM_BYTES_PER_SAMPLE,
            stall_s=options.stall_timeout_ms / 1000,
        )
        crossing.start(self._executor, clause)
        enough = ms_to_samples(PIECE_MS, rate_hz) * PCM_BYTES_PER_SAMPLE
        held = bytearray()
        try:
            while isinstance(item := await crossing.take(options.engine_timeout_ms / 1000), SpeechPiece):
                held += item.pcm
                if len(held) >= enough:
                    yield bytes(held)
                    held.clear()
        finally:
            crossing.stop()
        if held:
            yield bytes(held)
        if isinstance(item, Ended) and item.error is not None:
            raise item.error

    async def _at_rate(self, pcm: bytes) -> bytes:
        small = ms_to_samples(SMALL_MS, self._voice.rate_hz) * PCM_BYTES_PER_SAMPLE
        if len(pcm) <= small:
            return self._converted(pcm)
        return await asyncio.to_thread(self._converted, pcm)

    def _converted(self, pcm: bytes) -> bytes:
        return self._resampler.feed(pcm16_to_float(pcm)).astype("<f4").tobytes()
