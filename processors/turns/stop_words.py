"""Spot commands such as "stop" over the bot with a small-vocabulary engine (``models.keyword_spotting``).

Inputs: the caller's audio, and when a voice begins and ends over a reply. Output: one call of ``on_spotted``
for each such voice that is short enough, with the engine's result: a command or nothing, and the log odds
that it wants the floor. Barge-in decides what follows. Voices are not examined while the bot is silent:
"wait" is part of a turn then.

The cost is a copy of the voice's audio, and one search in another process for each voice over a reply that is
as short as a command. The audio is kept here until the voice has ended and is sent in one piece. So a
sentence over the bot costs no search and no message, and neither does a voice that was decided on before.

Audio is only appended, the engine runs in a process of its own, and its results are futures on the loop. When
the engine is slow, a result that arrives after its words are answered changes nothing. When the engine is
full or dead, its stream is over, which is logged. The call continues with the recogniser's words, and a task
of this object opens another stream when the engine is available again.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.models.stt import Transcript
from parley.processors.perception.recorded_words import HeardLength
from parley.processors.turns.reopened_stream import ReopenedStream
from parley.runtime.utterances import UtteranceEngine, UtteranceStream

# Audio before the detected beginning of the voice, for soft first sounds; the recogniser gets as much.
BEFORE_MS = 250
# Audio kept while the caller is silent: the above, the voice that voice activity needs to be certain, and
# what passes on while a busy loop delays its report.
KEPT_MS = 2_000
# No command lasts longer, with the silence around it: the default of the engine's longest command.
LONGEST_MS = 1_800


class StopWordSpotter(Protocol):
    """Spotter of commands in one call: ``StopWords``, or ``NoStopWords`` where the deployment has none."""

    @property
    def listeners(self) -> Sequence[Callable[[bytes], None]]:
        """Receivers of the caller's audio."""
        ...

    def on_voice_started(self, voiced_ms: int) -> None:
        """Begin to collect a voice over a reply that began ``voiced_ms`` ago."""
        ...

    def on_voice_stopped(self, on_spotted: Callable[[Transcript], None] | None) -> bool:
        """End the voice; see ``StopWords``."""
        ...

    def close(self) -> None:
        """Release what the spotter holds."""
        ...


class NoStopWords:
    """Spotter of a call in which no stop words are spotted."""

    listeners: Sequence[Callable[[bytes], None]] = ()

    def on_voice_started(self, voiced_ms: int) -> None:
        """Collect nothing."""

    def on_voice_stopped(self, on_spotted: Callable[[Transcript], None] | None) -> bool:
        """Return False: no result follows."""
        return False

    def close(self) -> None:
        """Do nothing: it holds nothing."""


class StopWords:
    """Stop words of one call.

    Args:
        engine: shared by all calls; its owner starts and closes it.
        heard: counts the audio of the call.
    """

    def __init__(self, engine: UtteranceEngine[Transcript], heard: HeardLength | None = None) -> None:
        self._engine = engine
        self._heard = heard or HeardLength()
        self._kept_open = ReopenedStream[UtteranceStream[Transcript]](
            engine, lost="no stop words are listened for", on_lost=self._forget
        )
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        # A voice over a reply is being collected; its audio, longer than the limit once it is too long.
        self._is_open = False
        self._voice = bytearray()

    async def open(self) -> None:
        """Open a stream. Without one no stop word is spotted."""
        await self._kept_open.open()

    @property
    def listeners(self) -> Sequence[Callable[[bytes], None]]:
        """Receivers of the caller's audio."""
        return (self.hear,)

    def hear(self, pcm: bytes) -> None:
        """Add a piece of the caller's audio, 16-bit mono at the engine's rate."""
        self._heard.add(pcm, self._engine.rate_hz)
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
        """Begin to collect a voice over a reply that began ``voiced_ms`` ago."""
        if self._kept_open.stream is None:
            return
        heard = b"".join(self._kept)
        self._forget()
        self._is_open = True
        self._voice += heard[max(0, len(heard) - self._bytes(BEFORE_MS + voiced_ms)) :]

    def on_voice_stopped(self, on_spotted: Callable[[Transcript], None] | None) -> bool:
        """End the voice; call ``on_spotted`` on the loop with the command, without text if there was none.

        None discards the voice: its result does not matter any more. Returns True when the call will follow
        unless the engine fails. It does not follow without a voice, or for one that is too long for a
        command.
        """
        stream, voice, is_open = self._kept_open.stream, bytes(self._voice), self._is_open
        self._forget()
        if stream is None or not is_open or on_spotted is None or len(voice) > self._bytes(LONGEST_MS):
            return False

        def spotted(final: asyncio.Future[Transcript]) -> None:
            # The failure was reported to ``_kept_open``.
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
