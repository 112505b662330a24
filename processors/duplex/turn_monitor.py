"""Detect user turns and decide yields for speech-to-speech models that do not do so themselves.

A speech model that was not taught to yield, or that may not, is made to listen when the caller means to
interrupt. The session also needs the ends of the caller's turns. Both are decided as in the two-tier engine,
by the same recogniser and the same policy, on units of 80 ms of the caller's audio. The results go the same
way as the engine's own decisions (``processors.duplex.dialogue.DialogueActions``). There are no guesses,
backchannels or resumed replies: the engine decides its own words.

Inputs: the caller's audio (``hear``), and as events the recogniser's words and the bot's replies. The
object owns no task: ``run`` is its caller's. Voice activity runs in ``executor``. When it is slow,
waiting audio is bounded by ``WAITING_MS``; the oldest is dropped.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Protocol

from loguru import logger

from parley.core.call_events import (
    ClauseAnnounced,
    ReplyAnnounced,
    ReplyFinished,
    ReplyProgressed,
    ReplyStarted,
    SpeechReported,
    TurnEndRequested,
)
from parley.core.errors import AgentError
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from parley.models.omni.two_tier.dialogue import UserTurnReady
from parley.models.omni.two_tier.speech_input import SpeechInput
from parley.processors.duplex.dialogue import DialogueActions
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.duplex_policy import (
    Act,
    Ask,
    CloseTurn,
    ContinueReply,
    DiscardWords,
    DuplexPolicy,
    Open,
    Volume,
    Yield,
)

UNIT_MS = 80
# The same bound as for phones and browsers: after a stop of the process the audio of it comes at once.
WAITING_MS = 3_000
WAITING_EVENTS = 256

_BotEvent = Callable[[DuplexPolicy, int], None]


class EngineTurns(Protocol):
    """Monitor of the turns before an engine: ``TurnMonitor``, or ``NoTurnMonitor``."""

    def hear(self, pcm: bytes) -> None:
        """Add audio of the caller: 16-bit mono at the detector's rate."""
        ...

    async def run(self) -> None:
        """Decide until cancelled, where there is something to decide."""
        ...


class NoTurnMonitor:
    """Monitor of a call whose engines have one themselves."""

    def hear(self, pcm: bytes) -> None:
        """Do nothing: the engine hears the caller."""

    async def run(self) -> None:
        """Return: there is nothing to decide."""


