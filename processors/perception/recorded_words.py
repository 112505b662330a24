"""Words of the embedded recogniser, kept while a call is recorded and given again when it is replayed.

A recogniser that works in real time does not read the same words twice: which drafts it makes depends on the
time that the processor has for them, and each draft influences the next one. A replay that compares prompts
and settings gives it no part: an utterance that begins and ends where a recorded one did has its words, at
the same moments. Every other utterance is read anew. Where it begins is a place in the caller's audio
(``HeardLength``), the same on a machine that is late. Recordings of earlier releases have only times.

``NotedUtterances`` is between the recogniser and a recorded call, and publishes ``UtteranceRead``.
``ReplayedUtterances`` is between the recogniser and a call that is held again. It keeps the audio of an
utterance until that has its words, and opens a stream of the recogniser with the call.

Both run on the loop, own no task, and pass on what the recogniser does: failures, drops, deadlines.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from parley.core.call_events import CallerJoined, UtteranceRead
from parley.core.errors import EngineError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.models.stt import Transcript
from parley.runtime.event_stream import CallEvents
from parley.runtime.utterances import UtteranceEngine, UtteranceStream

AsKept = Callable[[UtteranceRead], UtteranceRead]
# A soft onset is noticed a few windows of 32 ms earlier or later where the audio lies otherwise in them. Two
# utterances are further apart: a voice and a pause take 128 ms each to be noticed.
SAME_BEGINNING_MS = 250
SAME_END_MS = 150
# Longest utterance whose audio is kept for the recogniser; a longer one is read anew.
MOST_KEPT_MS = 60_000
# Partial texts of an utterance that are noted: those of a minute.
MOST_PARTIALS = 300


class HeardLength:
    """Length of the caller's audio that the recogniser's processor has got in a call."""

    def __init__(self) -> None:
        self._samples, self._rate_hz = 0, 1

    def add(self, pcm: bytes, rate_hz: int) -> None:
        """Count a piece."""
        self._samples += len(pcm) // PCM_BYTES_PER_SAMPLE
        self._rate_hz = rate_hz

    @property
    def length_ms(self) -> int:
        """Length so far."""
        return self._samples * 1_000 // self._rate_hz


@dataclass(slots=True)
class _Reading:
    """An utterance that is being read."""

    began_ms: int
    heard_ms: int
    audio_bytes: int = 0
    partials: list[tuple[int, str]] = field(default_factory=list)


class NotedUtterances:
    """Recogniser of a call that is recorded.

    Args:
        engine: the recogniser.
        events: events of the call.
        recogniser: its name and settings, for the event.
        heard: audio of the call so far.
        as_kept: returns the record of an utterance as it may be kept; None: as it is.
    """

    def __init__(
        self,
        engine: UtteranceEngine[Transcript],
        events: CallEvents,
        recogniser: str,
        heard: HeardLength,
        as_kept: AsKept | None = None,
    ) -> None:
        self._engine = engine
        self.heard = heard
        self.as_kept: AsKept = as_kept or (lambda read: read)
        self.events = events
        self.recogniser = recogniser

    @property
    def rate_hz(self) -> int:
        return self._engine.rate_hz

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[Transcript]:
        """Return a stream of the recogniser whose utterances are published.

        Raises:
            EngineError: no engine became ready by the deadline.
        """
        noted = _NotedStream(self, on_partial)
        noted.stream = await self._engine.open_stream(noted.on_partial, on_failure)
        return noted


class _StreamAround:
    """Stream that passes on the state of the recogniser's."""

    stream: UtteranceStream[Transcript]

    @property
    def failure(self) -> EngineError | None:
        return self.stream.failure

    @property
    def dropped_ms(self) -> int:
        return self.stream.dropped_ms

    @property
    def waiting_ms(self) -> int:
        return self.stream.waiting_ms


