"""A caller who says "stop" over the bot is heard by an engine that hears little else (``models.commands``).

In: the caller's audio, and when a voice begins and ends over a reply. Out: one call of ``on_spotted`` for
each such voice that is short enough, with what the engine made of it: a command or nothing, and how likely it
wants the floor. What follows from it is barge-in's to decide. Nobody is listened to while the bot is silent:
"wait" is part of a turn then.

What it costs: a copy of the voice's audio, and one search in another process for each voice over a reply that
is as short as a command. The audio is kept here until the voice has ended and goes there in one piece, so a
sentence over the bot costs no search and no message, and neither does a voice that was decided on before.

Audio is only appended, the engine runs in a process of its own, and its results are futures on the loop.
Slow: what comes when its words are answered changes nothing. Full or dead: its stream is over, which is
logged; the call goes on with what the recogniser understands, and a task that this object owns opens another
stream when the engine is there again.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from models.stt import Transcript
from processors.turns.reopened_stream import ReopenedStream
from runtime.utterances import UtteranceEngine, UtteranceStream

# Audio before the voice was first heard, as the recogniser gets it: soft first sounds.
BEFORE_MS = 250
# Kept while nobody speaks: that, what voice activity needs to be sure, and as much again.
KEPT_MS = 700
# No command lasts longer, with the silence around it: what the engine takes for one at most, by default.
LONGEST_MS = 1_800


class StopWords:
    """The stop words of one call.

    Args:
        engine: shared by all calls, started and closed by its owner.
    """

    def __init__(self, engine: UtteranceEngine[Transcript]) -> None:
        self._engine = engine
        self._kept_open = ReopenedStream[UtteranceStream[Transcript]](
            engine, lost="no stop words are listened for", on_lost=self._forget
        )
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        # A voice over a reply is on, and its audio; none when it has become too long.
        self._is_open = False
        self._voice = bytearray()

    async def open(self) -> None:
        """Get a stream. Without one no stop word is spotted."""
        await self._kept_open.open()

    def hear(self, pcm: bytes) -> None:
        """A piece of the caller's audio, 16-bit mono at the engine's rate."""
        if self._kept_open.stream is None:
            return
        if self._is_open:
            if len(self._voice) <= self._bytes(LONGEST_MS):
                self._voice += pcm
            return
        self._kept.append(pcm)
        self._kept_bytes += len(pcm)
        while self._kept_bytes - len(self._kept[0]) >= self._bytes(KEPT_MS):
            self._kept_bytes -= len(self._kept.popleft())

    def on_voice_started(self, voiced_ms: int) -> None:
        """A voice over a reply began so long ago."""
        if self._kept_open.stream is None:
            return
        heard = b"".join(self._kept)
        self._forget()
        self._is_open = True
        self._voice += heard[max(0, len(heard) - self._bytes(BEFORE_MS + voiced_ms)) :]

    def on_voice_stopped(self, on_spotted: Callable[[Transcript], None] | None) -> bool:
        """It ended: ``on_spotted`` is called on the loop with the command, or without text if it was none.

        None: whether it was one does not matter any more. Returns whether there will be such a call, unless
        the engine fails: not without a voice, and not for one that is too long for a command.
        """
        stream, voice, is_open = self._kept_open.stream, bytes(self._voice), self._is_open
        self._forget()
        if stream is None or not is_open or on_spotted is None or len(voice) > self._bytes(LONGEST_MS):
            return False

        def spotted(final: asyncio.Future[Transcript]) -> None:
            # A failure was reported to ``_kept_open``.
            if not final.cancelled() and final.exception() is None:
                on_spotted(final.result())

        stream.start()
        stream.feed(voice)
        stream.finish().add_done_callback(spotted)
        return True

    def close(self) -> None:
        """Release the stream."""
        self._forget()
        self._kept_open.close()

    def _forget(self) -> None:
        self._is_open = False
        self._voice.clear()
        self._kept.clear()
        self._kept_bytes = 0

    def _bytes(self, ms: int) -> int:
        return ms_to_samples(ms, self._engine.rate_hz) * PCM_BYTES_PER_SAMPLE
