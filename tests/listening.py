"""Helpers of the recognisers' tests: play audio to a stream, in this process or in a child process."""

import pytest
from pydantic import BaseModel

from parley.models.stt import SpeechStream, Transcript
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.runtime.engine_process import EngineProcess

# 20 ms at 16 kHz.
PIECE_BYTES = 640


class Ticking:
    """Clock that advances when it is read: a pass of an engine reads it before and after."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self._step_s
        return self._now_s


def play(stream: SpeechStream, pcm: bytes, piece_bytes: int = PIECE_BYTES) -> list[Transcript]:
    """Feed audio in pieces; return the partials."""
    partials = [stream.feed(pcm[at : at + piece_bytes]) for at in range(0, len(pcm), piece_bytes)]
    return [partial for partial in partials if partial is not None]


def understand(stream: SpeechStream, pcm: bytes, piece_bytes: int = PIECE_BYTES) -> Transcript:
    """Feed one utterance from start to finish, and return its final transcript."""
    stream.start()
    play(stream, pcm, piece_bytes)
    return stream.finish()


async def understood_in_a_child(factory: str, settings: BaseModel, pcm: bytes) -> Transcript:
    """Return the same from an engine in a process of its own."""
    process = EngineProcess(factory, settings, decode=transcript_from_fields)
    await process.start()
    try:
        partials: list[Transcript] = []
        stream = await process.open_stream(partials.append, lambda error: pytest.fail(str(error)))
        stream.start()
        stream.feed(pcm)
        final = await stream.finish()
        stream.close()
        return final
    finally:
        await process.close()