class _NotedStream(_StreamAround):
    """Stream of the recogniser; what passes is noted."""

    def __init__(self, owner: NotedUtterances, on_partial: Callable[[Transcript], None]) -> None:
        self._owner = owner
        self._on_partial = on_partial
        self._reading: _Reading | None = None

    def start(self) -> None:
        self.stream.start()
        self._reading = _Reading(self._owner.events.now_ms(), self._owner.heard.length_ms)

    def feed(self, pcm: bytes) -> None:
        self.stream.feed(pcm)
        if self._reading is not None:
            self._reading.audio_bytes += len(pcm)

    def finish(self) -> "asyncio.Future[Transcript]":
        reading, self._reading = self._reading, None
        result = self.stream.finish()
        if reading is not None:
            result.add_done_callback(partial(self._publish, reading, self._owner.events.now_ms()))
        return result

    def discard(self) -> None:
        self._reading = None
        self.stream.discard()

    def close(self) -> None:
        self._reading = None
        self.stream.close()

    def on_partial(self, transcript: Transcript) -> None:
        if self._reading is not None and len(self._reading.partials) < MOST_PARTIALS:
            after_ms = self._owner.events.now_ms() - self._reading.began_ms
            self._reading.partials.append((after_ms, transcript.text))
        self._on_partial(transcript)

    def _publish(self, reading: _Reading, ended_ms: int, result: "asyncio.Future[Transcript]") -> None:
        if result.cancelled() or result.exception() is not None:
            return
        final, events = result.result(), self._owner.events
        now_ms = events.now_ms()
        read = UtteranceRead(
            now_ms,
            recogniser=self._owner.recogniser,
            since_ms=now_ms - reading.began_ms,
            audio_ms=reading.audio_bytes * 1_000 // (PCM_BYTES_PER_SAMPLE * self._owner.rate_hz),
            took_ms=now_ms - ended_ms,
            partials=tuple(reading.partials),
            text=final.text,
            words=final.words,
            confidence=final.confidence,
            floor_log_odds=final.floor_log_odds,
            heard_ms=reading.heard_ms,
        )
        events.publish(self._owner.as_kept(read))


def kept_utterances(
    engine: UtteranceEngine[Transcript],
    events: CallEvents,
    recogniser: str,
    heard: HeardLength,
    *,
    recorded: Sequence[UtteranceRead] = (),
    as_kept: AsKept | None = None,
) -> NotedUtterances:
    """Return the recogniser of a recorded call; the arguments are those of the classes of this module.

    ``recorded`` are the utterances of the call that is held again; those of another recogniser are left out.
    """
    same = [each for each in recorded if each.recogniser == recogniser]
    replayed = ReplayedUtterances(engine, same, events, heard) if same else engine
    return NotedUtterances(replayed, events, recogniser, heard, as_kept)


class ReplayedUtterances:
    """Recogniser of a call that is held again.

    Args:
        engine: the recogniser, for utterances that differ from the recorded ones.
        utterances: of the recorded call, with times from the arrival of its caller.
        events: events of the call; times count from its ``CallerJoined``.
        heard: audio of the call so far.
    """

    def __init__(
        self,
        engine: UtteranceEngine[Transcript],
        utterances: Sequence[UtteranceRead],
        events: CallEvents,
        heard: HeardLength,
    ) -> None:
        self._engine = engine
        self._heard = heard
        self._waiting = list(utterances)
        self._events = events
        self._arrival_ms: int | None = None
        events.subscribe(CallerJoined, self._on_joined)

    @property
    def rate_hz(self) -> int:
        return self._engine.rate_hz

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[Transcript]:
        """Return a stream that gives the recorded words, and otherwise those of the recogniser.

        Raises:
            EngineError: no engine became ready by the deadline.
        """
        stream = await self._engine.open_stream(on_partial, on_failure)
        return _ReplayedStream(self, stream, on_partial)

    def take(self) -> tuple[UtteranceRead, int] | None:
        """Return, once, the recorded utterance that began here, and how much later it began; None without."""
        apart = [(self._apart_ms(each), place) for place, each in enumerate(self._waiting)]
        near = [
            (abs(ms), ms, place) for ms, place in apart if ms is not None and abs(ms) <= SAME_BEGINNING_MS
        ]
        if not near:
            return None
        _, apart_ms, place = min(near)
        return self._waiting.pop(place), apart_ms

    def _apart_ms(self, recorded: UtteranceRead) -> int | None:
        """Return how much later a recorded utterance began than the one that begins now."""
        # A recording that began after its call has other places in the audio, and the same times.
        places = [recorded.heard_ms - self._heard.length_ms] if recorded.heard_ms is not None else []
        if self._arrival_ms is not None:
            places.append(recorded.began_ms - self._events.now_ms() + self._arrival_ms)
        return min(places, key=abs, default=None)

    def _on_joined(self, event: CallerJoined) -> None:
        self._arrival_ms = event.at_ms