class TurnMonitor:
    """Turn monitor of one call.

    Args:
        events: events of the call.
        steps: carries out the decisions.
        speech_input: speech input with its policy; the policy neither guesses nor makes backchannels.
        executor: runs voice activity.
        is_needed: returns whether the engine leaves turns to the monitor: it gets the caller's words then.
        counts: returns whether a decision counts; the others are left to an engine that decides them itself.
        set_gain_db: sets the bot's volume while a decision is open; must not block.
    """

    def __init__(
        self,
        events: CallEvents,
        steps: DialogueActions,
        speech_input: SpeechInput,
        executor: Executor,
        *,
        is_needed: Callable[[], bool],
        counts: Callable[[Act], bool],
        set_gain_db: Callable[[float], None],
    ) -> None:
        self._steps = steps
        self._speech_input, self._policy = speech_input, speech_input.policy
        self._executor = executor
        self._is_needed, self._counts = is_needed, counts
        self._set_gain_db = set_gain_db
        self._unit_bytes = speech_input.rate_hz * UNIT_MS // 1000 * PCM_BYTES_PER_SAMPLE
        self._waiting_bytes = speech_input.rate_hz * WAITING_MS // 1000 * PCM_BYTES_PER_SAMPLE
        self._pcm = bytearray()
        self._events: deque[_BotEvent] = deque(maxlen=WAITING_EVENTS)
        self._coming: deque[tuple[str, bool]] = deque(maxlen=WAITING_EVENTS)
        self._wake = asyncio.Event()
        self._speaking = False
        self._ends_turn = False
        events.subscribe(SpeechReported, self._on_speech_reported)
        events.subscribe(TurnEndRequested, self._on_turn_end_requested)
        events.subscribe(ReplyAnnounced, self._on_reply_announced)
        events.subscribe(ClauseAnnounced, self._on_clause_announced)
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ReplyProgressed, self._on_reply_progressed)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def hear(self, pcm: bytes) -> None:
        """Add audio of the caller: 16-bit mono at the detector's rate."""
        self._pcm += pcm
        if len(self._pcm) > self._waiting_bytes:
            del self._pcm[: len(self._pcm) - self._waiting_bytes]
        if len(self._pcm) >= self._unit_bytes:
            self._wake.set()

    def _on_speech_reported(self, event: SpeechReported) -> None:
        if self._is_needed():
            self._speech_input.on_words(event.report)

    def _on_turn_end_requested(self, _event: TurnEndRequested) -> None:
        self._ends_turn = True

    async def run(self) -> None:
        """Decide until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while len(self._pcm) >= self._unit_bytes:
                    pcm = bytes(self._pcm[: self._unit_bytes])
                    del self._pcm[: self._unit_bytes]
                    events = [self._events.popleft() for _ in range(len(self._events))]
                    try:
                        acts = await loop.run_in_executor(self._executor, self._unit, pcm, events)
                    except AgentError as error:
                        # One specialist fails, the call continues without this unit.
                        logger.warning(f"turn detection for the engine failed on a unit: {error}")
                        continue
                    for act in filter(self._counts, acts):
                        self._follow(act)
        finally:
            self._speech_input.close()

    def _unit(self, pcm: bytes, events: list[_BotEvent]) -> list[Act]:
        """Process one unit, in the executor."""
        for event in events:
            event(self._policy, self._speech_input.now_ms)
        self._speech_input.hear(pcm16_to_float(pcm), bot_speaks=self._speaking)
        if self._ends_turn:
            self._ends_turn = False
            self._policy.end_turn()
        acts = self._policy.on_tick(self._speech_input.now_ms)
        if any(isinstance(act, Ask | CloseTurn) for act in acts):
            self._speech_input.turn_over()
        return acts

    def _follow(self, act: Act) -> None:
        if isinstance(act, Open):
            self._steps.on_turn(is_open=True)
        elif isinstance(act, Ask):
            self._steps.on_asked(UserTurnReady(act.text, act.silence_ms, act.completeness))
        elif isinstance(act, CloseTurn | ContinueReply):
            self._steps.on_turn(is_open=False)
        elif isinstance(act, DiscardWords):
            self._steps.on_forgotten()
        elif isinstance(act, Yield):
            self._steps.on_dropped()
        elif isinstance(act, Volume):
            self._set_gain_db(act.gain_db)

    # Events of the bot.

    def _on_reply_announced(self, event: ReplyAnnounced) -> None:
        reply_id, protected = event.reply_id, event.protected
        # A reply is announced again when it becomes known later that it may not be interrupted.
        if (reply_id, protected) not in self._coming and (reply_id, True) not in self._coming:
            self._coming.append((reply_id, protected))
            self._note(
                lambda policy, now_ms: policy.on_reply_coming(now_ms, protected=protected, reply_id=reply_id)
            )

    def _on_clause_announced(self, event: ClauseAnnounced) -> None:
        self._note(lambda policy, _now_ms: policy.on_saying(event.text))

    def _on_reply_started(self, _event: ReplyStarted) -> None:
        self._speaking = True
        self._note(lambda policy, now_ms: policy.on_bot_started(now_ms))

    def _on_reply_progressed(self, event: ReplyProgressed) -> None:
        last_word = event.heard.mark.last_word
        if last_word is not None:
            self._note(lambda policy, _now_ms: policy.on_heard(last_word))

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        self._speaking = False
        text, reply_id = event.heard.text, event.heard.reply_id
        self._note(lambda policy, now_ms: policy.on_bot_stopped(now_ms, text, reply_id=reply_id))

    def _note(self, event: _BotEvent) -> None:
        """Queue an event for the next unit; when no audio comes any more, the oldest are dropped."""
        self._events.append(event)
