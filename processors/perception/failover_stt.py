"""Recogniser of a call that is a service, with an embedded one that takes over when it fails.

Decides which of the two transcribes. An error, a refused or a lost connection is a failure at once. A voice
without any words is a suspicion: of the service, or of the voice, which may be a noise. The embedded
recogniser then hears the same audio; when it finds words, the service has failed, and when it finds none
before ``CHECK_S`` the service goes on. After a failure the embedded one transcribes to the end of the call.

A service without partial texts (``RecogniserTraits.has_partials``) answers a voice when it is over, so one
that goes on without words is no suspicion. Its answer has a deadline of its own, and an empty one is an
answer: the voice was a noise.

Words that one of the two owes are reported to later processors (``WordsOwedFrame``) until they have come, or
neither of the two finds any.

``UnsettledAudio`` keeps what the caller said since the last final word. It is played to the embedded
recogniser first, so the words of the turn in progress are neither lost nor doubled. The service runs apart
from the pipeline (``NestedService``), and audio that came before its connection is sent to it first.

One task, owned by the processor, opens and closes both. The circuit breaker of the row is shared by all
calls: while it is open a call begins with the embedded recogniser, and after its cool-down one call at a time
tries the service. Final words that are late after earlier words of the same voice open it only the second
time within a minute.
"""

import asyncio
from collections.abc import Awaitable, Callable
from enum import Enum, auto
from functools import partial

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    InterruptionFrame,
    STTMetadataFrame,
    STTMuteFrame,
    TranscriptionFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.core.call_events import EngineFailedOver, TurnEnded
from parley.core.errors import AgentError, EngineError
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.models.stt import RecogniserTraits
from parley.processors.nested_service import NestedService
from parley.processors.perception.engine_stt import BEGAN_S
from parley.processors.perception.hosted_words import hosted_words
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.processors.perception.unsettled_audio import UnsettledAudio
from parley.processors.perception.voice_onset import OnsetMeter
from parley.runtime.event_stream import CallEvents

HEARING = "hearing"
# A recogniser in the cloud reports its first words 0.3 to 0.5 s after they began. A voice of this length
# without any is checked, where it came in as much time: what comes at once after a stop of this process is
# news to the service too.
WORDLESS_MS = 2_000
# So is a voice that ended this long ago without words, unless it was shorter than any word.
ANSWER_S, SHORTEST_MS = 0.8, 300
# Final words follow the end of a voice within 0.4 s where there were words before. With this, and the time of
# the embedded recogniser, an answer comes 1.5 s later than a normal one: after 2 s it came 2.5 s later.
FINAL_S = 1.0
# A service with a deadline of its own acts at that; this is for one that does not.
GRACE_S = 0.5
# A voice is detected within this time after it began.
ONSET_MS = 500
# The embedded recogniser needs at most 0.4 s for each second of speech on a small machine.
CHECK_S = 3.0
# A silent caller's call probes the service no longer than this: other calls may.
PROBE_S = 30.0
FORWARDED = (
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
    STTMuteFrame,
    InterruptionFrame,
    UserStoppedSpeakingFrame,
)


class Transcriber(Enum):
    """State of the choice."""

    SERVICE = auto()
    # The embedded recogniser hears the same audio.
    CHECKED = auto()
    EMBEDDED = auto()


