"""Speech to text by an engine of ours: voice activity and audio in, partial and final transcripts out.

Decides which audio makes an utterance: the audio from ``pre_speech_ms`` before the voice until voice activity
reports its end. Turns are decided elsewhere. An utterance without recognised words pushes no transcript: turn
policies must end such a turn by time (``turn_taking.endpointing.endpointer`` does).

While an utterance that is over has no result, the service reports it (``WordsOwedFrame``): the turn waits.

``process_frame`` only appends: to a short ring while the caller is silent, to the engine's stream while they
speak. One task, owned by the service, opens the stream, waits for results and pushes them in order: a final
before anything of the next utterance.

When the engine is slow, partials are skipped, never queued. The engine bounds its own backlog, and audio that
it dropped is logged at the end of the utterance. When it is full and has no room for an utterance, the words
come late: the utterance is offered again, with growing pauses, for at most ``busy_wait_ms`` after its end. Of
more than ``max_waiting`` utterances without a result the oldest is given up, unless they came faster than
speech, as in a recording of a whole turn, and a stream has them. When it is dead, the error is
pushed once, a new stream is opened and the utterances without a result are replayed to it from the audio kept
here. An utterance that three streams failed with is given up, and so is one that has waited ``MOST_DEAD_S``
since its end while no stream could be opened. The call continues.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    StartFrame,
    STTMuteFrame,
    TranscriptionFrame,
    UserAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.services.settings import STTSettings
from pipecat.services.stt_service import STTService
from pipecat.transcriptions.language import Language
from pipecat.utils.time import time_now_iso8601
from pydantic import Field

from parley.core.call_events import EnginesGivenUp
from parley.core.errors import EngineBusyError, EngineError
from parley.core.frame_facts import FrameFact
from parley.core.media import PCM_BYTES_PER_SAMPLE, WordTime, ms_to_samples
from parley.core.strict_model import StrictModel
from parley.core.usage import Stage
from parley.models.stt import Transcript
from parley.processors.direct_audio import DirectAudio
from parley.processors.perception.owed_words import OwesWords
from parley.processors.perception.recorded_words import HeardLength
from parley.processors.perception.voice_onset import OnsetMeter
from parley.processors.pipecat_internals import VoiceEdges, record_audio_usage
from parley.runtime.event_stream import CallEvents
from parley.runtime.utterances import UtteranceEngine, UtteranceStream

# On a transcription: the loop's time of the first sample of its utterance, to which the word times of the
# transcript belong.
BEGAN_S = FrameFact[float]("began_s")
# Number of streams that may fail with one utterance before it is given up: it may be the cause.
MAX_FAILURES = 3
# Longest wait of a finished utterance for an engine that opens no stream: a turn waits no longer for words.
MOST_DEAD_S = 10.0
# Audio that came in less than this part of its own length came faster than speech.
MOST_OF_SAID = 0.5


class EngineSttSettings(StrictModel):
    """Bounds of an utterance, and of the delivery of its text."""

    pre_speech_ms: int = Field(
        default=250,
        ge=0,
        le=2_000,
        description="audio kept from before the onset of a voice, for its soft first sounds",
    )
    idle_audio_ms: int = Field(
        default=2_000,
        ge=100,
        le=5_000,
        description="audio kept while no voice is detected; a busy server reports a voice so late",
    )
    partial_interval_ms: int = Field(
        default=100, ge=0, le=2_000, description="shortest time between two partials"
    )
    ttfs_p99_ms: int = Field(
        default=350,
        ge=0,
        le=10_000,
        description="time from the end of the voice to the final transcript, p99",
    )
    max_utterance_ms: int = Field(
        default=60_000,
        ge=1_000,
        le=600_000,
        description="audio kept so that an utterance can be repeated after a failure",
    )
    max_waiting: int = Field(default=4, ge=1, le=64, description="utterances that may wait for a result")
    reopen_ms: int = Field(
        default=500, ge=10, le=60_000, description="pause between attempts to open a stream"
    )
    busy_retry_min_ms: int = Field(
        default=100, ge=10, le=10_000, description="first pause before an engine at capacity is tried again"
    )
    busy_retry_max_ms: int = Field(
        default=400, ge=10, le=10_000, description="longest pause before an engine at capacity is tried again"
    )
    busy_wait_ms: int = Field(
        default=5_000,
        ge=0,
        le=60_000,
        description="longest wait of a finished utterance for an engine at capacity",
    )
    drain_ms: int = Field(
        default=1_000, ge=0, le=30_000, description="wait for the last words when a call ends"
    )


@dataclass(slots=True, eq=False)
class _Utterance:
    """An utterance, from its first audio until its result is pushed.

    Attributes:
        audio: kept for a repetition.
        began_s: the loop's time of its first sample, as it arrived.
        played: True when the present stream has it.
        dropped_before_ms: audio that the stream had dropped before it.
        failures: number of streams that failed while they had it.
        final: the result, once the utterance has ended and a stream has it.
        ended_s: loop time of its end.
        refused_s: loop time at which a full engine first refused it after its end.
    """

    audio: bytearray = field(default_factory=bytearray)
    began_s: float = 0.0
    played: bool = False
    dropped_before_ms: int = 0
    failures: int = 0
    final: "asyncio.Future[Transcript] | None" = None
    ended_s: float = 0.0
    refused_s: float | None = None

    @property
    def is_heard(self) -> bool:
        """True when its result is there."""
        final = self.final
        return final is not None and final.done() and not final.cancelled() and final.exception() is None

    def begin(self, stream: UtteranceStream[Transcript]) -> None:
        """Begin it on a stream, with the audio so far."""
        self.played = True
        self.dropped_before_ms = stream.dropped_ms
        stream.start()
        if self.audio:
            stream.feed(bytes(self.audio))

    def finish(self, stream: UtteranceStream[Transcript]) -> int:
        """Request the result; return the milliseconds of its audio that the stream has dropped."""
        self.final = stream.finish()
        return stream.dropped_ms - self.dropped_before_ms


def transcript_from_fields(fields: Mapping[str, object]) -> Transcript:
    """Build a transcript from its dataclass fields, which crossed a process boundary as JSON.

    Raises:
        KeyError, TypeError, ValueError: these are not its fields.
    """
    words = fields["words"]
    if not isinstance(words, list):
        raise TypeError("words is not a list")
    confidence = fields["confidence"]
    if not isinstance(confidence, int | float):
        raise TypeError("confidence is not a number")
    floor = fields["floor_log_odds"]
    if floor is not None and not isinstance(floor, int | float):
        raise TypeError("floor_log_odds is not a number")
    return Transcript(
        text=str(fields["text"]),
        words=tuple(WordTime(**word) for word in words),
        confidence=float(confidence),
        final=bool(fields["final"]),
        floor_log_odds=None if floor is None else float(floor),
    )


class EngineSttService(DirectAudio, OwesWords, VoiceEdges, STTService):
    """Pipecat's STT service over an ``UtteranceEngine``.

    Voice activity may come from an earlier processor (downstream) or from the later user aggregator
    (upstream).

    Args:
        engine: shared by all calls, started by its owner, not closed here.
        settings: None for the defaults.
        audio_passthrough: True when later processors need the audio too.
        heard: counts the caller's audio, for the recording of a call; None: nothing reads it.
        events: of the call; receives ``EnginesGivenUp`` once, when words of the caller were lost because no
            stream opened for ``MOST_DEAD_S``. None: nothing reads them.
    """

    def __init__(
        self,
        engine: UtteranceEngine[Transcript],
        settings: EngineSttSettings | None = None,
        *,
        audio_passthrough: bool = True,
        heard: HeardLength | None = None,
        events: CallEvents | None = None,
    ) -> None:
        chosen = settings or EngineSttSettings()
        super().__init__(
            sample_rate=engine.rate_hz,
            ttfs_p99_latency=chosen.ttfs_p99_ms / 1000,
            settings=STTSettings(model=None, language=Language.EN),
            audio_passthrough=audio_passthrough,
            # Audio is only appended here: a queue and a task for each piece would cost more than the work.
            enable_direct_mode=True,
        )
        self._engine = engine
        self._heard = heard
        self._events = events
        self._passes_audio = audio_passthrough
        self._chosen = chosen
        self._onset = OnsetMeter()
        self._stream: UtteranceStream[Transcript] | None = None
        self._failure: EngineError | None = None
        self._idle_audio: deque[bytes] = deque()
        self._idle_bytes = 0
        self._idle_limit = self._bytes(chosen.idle_audio_ms)
        # The current utterance; None while the caller is silent.
        self._speech: _Utterance | None = None
        self._speech_limit = self._bytes(chosen.max_utterance_ms)
        self._waiting: deque[_Utterance] = deque()
        # The last pause before a full engine was tried again; 0 when it had room.
        self._busy_pause_ms = 0
        self._partial: Transcript | None = None
        self._work = asyncio.Event()
        self._urgent = asyncio.Event()
        self._settled = asyncio.Event()
        self._settled.set()
        self._delivery: asyncio.Task[None] | None = None
        self._wrong_rate = False
        self._speaker_id = ""
        # The last report of whether words are owed.

    def can_generate_metrics(self) -> bool:
        """Return True: the time from end of voice to final, and the seconds of audio, are measured."""
        return True

    async def start(self, frame: StartFrame) -> None:
        await super().start(frame)
        self._delivery = self.create_task(self._deliver(), "delivery")

    async def stop(self, frame: EndFrame) -> None:
        """Deliver the words of finished utterances, for at most ``drain_ms``, then stop."""
        if self._delivery is not None and not self._settled.is_set():
            try:
                async with asyncio.timeout(self._chosen.drain_ms / 1000):
                    await self._settled.wait()
            except TimeoutError:
                logger.warning(f"{self}: the call ended before its last words were recognised")
        await super().stop(frame)
        await self._release()

    async def cancel(self, frame: CancelFrame) -> None:
        await super().cancel(frame)
        await self._release()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._release()

    async def run_stt(self, audio: bytes) -> AsyncGenerator[Frame | None, None]:
        """Yield nothing: audio is appended in ``process_audio_frame``."""
        yield None

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, STTMuteFrame) and frame.mute:
            self._forget_speech()

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        """Append audio, and pass it on."""
        await self.process_audio_frame(frame, FrameDirection.DOWNSTREAM)
        if self._passes_audio:
            await self.pass_audio(frame)

    async def process_audio_frame(self, frame: InputAudioRawFrame, direction: FrameDirection) -> None:
        """Append audio; nothing is awaited unless it has the wrong rate."""
        self._onset.hear(frame)
        if self._heard is not None:
            self._heard.add(frame.audio, frame.sample_rate)
        if self.is_muted or not self.is_usable:
            return
        if frame.sample_rate != self._engine.rate_hz:
            await self._refuse_rate(frame.sample_rate)
            return
        if self._speech is None:
            self._idle_audio.append(frame.audio)
            self._idle_bytes += len(frame.audio)
            while self._idle_bytes - len(self._idle_audio[0]) >= self._idle_limit:
                self._idle_bytes -= len(self._idle_audio.popleft())
            return
        self._speaker_id = frame.user_id if isinstance(frame, UserAudioRawFrame) else ""
        self._append_speech(frame.audio)

    async def voice_started(self, frame: VADUserStartedSpeakingFrame) -> None:
        # The frame comes twice when voice activity is detected both before and after this processor.
        if self._speech is not None or self.is_muted:
            return
        await super().voice_started(frame)
        heard = b"".join(self._idle_audio)
        self._clear_idle()
        since_ms = self._onset.since_ms(frame, self._engine.rate_hz)
        before = self._bytes(self._chosen.pre_speech_ms + since_ms)
        heard = heard[max(0, len(heard) - before) :]
        earlier_s = len(heard) / (self._engine.rate_hz * PCM_BYTES_PER_SAMPLE)
        self._speech = _Utterance(began_s=asyncio.get_running_loop().time() - earlier_s)
        self._partial = None
        if self._stream is not None:
            self._speech.begin(self._stream)
        self._append_speech(heard)

    async def voice_stopped(self, frame: VADUserStoppedSpeakingFrame) -> None:
        if self._speech is None:
            return
        await super().voice_stopped(frame)
        utterance, self._speech = self._speech, None
        self._partial = None
        if self._stream is not None and utterance.played:
            self._finish(self._stream, utterance)
        if not self._has_room(utterance):
            lost = self._waiting.popleft()
            _discard(lost.final)
            await self._report_lost(f"{len(self._waiting) + 1} wait for the engine")
        utterance.ended_s = asyncio.get_running_loop().time()
        self._waiting.append(utterance)
        self._settled.clear()
        await self.report_owed(bool(self._waiting))
        self._wake()

    def _has_room(self, utterance: _Utterance) -> bool:
        """Return whether one more utterance may wait for its result.

        Those of a recording that comes faster than speech may: a stream works through them, and their audio
        together is bounded like that of one utterance.
        """
        if len(self._waiting) < self._chosen.max_waiting:
            return True
        if self._stream is None:
            return False
        oldest, *later = self._waiting
        later_bytes = sum(len(each.audio) for each in later) + len(utterance.audio)
        if len(oldest.audio) + later_bytes > self._speech_limit:
            return False
        # In real time no less has passed since the oldest ended than was said since.
        said_s = later_bytes / (self._engine.rate_hz * PCM_BYTES_PER_SAMPLE)
        return asyncio.get_running_loop().time() - oldest.ended_s < said_s * MOST_OF_SAID

    def _append_speech(self, audio: bytes) -> None:
        if self._speech is None or not audio:
            return
        kept = self._speech.audio
        kept += audio
        overflow = len(kept) - self._speech_limit
        if overflow > 0:
            del kept[:overflow]
        record_audio_usage(self, audio)
        if self._stream is not None:
            self._stream.feed(audio)

    def _forget_speech(self) -> None:
        self._clear_idle()
        self._speech = None
        self._partial = None
        if self._stream is not None:
            self._stream.discard()

    def _clear_idle(self) -> None:
        self._idle_audio.clear()
        self._idle_bytes = 0

    def _finish(self, stream: UtteranceStream[Transcript], utterance: _Utterance) -> None:
        dropped_ms = utterance.finish(stream)
        if dropped_ms > 0:
            logger.warning(f"{self}: the engine was too slow; {dropped_ms} ms of an utterance were lost")

    def _on_partial(self, transcript: Transcript) -> None:
        self._busy_pause_ms = 0
        self._partial = transcript
        self._work.set()

    def _on_failure(self, error: EngineError) -> None:
        self._stream = None
        self._failure = error
        for utterance in (*self._waiting, *([self._speech] if self._speech else ())):
            if utterance.played and not utterance.is_heard:
                utterance.played = False
                # A full engine did not process it, so it is not the cause.
                utterance.failures += not isinstance(error, EngineBusyError)
        self._wake()

    def _wake(self) -> None:
        self._urgent.set()
        self._work.set()

    async def _deliver(self) -> None:
        while True:
            await self.report_owed(bool(self._waiting))
            if self._stream is None and not (self._waiting and self._waiting[0].is_heard):
                await self._open()
            elif self._waiting:
                await self._deliver_final(self._waiting[0])
            elif self._partial is not None:
                await self._deliver_partial()
            else:
                self._settled.set()
                self._work.clear()
                await self._work.wait()

    async def _open(self) -> None:
        failure, self._failure = self._failure, None
        if isinstance(failure, EngineBusyError):
            await self._wait_for_room(failure)
            failure = None
        reported = False
        while True:
            if failure is not None and not reported:
                reported = True
                await self.push_error(f"speech recognition failed: {failure}", exception=failure)
            try:
                self._stream = await self._engine.open_stream(self._on_partial, self._on_failure)
                break
            except EngineError as error:
                failure = error
                await self._give_up_late(error)
                await asyncio.sleep(self._chosen.reopen_ms / 1000)
        await self._play_again(self._stream)

    async def _give_up_late(self, error: EngineError) -> None:
        """Give up the utterances that have waited too long for a stream, and report what is owed then."""
        latest_s = asyncio.get_running_loop().time() - MOST_DEAD_S
        for utterance in tuple(self._waiting):
            if not utterance.is_heard and utterance.ended_s <= latest_s:
                _discard(utterance.final)
                await self._give_up(utterance, f"the engine opened no stream for {MOST_DEAD_S:g} s")
                self._give_up_hearing(error)
        await self.report_owed(bool(self._waiting))

    def _give_up_hearing(self, error: EngineError) -> None:
        """Report once that no engine hears the caller. One without room is waited for."""
        if self._events is not None and not isinstance(error, EngineBusyError):
            self._events.publish(EnginesGivenUp(self._events.now_ms(), error, Stage.STT))
            self._events = None

    async def _wait_for_room(self, refusal: EngineBusyError) -> None:
        now_s = asyncio.get_running_loop().time()
        for utterance in tuple(self._waiting):
            if utterance.refused_s is None:
                utterance.refused_s = now_s
            elif (now_s - utterance.refused_s) * 1000 >= self._chosen.busy_wait_ms:
                _discard(utterance.final)
                await self._give_up(utterance, f"the engine was full for {self._chosen.busy_wait_ms} ms")
        if not self._waiting and self._speech is None:
            self._busy_pause_ms = 0
            return
        if not self._busy_pause_ms:
            logger.warning(f"{self}: an utterance has to wait: {refusal}")
        grown_ms = max(self._busy_pause_ms * 2, self._chosen.busy_retry_min_ms)
        self._busy_pause_ms = min(grown_ms, self._chosen.busy_retry_max_ms)
        await asyncio.sleep(self._busy_pause_ms / 1000)

    async def _play_again(self, stream: UtteranceStream[Transcript]) -> None:
        for utterance in tuple(self._waiting):
            if utterance.is_heard:
                continue
            _discard(utterance.final)
            utterance.final = None
            if utterance.failures >= MAX_FAILURES:
                await self._give_up(utterance, f"{utterance.failures} streams failed with it")
            elif stream.failure is None:
                utterance.begin(stream)
                self._finish(stream, utterance)
        speech = self._speech
        if speech is not None and stream.failure is None and speech.failures < MAX_FAILURES:
            speech.begin(stream)

    async def _deliver_final(self, utterance: _Utterance) -> None:
        self._urgent.clear()
        if utterance.final is None:
            await self._give_up(utterance, "the engine did not process it")
            return
        try:
            # Not awaited directly: giving up cancels the result, which is no cancellation of this task.
            await asyncio.wait({utterance.final})
            if utterance.final.cancelled():
                return
            transcript = utterance.final.result()
        except EngineError as error:
            # Without a stream it is replayed to the next one; a failure of the utterance itself is final.
            if self._stream is not None:
                await self._give_up(utterance, str(error))
            return
        self._busy_pause_ms = 0
        self._forget(utterance)
        await self.emit_stt_usage_metrics()
        if not transcript.text:
            logger.debug(f"{self}: no words were recognised")
            return
        frame = TranscriptionFrame(
            transcript.text,
            self._speaker_id,
            time_now_iso8601(),
            Language.EN,
            result=transcript,
            finalized=True,
        )
        BEGAN_S.put(frame, utterance.began_s)
        await self.push_frame(frame)

    async def _deliver_partial(self) -> None:
        transcript, self._partial = self._partial, None
        if transcript is None or not transcript.text:
            return
        frame = InterimTranscriptionFrame(
            transcript.text, self._speaker_id, time_now_iso8601(), Language.EN, result=transcript
        )
        if self._speech is not None:
            BEGAN_S.put(frame, self._speech.began_s)
        await self.push_frame(frame)
        # A final that arrives meanwhile does not wait for the pace of partials.
        try:
            async with asyncio.timeout(self._chosen.partial_interval_ms / 1000):
                await self._urgent.wait()
        except TimeoutError:
            pass

    async def _give_up(self, utterance: _Utterance, reason: str) -> None:
        self._forget(utterance)
        await self._report_lost(reason)

    async def _report_lost(self, reason: str) -> None:
        message = f"an utterance was given up: {reason}"
        logger.error(f"{self}: {message}")
        await self.push_error(message)

    def _forget(self, utterance: _Utterance) -> None:
        # It may have been given up already, when too many were waiting.
        if utterance in self._waiting:
            self._waiting.remove(utterance)

    async def _refuse_rate(self, rate_hz: int) -> None:
        if not self._wrong_rate:
            self._wrong_rate = True
            await self.push_error(
                f"speech recognition wants {self._engine.rate_hz} Hz audio, not {rate_hz} Hz"
            )

    async def _release(self) -> None:
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            await self.cancel_task(delivery)
        stream, self._stream = self._stream, None
        while self._waiting:
            _discard(self._waiting.popleft().final)
        if stream is not None:
            stream.close()

    def _bytes(self, duration_ms: int) -> int:
        return ms_to_samples(duration_ms, self._engine.rate_hz) * PCM_BYTES_PER_SAMPLE


def _discard(final: "asyncio.Future[Transcript] | None") -> None:
    """Discard a result that will not be read, with its error."""
    if final is None:
        return
    if final.done() and not final.cancelled():
        final.exception()
    final.cancel()
