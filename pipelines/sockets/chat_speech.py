"""Speech of the answer to a typed turn: clause by clause, as fast as the voice is, for the client to play.

Text goes in as the model writes it, and pieces of audio come out in order; a clause is begun when the
previous one has been delivered. An embedded voice works in threads that the whole process shares, and never
waits there for a client. A clause is short and is taken into memory whole. A service of Pipecat works in a
pipeline of its own and cuts the text as it does in a call. Closed in the middle, either stops within a piece.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Executor
from contextlib import aclosing
from typing import Protocol

import numpy as np
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.audio.resample import Resampler
from parley.core.errors import EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples, pcm16_to_float
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.models.tts.clauses import ClauseSplitter
from parley.pipelines.builder import Stages
from parley.pipelines.engines.engines import Engines
from parley.pipelines.text.typed_turns import running
from parley.processors.speech.crossing import Crossing, Ended
from parley.processors.speech.engine_tts import EngineTtsSettings
from parley.protocols.chat_ws import VOICE_RATE_HZ

# Longest audio that is resampled on the loop, in 2.5 ms; longer audio goes to a thread.
SMALL_MS = 250
# Least length of a message, except the last of a clause.
PIECE_MS = 400


class Spoken(Protocol):
    """Speech of one answer, made while its text is written."""

    def write(self, text: str) -> None:
        """Add text of the answer."""
        ...

    def end(self) -> None:
        """End the text of the answer."""
        ...

    def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield float32 at ``VOICE_RATE_HZ``, little-endian, until the end.

        Raises:
            EngineError: the voice failed.
        """
        ...


def open_speech(engines: Engines, name: str = "") -> Spoken:
    """Return the speech of one answer by a voice; by the deployment's own where ``name`` is empty."""
    voice, speaking = engines.voice_named(name), engines.deployment.speaking
    delivery = EngineTtsSettings()
    if voice is None:
        quiet_s = delivery.engine_timeout_ms / 1000
        return ServiceAnswer(engines.build_tts, speaking.tts.name, quiet_s=quiet_s)
    return SpokenAnswer(voice, engines.executors.speech, delivery)


class SpokenAnswer:
    """``Spoken`` by an embedded voice.

    Args:
        voice: an embedded voice.
        executor: threads of synthesis.
        options: rules for the ends of clauses, and the longest wait for the voice's next piece.
    """

    def __init__(self, voice: TextToSpeech, executor: Executor, options: EngineTtsSettings) -> None:
        self._voice = voice
        self._executor = executor
        self._options = options
        self._splitter = ClauseSplitter(options.clauses)
        # Bounded by the answer, whose length the model bounds. None marks its end.
        self._clauses: asyncio.Queue[str | None] = asyncio.Queue()
        self._resampler = Resampler(voice.rate_hz, VOICE_RATE_HZ)

    def write(self, text: str) -> None:
        """Queue the clauses that the text completes (``Spoken``)."""
        for clause in self._splitter.push(text):
            self._clauses.put_nowait(clause)

    def end(self) -> None:
        """Queue the rest of the text as the last clause (``Spoken``)."""
        rest = self._splitter.flush()
        if rest.strip():
            self._clauses.put_nowait(rest)
        self._clauses.put_nowait(None)

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the audio of each clause in turn, at least ``PIECE_MS`` at a time (``Spoken``)."""
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


class _Heard(FrameProcessor):
    """Collector after a service: its audio, in order; None at the end, an error where it failed."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        # Bounded by the answer.
        self.audio: asyncio.Queue[tuple[bytes, int] | EngineError | None] = asyncio.Queue()
        self._speaking = 0
        self._is_all = self._has_spoken = False

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        match frame:
            case TTSAudioRawFrame():
                self.audio.put_nowait((frame.audio, frame.sample_rate))
            case TTSStartedFrame():
                self._speaking += 1
                self._has_spoken = True
            case TTSStoppedFrame():
                self._speaking -= 1
                self._end()
            case LLMFullResponseEndFrame():
                self._is_all = True
                self._end()
        await self.push_frame(frame, direction)

    def _end(self) -> None:
        # The text may be over before its speech begins.
        if self._is_all and self._has_spoken and self._speaking <= 0:
            self.audio.put_nowait(None)


class _Errors(FrameProcessor):
    """Observer ahead of a service: its errors end the answer."""

    def __init__(self, heard: _Heard, name: str) -> None:
        super().__init__(enable_direct_mode=True)
        self._heard = heard
        self._engine = name

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, ErrorFrame):
            self._heard.audio.put_nowait(EngineError(f"the voice failed: {frame.error}", engine=self._engine))
        await self.push_frame(frame, direction)


class ServiceAnswer:
    """``Spoken`` by a service of Pipecat.

    Args:
        build: builds the service, for this answer alone.
        name: name of the service, for errors.
        quiet_s: longest wait for more audio once there is text.
    """

    def __init__(self, build: Callable[[], Awaitable[FrameProcessor]], name: str, *, quiet_s: float) -> None:
        self._build = build
        self._name = name
        self._quiet_s = quiet_s
        # Bounded by the answer. None marks its end.
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._has_text = asyncio.Event()
        self._resampler: Resampler | None = None

    def write(self, text: str) -> None:
        """Queue text for the service (``Spoken``)."""
        self._texts.put_nowait(text)
        if text.strip():
            self._has_text.set()

    def end(self) -> None:
        """End the text (``Spoken``)."""
        self._texts.put_nowait(None)
        self._has_text.set()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Build the service at the first text; yield its audio until the end (``Spoken``)."""
        await self._has_text.wait()
        heard = _Heard()
        service = await self._build()
        async with running(Stages(speech=[_Errors(heard, self._name), service, heard])) as worker:
            writing = asyncio.create_task(self._write(worker), name="chat.voice.text")
            try:
                while (piece := await self._next(heard, writing)) is not None:
                    pcm, rate_hz = piece
                    if self._resampler is None:
                        self._resampler = Resampler(rate_hz, VOICE_RATE_HZ)
                    yield self._resampler.feed(pcm16_to_float(pcm)).astype("<f4").tobytes()
            finally:
                writing.cancel()
                await asyncio.wait({writing})
        if self._resampler is not None:
            rest = self._resampler.feed(np.zeros(self._resampler.delay_samples, np.float32))
            yield rest.astype("<f4").tobytes()

    async def _write(self, worker: PipelineWorker) -> None:
        await worker.queue_frame(LLMFullResponseStartFrame())
        while (text := await self._texts.get()) is not None:
            await worker.queue_frame(LLMTextFrame(text))
        await worker.queue_frame(LLMFullResponseEndFrame())

    async def _next(self, heard: _Heard, writing: "asyncio.Task[None]") -> tuple[bytes, int] | None:
        """Return the next piece of audio; None at its end. The voice may wait while the model writes."""
        while True:
            try:
                async with asyncio.timeout(self._quiet_s):
                    item = await heard.audio.get()
            except TimeoutError:
                if not writing.done():
                    continue
                raise EngineError(f"no audio for {self._quiet_s:g} s", engine=self._name) from None
            if isinstance(item, EngineError):
                raise item
            return item