class _ReplayedStream(_StreamAround):
    """Stream that gives recorded words at their moments."""

    def __init__(
        self,
        owner: ReplayedUtterances,
        stream: UtteranceStream[Transcript],
        on_partial: Callable[[Transcript], None],
    ) -> None:
        self._owner = owner
        self.stream = stream
        self._on_partial = on_partial
        self._loop = asyncio.get_running_loop()
        self._bytes_per_ms = PCM_BYTES_PER_SAMPLE * owner.rate_hz // 1_000
        # The recorded utterance, how much later it began than this one, and the audio that the recogniser
        # has not got.
        self._recorded: UtteranceRead | None = None
        self._apart_ms = 0
        self._kept = bytearray()
        self._timers: list[asyncio.TimerHandle] = []
        self._finals: set[asyncio.Future[Transcript]] = set()

    def start(self) -> None:
        self._forget()
        found = self._owner.take()
        if found is None:
            self.stream.start()
            return
        self._recorded, self._apart_ms = found
        for after_ms, text in self._recorded.partials:
            due_s = max(0, after_ms + self._apart_ms) / 1_000
            self._timers.append(self._loop.call_later(due_s, self._on_partial, Transcript(text)))

    def feed(self, pcm: bytes) -> None:
        if self._recorded is None:
            self.stream.feed(pcm)
            return
        self._kept += pcm
        longest_ms = min(self._recorded.audio_ms + self._apart_ms + SAME_END_MS, MOST_KEPT_MS)
        if len(self._kept) > self._bytes_per_ms * longest_ms:
            self._read_anew()

    def finish(self) -> "asyncio.Future[Transcript]":
        recorded = self._recorded
        if recorded is not None:
            length_ms = len(self._kept) // self._bytes_per_ms
            if abs(length_ms - self._apart_ms - recorded.audio_ms) <= SAME_END_MS:
                self._forget()
                return self._final(recorded)
            self._read_anew()
        return self.stream.finish()

    def discard(self) -> None:
        self._forget()
        self.stream.discard()

    def close(self) -> None:
        self._forget()
        for final in self._finals:
            final.cancel()
        self.stream.close()

    def _final(self, recorded: UtteranceRead) -> "asyncio.Future[Transcript]":
        final: asyncio.Future[Transcript] = self._loop.create_future()
        self._finals.add(final)
        final.add_done_callback(self._finals.discard)
        result = Transcript(
            recorded.text,
            recorded.words,
            recorded.confidence,
            final=True,
            floor_log_odds=recorded.floor_log_odds,
        )
        self._loop.call_later(recorded.took_ms / 1_000, _resolve, final, result)
        return final

    def _read_anew(self) -> None:
        """Give the audio so far to the recogniser: this utterance is not the recorded one."""
        kept = bytes(self._kept)
        self._forget()
        self.stream.start()
        self.stream.feed(kept)

    def _forget(self) -> None:
        self._recorded = None
        self._kept.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


def _resolve(final: "asyncio.Future[Transcript]", result: Transcript) -> None:
    if not final.done():
        final.set_result(result)