class FailoverSttService(FrameProcessor):
    """Recogniser of one call: a service, and an embedded one after it.

    Args:
        name: name of the service's row.
        build: returns a new service; raises ConfigError.
        breaker: circuit breaker of the row, shared by all calls.
        fallback: name of the embedded recogniser's row.
        build_fallback: returns the processor of the embedded recogniser.
        events: events of the call.
        rate_hz: rate of the caller's audio.
        traits: properties of the service.
        answer_s: deadline of the service's words after a voice, where it has one of its own.
        audio_passthrough: True when later processors need the audio too.
    """

    def __init__(
        self,
        name: str,
        build: Callable[[], Awaitable[FrameProcessor]],
        breaker: CircuitBreaker,
        *,
        fallback: str,
        build_fallback: Callable[[], FrameProcessor],
        events: CallEvents,
        rate_hz: int,
        traits: RecogniserTraits | None = None,
        answer_s: float | None = None,
        audio_passthrough: bool = True,
    ) -> None:
        super().__init__(enable_direct_mode=True)
        self._row_name, self._build = name, build
        self._breaker = breaker
        self._fallback_name, self._build_fallback = fallback, build_fallback
        self._events = events
        self._passes_audio = audio_passthrough
        self._has_partials = (traits or RecogniserTraits()).has_partials
        # Wait for words after a voice that had none yet, and for final ones.
        self._answer_s, self._final_s = ANSWER_S, FINAL_S
        if answer_s is not None:
            self._answer_s = answer_s + GRACE_S
            self._final_s = max(FINAL_S, self._answer_s)
        self._audio = UnsettledAudio(rate_hz)
        self._onset = OnsetMeter()
        self._rate_hz = rate_hz
        self._state = Transcriber.SERVICE
        self._service: NestedService | None = None
        self._embedded: NestedService | None = None
        # Position of the service's first audio, and up to which each of the two has it.
        self._service_from = self._service_has = self._embedded_has = 0
        self._is_open = self._is_muted = self._has_worked = self._is_probing = False
        # Event time at which the service was opened.
        self._opened_ms = 0
        self._probe_end: asyncio.TimerHandle | None = None
        # Words of the voice have come, final or not.
        self._has_words = False
        # Words were reported as owed; those that are none, because the voice was a noise.
        self._is_owed = self._owes_noise = False
        # Last report of the embedded recogniser; None while it has made none.
        self._embedded_owes: bool | None = None
        # Loop time at which the kept audio was played, and how long ago its first sample came.
        self._played: tuple[float, float] | None = None
        self._news = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._running: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        events.subscribe(TurnEnded, self._on_turn_ended)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if self._running is None:
            self._running = self.create_task(self._run(), name="recognisers")
        if isinstance(frame, InputAudioRawFrame):
            await self._take_audio(frame)
            if self._passes_audio:
                await self.push_frame(frame, direction)
            return
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self._on_voice_started(frame)
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._on_voice_stopped()
        elif isinstance(frame, STTMuteFrame):
            self._is_muted = frame.mute
        if isinstance(frame, FORWARDED):
            await self._forward(frame)
        elif isinstance(frame, EndFrame) and self._embedded is not None:
            # It delivers its last words first.
            await self._embedded.send(frame)
        if not isinstance(frame, STTMuteFrame):
            await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        """Close both recognisers."""
        await super().cleanup()
        self._set_timer(None)
        self._end_probe(is_abandoned=True)
        running, self._running = self._running, None
        if running is not None:
            await self.cancel_task(running)
        await self._close_service()
        await self._close_embedded()

    # The caller.

    async def _take_audio(self, frame: InputAudioRawFrame) -> None:
        self._onset.hear(frame)
        if self._is_muted or frame.sample_rate != self._rate_hz:
            return
        self._audio.add(frame.audio, self._events.now_ms())
        wordless_ms = min(self._audio.wordless_ms, self._audio.awaited_ms)
        if self._has_partials and self._state is Transcriber.SERVICE and wordless_ms >= WORDLESS_MS:
            self._check()
        await self._feed()

    def _on_voice_started(self, frame: VADUserStartedSpeakingFrame) -> None:
        # The frame comes twice when voice activity is detected both before and after this processor.
        if self._audio.in_voice:
            return
        self._audio.voice_started(self._onset.since_ms(frame, self._rate_hz))
        self._has_words = False
        self._set_timer(None)
        # The next words tell which of the two works, and a slow service may not lose against a quick one.
        self._clear()

    def _on_voice_stopped(self) -> None:
        if not self._audio.in_voice:
            return
        self._audio.voice_stopped()
        if self._state is Transcriber.SERVICE:
            if self._has_words:
                self._set_timer(self._final_s, self._check)
            elif self._audio.wordless_ms >= SHORTEST_MS:
                self._set_timer(self._answer_s, self._check)
        elif self._state is Transcriber.CHECKED:
            self._set_timer(CHECK_S, self._clear_noise)

    def _on_turn_ended(self, event: TurnEnded) -> None:
        # A turn without words is none: the embedded recogniser may still find them.
        if event.text:
            self._audio.settle_turn()

    async def _feed(self) -> None:
        """Send the audio that came to those that need it, in order."""
        if self._service is not None and self._is_open:
            position, self._service_has = self._service_has, self._audio.position
            if pcm := self._audio.read(position):
                await self._service.send(self._onset.up_to_here(InputAudioRawFrame(pcm, self._rate_hz, 1)))
        if self._embedded is not None and self._played is not None:
            position, self._embedded_has = self._embedded_has, self._audio.position
            if pcm := self._audio.read(position):
                await self._embedded.send(self._onset.up_to_here(InputAudioRawFrame(pcm, self._rate_hz, 1)))

    async def _forward(self, frame: Frame) -> None:
        if self._service is not None and self._is_open:
            await self._service.send(frame)
        if self._embedded is not None and self._played is not None:
            await self._embedded.send(frame)

    # The choice.

    def _check(self) -> None:
        """Have the embedded recogniser hear the voice in which the service found no words."""
        if self._state is Transcriber.SERVICE and self._audio.take():
            self._state = Transcriber.CHECKED
            self._set_timer(None if self._audio.in_voice else CHECK_S, self._clear_noise)
            self._news.set()

    def _clear_noise(self) -> None:
        """Go on with the service: the voice had no words."""
        self._audio.settle_turn()
        self._owes_noise = self._is_owed
        self._clear()

    def _clear(self) -> None:
        """Go on with the service."""
        if self._state is Transcriber.CHECKED:
            self._state = Transcriber.SERVICE
            self._set_timer(None)
            self._news.set()

    def _fail(self, reason: FailoverReason, message: str) -> None:
        """Have the embedded recogniser take over for the rest of the call."""
        if self._state is Transcriber.EMBEDDED:
            return
        logger.warning(f"the recogniser {self._row_name} failed ({reason.value}): {message}")
        if reason is FailoverReason.SILENT and self._has_words:
            # Final words that are still owed may have been about to come; other calls go on with the service.
            self._breaker.on_doubt(self._events.now_ms())
        elif reason is not FailoverReason.BROKEN:
            self._breaker.on_failure(self._events.now_ms())
        if reason is not FailoverReason.BROKEN:
            self._end_probe()
        self._state = Transcriber.EMBEDDED
        self._set_timer(None)
        self._news.set()
        self._events.publish(
            EngineFailedOver(self._events.now_ms(), HEARING, self._row_name, self._fallback_name, reason)
        )

    def _end_probe(self, *, is_abandoned: bool = False) -> None:
        """End the probe of this call, with an outcome or without: another call may make the next one."""
        if self._probe_end is not None:
            self._probe_end.cancel()
        was_probing, self._is_probing, self._probe_end = self._is_probing, False, None
        if was_probing and is_abandoned:
            self._breaker.on_abandoned()

    def _set_timer(self, wait_s: float | None, then: Callable[[], None] | None = None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if wait_s is not None and then is not None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, then)

    # The recognisers.

    async def _run(self) -> None:
        self._opened_ms = self._events.now_ms()
        if not self._breaker.is_closed:
            self._is_probing = self._breaker.take_probe(self._opened_ms)
            if self._is_probing:
                loop = asyncio.get_running_loop()
                self._probe_end = loop.call_later(PROBE_S, partial(self._end_probe, is_abandoned=True))
            else:
                self._fail(FailoverReason.BROKEN, "it failed in another call")
        if self._state is not Transcriber.EMBEDDED:
            self._opening = self.create_task(self._open_service(), name=self._row_name)
        while True:
            await self._news.wait()
            self._news.clear()
            await self._follow()

    async def _follow(self) -> None:
        """Open and close the recognisers as the state requires."""
        if self._owes_noise:
            self._owes_noise = False
            await self._report_owed(False)
        if self._state is Transcriber.SERVICE:
            await self._close_embedded()
            return
        if self._embedded is None:
            await self._open_embedded()
        if self._state is Transcriber.EMBEDDED:
            if self._embedded_owes is not None:
                # The reports of the service counted until it failed: these may differ.
                await self._report_owed(self._embedded_owes)
            await self._close_service()

    async def _open_service(self) -> None:
        try:
            service = NestedService(
                self._row_name,
                await self._build(),
                on_output=self._on_service_output,
                on_error=lambda error: self._fail(FailoverReason.ERROR, str(error)),
            )
            self._service = service
            await service.open(self.processor_setup)
        except AgentError as error:
            self._fail(FailoverReason.ERROR, str(error))
            return
        except Exception as error:  # code of a vendor, which may raise any error
            self._fail(FailoverReason.ERROR, f"it does not open: {type(error).__name__}")
            return
        self._service_from = self._audio.position - len(self._audio.read(0))
        self._is_open = True
        await self._feed()
        # What it missed while it was connected: without the end of a voice it gives no final words, and one
        # without partial texts transcribes nothing but voices.
        unsettled_ms = self._audio.unsettled_ms
        if unsettled_ms or self._audio.in_voice:
            await service.send(VADUserStartedSpeakingFrame(start_secs=unsettled_ms / 1000))
        if self._audio.had_voice and not self._audio.in_voice:
            await service.send(VADUserStoppedSpeakingFrame())

    async def _open_embedded(self) -> None:
        embedded = NestedService(
            self._fallback_name,
            self._build_fallback(),
            on_output=self._on_embedded_output,
            on_error=self._on_embedded_error,
        )
        self._embedded = embedded
        try:
            await embedded.open(self.processor_setup)
        except EngineError as error:
            self._on_embedded_error(error)
            self._embedded_owes = False
            return
        # From here on without a wait: audio that comes meanwhile has its turn after this.
        pcm, loop_s = self._audio.take(), asyncio.get_running_loop().time()
        self._played = loop_s, len(pcm) / 2 / self._rate_hz
        self._embedded_has = self._audio.position
        if not pcm:
            # A voice may be about to be detected.
            self._embedded_has = max(0, self._audio.bytes_to(self._audio.position, -ONSET_MS))
            # The service may owe words that this one does not look for.
            self._embedded_owes = False
            await self._feed()
            return
        await embedded.send(VADUserStartedSpeakingFrame())
        await embedded.send(InputAudioRawFrame(pcm, self._rate_hz, 1))
        if not self._audio.in_voice:
            await embedded.send(VADUserStoppedSpeakingFrame())

    async def _close_service(self) -> None:
        opening, self._opening = self._opening, None
        if opening is not None:
            await self.cancel_task(opening)
        service, self._service, self._is_open = self._service, None, False
        if service is not None:
            await service.close()

    async def _close_embedded(self) -> None:
        embedded, self._embedded, self._played = self._embedded, None, None
        self._embedded_owes = None
        if embedded is not None:
            await embedded.close()

    async def _on_service_output(self, frame: Frame) -> None:
        if self._state is Transcriber.EMBEDDED:
            return
        if isinstance(frame, STTMetadataFrame):
            await self.push_frame(frame)
        if isinstance(frame, WordsOwedFrame):
            if not self._has_partials and not frame.is_owed:
                self._end_answers()
            await self._report_owed(frame.is_owed)
        if not isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame) or not frame.text.strip():
            return
        self._audio.words_came()
        self._has_words = True
        self._clear()
        if not self._has_worked:
            self._has_worked = True
            self._end_probe()
            self._breaker.on_success(self._opened_ms)
        if isinstance(frame, TranscriptionFrame):
            words = hosted_words(frame.result)
            end = self._audio.bytes_to(self._service_from, words[-1].end_ms) if words else None
            self._audio.settle_words(self._audio.position if end is None else end)
        # Words that are not final yet, of a voice that is over, become so soon.
        is_waiting = not self._audio.in_voice and bool(self._audio.take())
        self._set_timer(self._final_s if is_waiting else None, self._check)
        await self.push_frame(frame)

    def _end_answers(self) -> None:
        """Note that a service without partial texts has answered every voice: the rest had no words."""
        self._audio.settle_turn()
        self._clear()
        if not self._audio.in_voice:
            self._set_timer(None)

    async def _on_embedded_output(self, frame: Frame) -> None:
        if isinstance(frame, WordsOwedFrame):
            self._embedded_owes = frame.is_owed
        if self._state is Transcriber.EMBEDDED:
            if isinstance(frame, STTMetadataFrame):
                await self.push_frame(frame)
            if isinstance(frame, WordsOwedFrame):
                await self._report_owed(frame.is_owed)
        if not isinstance(frame, TranscriptionFrame | InterimTranscriptionFrame) or not frame.text.strip():
            return
        if self._state is Transcriber.SERVICE:
            # The service has brought its words meanwhile: those of the same voice would be there twice.
            return
        self._fail(FailoverReason.SILENT, "it found no words in a voice that has some")
        self._restore_beginning(frame)
        await self.push_frame(frame)

    async def _report_owed(self, is_owed: bool) -> None:
        """Report to later processors, once, that words are owed, or that none are."""
        if is_owed is not self._is_owed:
            self._is_owed = is_owed
            await self.push_frame(WordsOwedFrame(is_owed))

    def _restore_beginning(self, frame: TranscriptionFrame | InterimTranscriptionFrame) -> None:
        """Give the words of kept audio the moment at which it came, not that at which it was played."""
        began_s = BEGAN_S.of(frame)
        if began_s is None or self._played is None:
            return
        played_s, kept_s = self._played
        if abs(began_s - played_s) < 0.02:
            BEGAN_S.put(frame, began_s - kept_s)

    def _on_embedded_error(self, error: EngineError) -> None:
        # It opens another stream and plays the utterance again.
        logger.error(f"the recogniser {self._fallback_name} failed: {error}")
