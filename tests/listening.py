"""Helpers of the recognisers' tests: play audio to a stream, in this process or in a child process."""

import pytest
from pydantic import BaseModel

from parley.contracts.speech import PIECE_BYTES, play, understand
from parley.models.stt import Transcript
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.runtime.engine_process import EngineProcess

__all__ = ["PIECE_BYTES", "Ticking", "play", "understand", "understood_in_a_child"]


class Ticking:
    """Clock that advances when it is read: a pass of an engine reads it before and after."""

    def __init__(self, step_s: float) -> None:
        self._step_s = step_s
        self._now_s = 0.0

    def __call__(self) -> float:
        self._now_s += self._step_s
        return self._now_s


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
