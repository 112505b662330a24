"""A call on virtual time in which scripted words and reports reach the real perception of a call."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from pipecat.frames.frames import (
    InterimTranscriptionFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineWorker
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import AnnotationReported
from parley.core.media import WordTime
from parley.core.timeline import Annotation, Source
from parley.evals.perception.scripted import Performance, SpecialistReport
from parley.models.stt import Transcript
from parley.processors.fusion.perception import Perceived, Perception, PerceptionSettings
from parley.processors.perception.engine_stt import BEGAN_S
from parley.runtime.event_stream import CallEvents
from parley.session_store.compaction import Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore

# Interval of the signs of life of the specialists.
SIGN_MS = 40
TICK_MS = 10
STARTS_WITHIN_S = 0.1
# From the last word to the end of the turn.
ENDPOINT_MS = 300


class ScriptedCall:
    """Perception of one call, with its session.

    Args:
        conversation: the session.
        store: of the session.
        settings: of the perception.

    Attributes:
        taken_us: when the last turn was taken, on the session clock.
    """

    def __init__(self, conversation: Conversation, store: SessionStore, settings: PerceptionSettings) -> None:
        self._conversation, self._store = conversation, store
        self._clock = conversation.clock
        self._events = CallEvents()
        self._ended = asyncio.Event()
        self.taken_us = 0
        self._perception = Perception(
            conversation, call_id="scripted", settings=settings, events=self._events
        )
        self._worker = PipelineWorker(
            Pipeline([self._perception]),
            enable_rtvi=False,
            enable_turn_tracking=False,
            idle_timeout_secs=None,
        )

    def now_us(self) -> int:
        """Return the time of the session."""
        return self._clock.now_us()

    async def turn(self, performance: Performance, given: Sequence[SpecialistReport]) -> Perceived:
        """Play a turn to its end; return what the model gets.

        Args:
            performance: the words.
            given: what the specialists report, in the order of arrival.
        """
        base_us, base_s = self._clock.now_us(), asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._specialists(given, base_us, base_s))
            for now_ms in range(0, performance.end_ms + ENDPOINT_MS + 1, TICK_MS):
                await _until(base_s, now_ms)
                await self._speak(performance, now_ms, base_s)
            taken = await self._perception.take(performance.text)
            self.taken_us = self._clock.now_us()
        return taken

    async def run(self) -> None:
        """Run the call until ``end``."""
        runner = WorkerRunner(handle_sigint=False, handle_sigterm=False)
        await runner.add_workers(self._worker)
        try:
            await runner.run()
        finally:
            self._ended.set()

    async def end(self) -> None:
        """End the call."""
        await self._worker.cancel()
        await self._ended.wait()

    async def reports(self) -> list[Event]:
        """Return the reports in the order in which they were committed, all of them after ``end``."""
        await self._conversation.flushed()
        return await self._store.all_events(self._conversation.session_id, kinds=[Kind.ANNOTATION])

    async def _specialists(self, given: Sequence[SpecialistReport], base_us: int, base_s: float) -> None:
        """Deliver the reports when they arrive, and signs of life in between."""
        pending = list(given)
        streams = {report.stream for report in given}
        passed_ms = dict.fromkeys(streams, 0)
        last_ms = max((report.arrival_ms for report in given), default=0)
        for now_ms in range(0, last_ms + 2 * SIGN_MS, TICK_MS):
            await _until(base_s, now_ms)
            while pending and pending[0].arrival_ms <= now_ms:
                self._report(pending.pop(0), base_us)
            if now_ms % SIGN_MS == 0:
                for stream in streams:
                    waits = [each.event_ms for each in pending if each.stream is stream]
                    passed_ms[stream] = max(passed_ms[stream], min([now_ms, *waits]))
                    self._sign(stream, base_us + passed_ms[stream] * 1000)

    async def _speak(self, performance: Performance, now_ms: int, base_s: float) -> None:
        """Report the words that are complete by now: partials, and the final with the last one."""
        first_ms = performance.words[0].start_ms
        if now_ms == _tick(first_ms + 200):
            await self._worker.queue_frame(VADUserStartedSpeakingFrame())
        is_final = now_ms == _tick(performance.end_ms)
        if is_final or any(now_ms == _tick(word.end_ms) for word in performance.words):
            words = tuple(
                WordTime(word.text, word.start_ms - first_ms, word.end_ms - first_ms)
                for word in performance.words
                if word.end_ms <= now_ms
            )
            if words:
                text = " ".join(word.text for word in words)
                frame_type = TranscriptionFrame if is_final else InterimTranscriptionFrame
                frame = frame_type(text, "caller", "", result=Transcript(text, words, 1.0, is_final))
                BEGAN_S.put(frame, base_s + first_ms / 1000)
                await self._worker.queue_frame(frame)
        if is_final:
            await self._worker.queue_frame(VADUserStoppedSpeakingFrame())

    def _report(self, report: SpecialistReport, base_us: int) -> None:
        payload = replace(
            report.payload,
            start_us=base_us + report.payload.start_us,
            end_us=base_us + report.payload.end_us,
        )
        annotation = Annotation(
            base_us + report.event_ms * 1000,
            self._clock.now_us(),
            report.stream,
            payload,
            speaker_id=report.speaker,
        )
        self._events.publish(AnnotationReported(self._events.now_ms(), report.stream, annotation))

    def _sign(self, stream: Source, passed_us: int) -> None:
        self._events.publish(AnnotationReported(self._events.now_ms(), stream, passed_us=passed_us))


@asynccontextmanager
async def scripted_call(folder: Path, settings: PerceptionSettings) -> AsyncIterator[ScriptedCall]:
    """Run a call with a session of its own in ``folder``."""
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder / 'sessions.db'}", busy_timeout_ms=0))
    opened = Conversations(store, ConversationTuning(), compactor=Compactor())
    try:
        async with opened.open() as conversation:
            call = ScriptedCall(conversation, store, settings)
            running = asyncio.create_task(call.run())
            try:
                await asyncio.sleep(STARTS_WITHIN_S)
                yield call
            finally:
                await call.end()
                await running
    finally:
        await opened.close()
        await store.close()


def _tick(ms: int) -> int:
    """Return the first tick that is not before a moment."""
    return -(-ms // TICK_MS) * TICK_MS


async def _until(base_s: float, ms: int) -> None:
    await asyncio.sleep(max(0.0, base_s + ms / 1000 - asyncio.get_running_loop().time()))
