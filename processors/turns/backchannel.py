"""Say "mhm" while the caller talks: the Pipecat shell of ``turn_taking.backchannel``.

Inputs, as events: voices and words, the caller's turns, the first sign of a voice, how complete a pause
sounds and when the turn would end, the progress of every reply and the reasons for which the caller waits.
Output: short pieces of plain audio for the transport's output.

Plain audio is not speech: no reply begins with it, so nothing is recorded, interrupted or resumed, barge-in
does not arm, and the turn continues. It comes from the audio that the voice caches (``PhraseCache``). A
phrase that is not cached is not said, because its synthesis takes longer than the pause.

A backchannel never overlaps the caller. None begins when a voice may have begun (it is considered again
``AGAIN_MS`` later). One that is playing ends with the first sign of a voice, faded over ``FADE_MS``. Its
pieces of ``PIECE_MS`` are given to the output as they are due, ``AHEAD_MS`` early.

The object owns no task: ``run`` is one that its caller owns, and it lasts as long as the call. Event handlers
never block.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

import numpy as np
from loguru import logger
from pipecat.frames.frames import Frame, OutputAudioRawFrame

from parley.core.call_events import (
    FinalWords,
    PartialWords,
    PauseJudged,
    ReplyAnnounced,
    ReplyFinished,
    ReplyOpened,
    ReplyStarted,
    TurnEndDue,
    TurnEnded,
    TurnStarted,
    VoiceEnded,
    VoiceStarted,
    VoiceSuspected,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.clock import Clock
from parley.core.media import PCM_BYTES_PER_SAMPLE, ms_to_samples
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.backchannel import Backchannel, BackchannelPolicy

Say = Callable[[Frame], Awaitable[None]]

AGAIN_MS = 200
# No backchannel is said to a caller who waits for one of these.
BUSY = {Wait.ANSWER, Wait.SCREENING}
# Two chunks of the output (40 ms each), so that no part of a backchannel is left in its buffer before the
# reply.
PIECE_MS = 80
AHEAD_MS = 80
FADE_MS = 20


class BackchannelSpeaker:
    """Speaker of the backchannels of one call.

    Args:
        events: events of the call.
        policy: decides when, and which.
        sound: returns the cached audio of a phrase, 16-bit mono; None when it is not cached.
        rate_hz: sample rate of that audio.
        say: puts the audio into the pipeline, before the output.
        clock: None for the clock of the loop; tests pass another.
    """

    def __init__(
        self,
        events: CallEvents,
        policy: BackchannelPolicy,
        *,
        sound: Callable[[str], bytes | None],
        rate_hz: int,
        say: Say,
        clock: Clock | None = None,
    ) -> None:
        self._policy = policy
        self._sound = sound
        self._rate_hz = rate_hz
        self._clock: Clock = clock or LoopClock()
        self._say = say
        self._wake = asyncio.Event()
        self._finals = ""
        self._in_turn = False
        # The reasons for which the caller waits.
        self._waits: set[Wait] = set()
        self._open: set[str] = set()
        self._not_before_ms = 0
        # True when a voice may have begun since the last backchannel did.
        self._may_speak = False
        events.subscribe(VoiceSuspected, self._on_voice_suspected)
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)
        events.subscribe(PartialWords, self._on_partial_words)
        events.subscribe(FinalWords, self._on_final_words)
        events.subscribe(PauseJudged, self._on_pause_judged)
        events.subscribe(TurnEndDue, self._on_turn_end_due)
        events.subscribe(TurnStarted, self._on_turn_started)
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(WaitBegan, self._on_wait_began)
        events.subscribe(WaitEnded, self._on_wait_ended)
        events.subscribe(ReplyOpened, self._on_reply_begins)
        events.subscribe(ReplyAnnounced, self._on_reply_begins)
        events.subscribe(ReplyStarted, self._on_reply_begins)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    async def run(self) -> None:
        """Keep the deadlines while the call lasts."""
        while True:
            due_ms = self._policy.next_deadline_ms()
            now_ms = self._clock.now_ms()
            if due_ms is not None:
                due_ms = max(due_ms, self._not_before_ms)
            if due_ms is None or due_ms > now_ms:
                await self._until_ms(due_ms)
                continue
            decision = self._policy.on_deadline(now_ms)
            if decision is not None and self._in_turn:
                await self._hum(decision)

    async def _until_ms(self, at_ms: int | None) -> None:
        """Return at ``at_ms``, or when something has happened."""
        left_s = None if at_ms is None else max(0, at_ms - self._clock.now_ms()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._wake.wait()
        self._wake.clear()

    async def _hum(self, decision: Backchannel) -> None:
        pcm = self._sound(decision.text)
        if not pcm:
            logger.debug(f"{type(self).__name__}: the audio of {decision.text!r} is not kept")
            return
        self._may_speak = False
        began_ms = self._clock.now_ms()
        for number, piece in enumerate(self._pieces(pcm)):
            await self._clock.sleep_until_ms(began_ms + number * PIECE_MS - AHEAD_MS)
            stops = self._may_speak or not self._in_turn or self._is_busy
            await self._say(
                OutputAudioRawFrame(
                    audio=self._faded(piece) if stops else piece, sample_rate=self._rate_hz, num_channels=1
                )
            )
            if stops:
                return

    def _pieces(self, pcm: bytes) -> Iterator[bytes]:
        size = ms_to_samples(PIECE_MS, self._rate_hz) * PCM_BYTES_PER_SAMPLE
        for start in range(0, len(pcm), size):
            yield pcm[start : start + size].ljust(size, b"\0")

    def _faded(self, piece: bytes) -> bytes:
        samples = np.frombuffer(piece, dtype="<i2").astype(np.float32)
        ramp = np.zeros(len(samples), np.float32)
        fade = min(len(samples), ms_to_samples(FADE_MS, self._rate_hz))
        ramp[:fade] = np.linspace(1, 0, fade, endpoint=False)
        result: bytes = np.rint(samples * ramp).astype("<i2").tobytes()
        return result

    # Events of the caller.

    def _on_voice_started(self, event: VoiceStarted) -> None:
        self._may_speak = True
        self._policy.on_voice_started(event.at_ms, voiced_ms=event.voiced_ms)
        self._wake.set()

    def _on_voice_ended(self, event: VoiceEnded) -> None:
        self._policy.on_voice_stopped(event.at_ms, silence_ms=event.silence_ms)
        self._wake.set()

    def _on_final_words(self, event: FinalWords) -> None:
        self._finals = f"{self._finals} {event.text}".strip()
        self._policy.on_text(self._finals)
        self._wake.set()

    def _on_partial_words(self, event: PartialWords) -> None:
        self._policy.on_text(f"{self._finals} {event.text}".strip())
        self._wake.set()

    def _on_voice_suspected(self, event: VoiceSuspected) -> None:
        self._may_speak = True
        self._not_before_ms = event.at_ms + AGAIN_MS

    def _on_pause_judged(self, event: PauseJudged) -> None:
        self._policy.on_completeness(event.completeness)
        self._wake.set()

    def _on_turn_end_due(self, event: TurnEndDue) -> None:
        self._policy.on_endpoint_due(event.due_ms)
        self._wake.set()

    def _on_turn_started(self, _event: TurnStarted) -> None:
        self._in_turn = True
        self._wake.set()

    def _on_turn_ended(self, _event: TurnEnded) -> None:
        self._in_turn = False
        self._finals = ""
        self._policy.on_turn_ended()
        self._wake.set()

    # Events of the bot.

    @property
    def _is_busy(self) -> bool:
        return bool(self._waits) or bool(self._open)

    def _on_wait_began(self, event: WaitBegan) -> None:
        if event.reason in BUSY:
            self._waits.add(event.reason)
            self._report_busy()

    def _on_wait_ended(self, event: WaitEnded) -> None:
        self._waits.discard(event.reason)
        self._report_busy()

    def _on_reply_begins(self, event: ReplyOpened | ReplyAnnounced | ReplyStarted) -> None:
        self._open.add(event.reply_id)
        self._report_busy()

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        self._open.discard(event.heard.reply_id)
        self._report_busy()

    def _report_busy(self) -> None:
        self._policy.on_bot_busy(self._is_busy)
        self._wake.set()
