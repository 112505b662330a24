"""Synthesis of one clause, as the loop sees it: pieces of audio, then an end.

``Crossing`` transfers the pieces of an engine from a synthesis thread to the loop through a bounded buffer. A
loop that does not take the audio blocks the thread until a deadline, and then ends the clause with an error.
"""

import asyncio
import threading
from concurrent.futures import Executor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Protocol

from parley.core.errors import EngineError
from parley.models.tts import SpeechPiece, TextToSpeech


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a clause, with the error that ended it, if any."""

    error: Exception | None


class Crossing:
    """Transfer of one clause from a synthesis thread to the loop.

    Args:
        engine: the engine that speaks.
        limit_bytes: audio that may wait to be taken.
        stall_s: how long the thread waits for room.
    """

    def __init__(self, engine: TextToSpeech, *, limit_bytes: int, stall_s: float) -> None:
        self._engine = engine
        self._engine_name = type(engine).__name__
        self._loop = asyncio.get_running_loop()
        self._limit_bytes = limit_bytes
        self._stall_s = stall_s
        # Bounded by _waiting_bytes: the thread does not put more.
        self._pieces: asyncio.Queue[SpeechPiece | Ended] = asyncio.Queue()
        self._room = threading.Condition()
        self._waiting_bytes = 0
        self._stopped = False
        self._stalled = False

    @property
    def is_stalled(self) -> bool:
        """True when the thread has given up waiting for room."""
        return self._stalled

    def start(self, executor: Executor, text: str) -> None:
        """Start the synthesis of the clause; an executor that is shut down ends it."""
        try:
            # With the context of the call: its trace goes on in a worker.
            executor.submit(copy_context().run, self._speak, text)
        except RuntimeError as refused:
            self._post(Ended(refused))

    def _speak(self, text: str) -> None:
        error: Exception | None = None
        try:
            if not self._stopped:
                self._engine.synthesize(text, self._sink)
        except Exception as caught:  # The boundary of the thread: the loop reports the error.
            error = caught
        if self._stalled and error is None:
            error = EngineError("the pipeline did not take the audio in time", engine=self._engine_name)
        self._post(Ended(error))

    async def take(self, timeout_s: float) -> SpeechPiece | Ended:
        """Return the next piece, or the end; an engine that gives nothing for ``timeout_s`` has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                piece = await self._pieces.get()
        except TimeoutError:
            return Ended(EngineError("no audio in time", engine=self._engine_name))
        if isinstance(piece, SpeechPiece):
            with self._room:
                self._waiting_bytes -= len(piece.pcm)
                self._room.notify()
        return piece

    def stop(self) -> None:
        """Stop the engine at its next piece. May be called from any thread, repeatedly."""
        with self._room:
            self._stopped = True
            self._room.notify()

    def _sink(self, piece: SpeechPiece) -> bool:
        if not piece.pcm and not piece.words:
            # The engine has no output at this moment, and checks whether it should continue.
            return not self._stopped
        with self._room:
            free = self._room.wait_for(
                lambda: self._stopped or self._waiting_bytes < self._limit_bytes, self._stall_s
            )
            self._stalled = not free
            if self._stopped or self._stalled:
                return False
            self._waiting_bytes += len(piece.pcm)
        return self._post(piece)

    def _post(self, item: SpeechPiece | Ended) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, item)
        except RuntimeError:
            # The loop is closed: the call is over.
            return False
        return True


class ClauseSpeech(Protocol):
    """Synthesis of one clause that has begun."""

    async def take(self, timeout_s: float) -> SpeechPiece | Ended:
        """Return the next piece, or the end; a voice that gives nothing for ``timeout_s`` has ended."""
        ...

    def stop(self) -> None:
        """Stop the voice: the clause is not wanted any more. Does not block; may be called repeatedly."""
        ...
