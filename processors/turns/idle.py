"""Prompt a silent caller, and end the call: the Pipecat shell of ``turn_taking.idle``.

Inputs, as events: voices and the first sign of one, typed text, the caller's turns, the progress of every
reply, and the reasons for which the caller waits. Outputs: prompts and the goodbye as speech for the
pipeline; the end of a turn in which a voice never ends; and the end of the call in good order, after the
current speech.

A prompt interrupts neither side. It is decided while no turn is open, no answer is owed (including a running
tool) and no voice may just have begun. Nor may a reply be current, announced or about to be resumed, nor
may the recogniser owe words of the caller, for at most ``OWED_MS``.
Otherwise it is considered again ``AGAIN_MS`` later. A caller who begins to speak before it is heard
interrupts it like any speech of the bot. It goes through the pipeline after everything there, so it never
overlaps the bot's other speech.

Without settings there are no prompts, for calls in which the caller cannot answer or prompts are not wanted.
The call then ends when neither side has made a sound for ``timeout_ms``, as every call does.

A server that is about to stop ends the call by ``leave``, and so does a hold of the call that is too long.
From then on no turn of the caller is answered (``GoodbyeDue``). Current speech of the bot and an answer that
is owed have ``PATIENCE_MS`` to end; then the farewell is said, which cannot be interrupted. The call ends
after it, and cuts whatever else began meanwhile.

The object owns no task: ``run`` is one that its caller owns. Event handlers never block.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    TTSSpeakFrame,
)

from parley.core.call_events import (
    CallEnding,
    CallerJoined,
    GoodbyeDue,
    HoldEnded,
    ReplyAnnounced,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyStarted,
    TextTyped,
    TurnEnded,
    TurnEndRequested,
    TurnStarted,
    TurnTranscribed,
    VoiceEnded,
    VoiceStarted,
    VoiceSuspected,
    Wait,
    WaitBegan,
    WaitEnded,
    WordsOwed,
)
from parley.core.clock import Clock
from parley.language import Language
from parley.processors.speech.phrases import protected_phrase
from parley.processors.turns.floor import Floor
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.hold import BY_TIME
from parley.turn_taking.idle import Goodbye, HangUp, IdleSettings, IdleWatch, Prompt, TurnLimit

Say = Callable[[Frame], Awaitable[None]]

# Delay of a due prompt while either side is busy: an unnoticeable part of the shortest silence.
AGAIN_MS = 500
# Before a farewell: current speech ends within this, or is cut.
PATIENCE_MS = 2_000
# From a farewell to its first sign, and from there to its end.
BEGINS_MS, FAREWELL_MS = 2_000, 15_000
# Longest time for which a recogniser may owe words: as long as a turn waits for them.
OWED_MS = 10_000
# Reasons of an end, as an event has them.
SILENCE = "silence", "neither side has made a sound for a long time"
GOODBYE = "goodbye", "no one spoke after the goodbye"
QUIET_ENDS = (SILENCE[0], GOODBYE[0])
# A caller who waits for one of these makes no sound, and is there.
SILENT = {Wait.QUEUE, Wait.PERSON, Wait.HOLD}


class IdleMonitor:
    """Monitor of the silences of one call.

    Args:
        events: events of the call.
        settings: settings of the policy; None for no prompts.
        floor: query whether a reply is current, announced or about to be resumed.
        timeout_ms: the call ends when neither side has made a sound for so long.
        idle_ms: returns how long neither side has made a sound.
        language: that of the call; None for the default language.
        clock: None for the clock of the loop; tests pass another.
    """

    def __init__(
        self,
        events: CallEvents,
        settings: IdleSettings | None,
        *,
        floor: Floor,
        timeout_ms: int,
        idle_ms: Callable[[], int],
        language: Language | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._settings, self._language = settings, language
        # Created when the caller joins.
        self._watch: IdleWatch | None = None
        self._timeout_ms = timeout_ms
        self._idle_ms = idle_ms
        self._clock: Clock = clock or LoopClock()
        self._events, self._floor = events, floor
        self._wake = asyncio.Event()
        self._open: set[str] = set()
        # Reasons not to ask whether the caller is there.
        self._waits: set[Wait] = set()
        self._in_turn = False
        # Until then the recogniser may still deliver the words that it owes.
        self._owed_until_ms = 0
        # Text that is said before the call ends; None: the call continues.
        self._farewell: str | None = None
        # The replies that have begun since it was sent to the voice, the farewell's first; None before that.
        self._since: list[str] | None = None
        self._not_before_ms = 0
        # The caller had no reason to make a sound until then.
        self._waited_until_ms = 0
        events.subscribe(CallerJoined, self._on_caller_joined)
        events.subscribe(VoiceSuspected, self._on_voice_suspected)
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)
        events.subscribe(TextTyped, self._on_text_typed)
        events.subscribe(TurnStarted, self._on_turn_started)
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(TurnTranscribed, self._on_turn_ended)
        events.subscribe(WordsOwed, self._on_words_owed)
        events.subscribe(WaitBegan, self._on_wait_began)
        events.subscribe(WaitEnded, self._on_wait_ended)
        events.subscribe(ReplyOpened, self._on_reply_begins)
        events.subscribe(ReplyAnnounced, self._on_reply_begins)
        events.subscribe(ReplyStarted, self._on_reply_begins)
        events.subscribe(ReplyProgressed, self._on_reply_progressed)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(HoldEnded, self._on_hold_ended)

    async def run(self, say: Say) -> None:
        """Keep the deadlines until the call is to end.

        Args:
            say: puts a frame into the pipeline.
        """
        while True:
            if self._farewell is not None:
                await self._say_farewell(self._farewell, say)
                break
            now_ms = self._clock.now_ms()
            left_ms = self._timeout_ms
            if not self._waits & SILENT:
                left_ms -= min(self._idle_ms(), now_ms - self._waited_until_ms)
            if left_ms <= 0:
                logger.info("both sides have been silent for a long time, ending the conversation")
                self._events.publish(CallEnding(now_ms, *SILENCE))
                break
            due_ms = self._due_ms()
            if due_ms is None or due_ms > now_ms:
                await self._until_ms(now_ms + left_ms if due_ms is None else min(due_ms, now_ms + left_ms))
            elif await self._decide(now_ms, say):
                logger.info("no one spoke after the goodbye, ending the conversation")
                self._events.publish(CallEnding(now_ms, *GOODBYE))
                break
        await say(EndFrame())

    def leave(self, farewell: str) -> None:
        """End the call after a farewell; later calls are ignored.

        Args:
            farewell: text that is said; empty for none.
        """
        if self._farewell is None:
            self._farewell = farewell
            self._events.publish(GoodbyeDue(self._events.now_ms()))
            self._wake.set()

    async def _say_farewell(self, farewell: str, say: Say) -> None:
        patience_ms = self._clock.now_ms() + PATIENCE_MS
        await self._until(lambda: not (self._speaks_now() or self._in_turn), by_ms=patience_ms)
        if self._in_turn:
            # Its words are kept. In full duplex the bot says nothing while a turn is open.
            self._events.publish(TurnEndRequested(self._clock.now_ms(), waits_for_words=False))
        if self._speaks_now():
            await say(InterruptionFrame())
        if not farewell:
            return
        logger.info("the server is stopping: saying goodbye and ending the conversation")
        spoken = protected_phrase(farewell)
        since: list[str] = []
        self._since = since
        await say(spoken)
        now_ms = self._clock.now_ms()
        await self._until(lambda: bool(since), by_ms=now_ms + BEGINS_MS)
        await self._until(lambda: not self._open.intersection(since[:1]), by_ms=now_ms + FAREWELL_MS)
        if self._speaks_now():
            await say(InterruptionFrame())

    def _speaks_now(self) -> bool:
        # An owed answer would begin after the farewell, and be cut.
        return bool(self._open) or self._floor.holds_reply() or Wait.ANSWER in self._waits

    async def _until(self, is_so: Callable[[], bool], *, by_ms: int) -> None:
        """Return when the condition holds, or at ``by_ms``."""
        while not is_so() and (now_ms := self._clock.now_ms()) < by_ms:
            # The floor changes without waking this loop.
            await self._until_ms(min(by_ms, now_ms + AGAIN_MS))

    def _due_ms(self) -> int | None:
        due_ms = self._watch.next_deadline_ms() if self._watch is not None else None
        return None if due_ms is None else max(due_ms, self._not_before_ms)

    async def _until_ms(self, at_ms: int) -> None:
        """Return at ``at_ms``, or when something has happened."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, at_ms - self._clock.now_ms()) / 1000):
                await self._wake.wait()
        self._wake.clear()

    async def _decide(self, now_ms: int, say: Say) -> bool:
        """Carry out the decision that is due; return whether it ends the call."""
        watch = self._watch
        if watch is None:
            return False
        if not watch.has_voice and self._is_busy(now_ms):
            self._not_before_ms = now_ms + AGAIN_MS
            return False
        decision = watch.on_deadline(now_ms)
        if isinstance(decision, (Prompt, Goodbye)):
            logger.debug(f"{type(self).__name__}: {decision}")
            await say(TTSSpeakFrame(decision.text, append_to_context=True))
        elif isinstance(decision, TurnLimit):
            logger.info(f"a voice has lasted {decision.voice_ms} ms: ending its turn here")
            self._events.publish(TurnEndRequested(now_ms, waits_for_words=False))
        return isinstance(decision, HangUp)

    def _is_busy(self, now_ms: int) -> bool:
        is_owed = now_ms < self._owed_until_ms
        return bool(self._waits) or self._in_turn or is_owed or self._floor.holds_reply()

    # Events of the caller.

    def _on_voice_started(self, event: VoiceStarted) -> None:
        if self._watch is not None:
            self._watch.on_voice_started(event.at_ms)
            self._wake.set()

    def _on_voice_ended(self, event: VoiceEnded) -> None:
        if self._watch is not None:
            self._watch.on_voice_stopped(event.at_ms)
            self._wake.set()

    def _on_text_typed(self, event: TextTyped) -> None:
        if self._watch is not None:
            self._watch.on_turn_ended(event.at_ms, event.text, written=True)
            self._wake.set()

    def _on_voice_suspected(self, event: VoiceSuspected) -> None:
        self._not_before_ms = max(self._not_before_ms, event.at_ms + AGAIN_MS)

    def _on_caller_joined(self, event: CallerJoined) -> None:
        """Begin the first silence."""
        # A caller who reconnects during the call has not been away for the policy.
        if self._settings is not None and self._watch is None:
            self._watch = IdleWatch(self._settings, started_ms=event.at_ms, language=self._language)
            self._wake.set()

    def _on_turn_started(self, _event: TurnStarted) -> None:
        self._in_turn = True

    def _on_turn_ended(self, event: TurnEnded | TurnTranscribed) -> None:
        self._in_turn = False
        if self._watch is not None:
            self._watch.on_turn_ended(event.at_ms, event.text)
            self._wake.set()

    def _on_words_owed(self, event: WordsOwed) -> None:
        self._owed_until_ms = event.at_ms + OWED_MS if event.is_owed else 0

    def _on_wait_began(self, event: WaitBegan) -> None:
        self._waits.add(event.reason)
        self._note_silence(event.reason)
        self._speaks()

    def _on_wait_ended(self, event: WaitEnded) -> None:
        self._waits.discard(event.reason)
        self._note_silence(event.reason)
        self._rests("")

    def _on_hold_ended(self, event: HoldEnded) -> None:
        """End the call when it was on hold for too long: no one may be there any more."""
        if event.by == BY_TIME:
            self._events.publish(CallEnding(self._clock.now_ms(), *SILENCE))
            self.leave("" if self._settings is None else self._settings.goodbye)

    def _note_silence(self, reason: Wait) -> None:
        if reason in SILENT:
            self._waited_until_ms = self._clock.now_ms()

    # Events of the bot.

    def _on_reply_begins(self, event: ReplyOpened | ReplyAnnounced | ReplyStarted) -> None:
        if self._since is not None and event.reply_id not in self._open:
            self._since.append(event.reply_id)
        self._open.add(event.reply_id)
        self._speaks()

    def _on_reply_progressed(self, _event: ReplyProgressed) -> None:
        self._speaks()

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        self._open.discard(event.heard.reply_id)
        self._rests(event.heard.text)

    def _speaks(self) -> None:
        if self._farewell is not None:
            self._wake.set()
        elif self._watch is not None:
            self._watch.on_bot_started(self._clock.now_ms())
            self._wake.set()

    def _rests(self, text: str) -> None:
        """Note that the bot has finished, unless more is on its way. ``text``: what was heard last."""
        if self._farewell is not None:
            self._wake.set()
        elif self._watch is not None and not self._open and not self._waits:
            self._watch.on_bot_stopped(self._clock.now_ms(), text)
            self._wake.set()
