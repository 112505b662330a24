"""Transcription of recordings that a client sends whole: by the deployment's recogniser, off the loop.

A recording is one utterance of a stream of its own. An embedded recogniser works in a child process that
serves calls too and drops audio that piles up. It receives pieces as it works through the earlier ones, so a
call waits for a few of them at most. A service of Pipecat transcribes the recording in a pipeline of its own,
with frames that mark where the voice begins and ends. Slow: the deadline applies. Full: tried again until the
deadline. Failed: the error is raised, and the next recording gets a new stream.
"""

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable, Sequence

import numpy as np
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.audio.resample import Resampler
from parley.core.errors import EngineBusyError, EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE, float_to_pcm16, pcm16_to_float
from parley.models.stt import Transcript
from parley.pipelines.builder import Stages
from parley.pipelines.text.typed_turns import running
from parley.protocols.chat_ws import AUDIO_RATE_HZ
from parley.protocols.client_protocol import ProtocolError
from parley.runtime.utterances import UtteranceEngine

PIECE_MS = 200
# Audio that may wait in the engine, and the interval at which that is checked.
MOST_WAITING_MS, LOOK_S = 400, 0.02
BUSY_PAUSE_S = 0.2
# A service sends the words of a recording in one piece or in several, and does not mark the last one. This
# much quiet after a piece counts as the end.
SETTLE_S = 1.0
ENGINE = "recogniser"


def decoded_pcm(data: str, where: str, *, most_bytes: int) -> bytes:
    """Return 16-bit PCM at ``AUDIO_RATE_HZ`` from base64 float32. Blocks in proportion to its length.

    Raises:
        ProtocolError: the data is invalid, or too long.
    """
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ProtocolError(f"{where}: not base64: {error}", code="invalid_payload", param=where) from error
    if len(raw) % 4 or not raw:
        raise ProtocolError(
            f"{where}: not a whole number of float32 samples", code="invalid_payload", param=where
        )
    if len(raw) > most_bytes:
        raise ProtocolError(
            f"{where}: over {most_bytes // 4 // AUDIO_RATE_HZ} s of audio", code="too_large", param=where
        )
    samples = np.frombuffer(raw, "<f4")
    if not np.isfinite(samples).all():
        raise ProtocolError(f"{where}: non-finite samples", code="invalid_payload", param=where)
    return float_to_pcm16(np.clip(samples, -1, 1).astype(np.float32))


async def understood(engine: UtteranceEngine[Transcript], pcm: bytes, *, within_s: float) -> str:
    """Return the words of a recording; empty when none were recognised. Raises as ``transcribed``."""
    return (await transcribed(engine, pcm, within_s=within_s)).text.strip()


async def transcribed(engine: UtteranceEngine[Transcript], pcm: bytes, *, within_s: float) -> Transcript:
    """Return the transcript of a recording, whose text is empty when no words were recognised.

    Args:
        engine: recogniser, shared by all calls.
        pcm: 16-bit mono at ``AUDIO_RATE_HZ``.
        within_s: the deadline.

    Raises:
        EngineError: the engine failed, was full all the time, or took longer.
    """
    if engine.rate_hz != AUDIO_RATE_HZ:
        pcm = await asyncio.to_thread(_resampled, pcm, engine.rate_hz)
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    return await _once(engine, pcm)
                except EngineBusyError:
                    await asyncio.sleep(BUSY_PAUSE_S)
    except TimeoutError:
        raise EngineError(f"no transcript arrived within {within_s:g} s", engine=ENGINE) from None


async def _once(engine: UtteranceEngine[Transcript], pcm: bytes) -> Transcript:
    failures: list[EngineError] = []
    stream = await engine.open_stream(lambda _partial: None, failures.append)
    try:
        stream.start()
        piece_bytes = engine.rate_hz * PIECE_MS // 1000 * PCM_BYTES_PER_SAMPLE
        for start in range(0, len(pcm), piece_bytes):
            if failures:
                raise failures[0]
            stream.feed(pcm[start : start + piece_bytes])
            # An engine does not notify when it has worked through its audio.
            while stream.waiting_ms > MOST_WAITING_MS and not failures:  # noqa: ASYNC110
                await asyncio.sleep(LOOK_S)
        result = await stream.finish()
        if stream.dropped_ms:
            raise EngineError(f"{stream.dropped_ms} ms of the recording were lost", engine=ENGINE)
        return result
    finally:
        stream.close()


class _Words(FrameProcessor):
    """Observer before and after a service: its words, and its error where it fails."""

    def __init__(self, said: "asyncio.Queue[str | EngineError]") -> None:
        super().__init__(enable_direct_mode=True)
        self._said = said

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            self._said.put_nowait(frame.text)
        elif isinstance(frame, ErrorFrame):
            self._said.put_nowait(EngineError(f"the recogniser failed: {frame.error}", engine=ENGINE))
        await self.push_frame(frame, direction)


async def understood_by_service(
    build: Callable[[], Awaitable[FrameProcessor]], pcm: bytes, *, within_s: float
) -> str:
    """Return the words of a recording by a service of Pipecat, built for this recording alone.

    Args:
        build: builds the service.
        pcm: 16-bit mono at ``AUDIO_RATE_HZ``.
        within_s: the deadline; a service without words by then has recognised none.

    Raises:
        EngineError: the service failed.
    """
    # Bounded by the recording.
    said: asyncio.Queue[str | EngineError] = asyncio.Queue()
    words: list[str] = []
    piece_bytes = AUDIO_RATE_HZ * PIECE_MS // 1000 * PCM_BYTES_PER_SAMPLE
    deadline_s = asyncio.get_running_loop().time() + within_s
    service = await build()
    async with running(Stages(perception=[_Words(said), service, _Words(said)])) as worker:
        await worker.queue_frame(VADUserStartedSpeakingFrame())
        for start in range(0, len(pcm), piece_bytes):
            piece = pcm[start : start + piece_bytes]
            await worker.queue_frame(InputAudioRawFrame(piece, AUDIO_RATE_HZ, 1))
        await worker.queue_frame(VADUserStoppedSpeakingFrame())
        while True:
            left_s = deadline_s - asyncio.get_running_loop().time()
            try:
                async with asyncio.timeout(min(SETTLE_S, left_s) if words else left_s):
                    item = await said.get()
            except TimeoutError:
                return " ".join(words)
            if isinstance(item, EngineError):
                raise item
            words.append(item.strip())


def _resampled(pcm: bytes, rate_hz: int) -> bytes:
    return float_to_pcm16(resampled(pcm16_to_float(pcm), AUDIO_RATE_HZ, rate_hz))


def resampled(samples: np.ndarray, from_hz: int, to_hz: int) -> np.ndarray:
    """Return a whole recording at another rate, to its last sample."""
    resampler = Resampler(from_hz, to_hz)
    rest = np.zeros(resampler.delay_samples, np.float32)
    return np.concatenate([resampler.feed(samples), resampler.feed(rest)])


def joined(texts: Sequence[str]) -> str:
    """Join the words of one message, one line for each piece."""
    return "\n".join(text.strip() for text in texts if text.strip())
