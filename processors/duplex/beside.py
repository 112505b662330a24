"""The small tier beside an engine that has none: whose turn it is, and when the bot is to be silent.

A speech model that was not taught to yield, or that may not, is made to listen when the caller means it; and
somebody has to say where a turn of the caller ends, for the session. Both are decided as in the two-tier
engine, by the same ears and the same policy, on units of 80 ms of the caller's audio. What follows goes the
way of the engine's own decisions (``processors.duplex.dialogue.Steps``). Nothing is guessed, hummed or said
on: the words are the engine's affair.

In: the caller's audio (``hear``), the recogniser's words (``on_words``), the bot's replies as events of the
playout clock. Owns no task: ``run`` is its caller's. Voice activity runs in ``executor``. Slow: audio that
waits is bounded by ``WAITING_MS``; the oldest goes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor

from loguru import logger

from core.call_events import (
    ClauseAnnounced,
    ReplyAnnounced,
    ReplyFinished,
    ReplyProgressed,
    ReplyStarted,
    TurnEndRequested,
)
from core.errors import AgentError
from core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from models.omni.two_tier.dialogue import Asked
from models.omni.two_tier.ears import Ears, Told
from processors.duplex.dialogue import Steps
from runtime.event_stream import CallEvents
from turn_taking.duplex_policy import (
    Act,
    Ask,
    Close,
    DuplexPolicy,
    Forget,
    GoOn,
    Open,
    Volume,
    Yield,
)

UNIT_MS = 80
WAITING_MS = 2_000
WAITING_EVENTS = 256

_BotEvent = Callable[[DuplexPolicy, int], None]


class TurnsBeside:
    """Of one call.

    Args:
        events: of the call.
        steps: carries out what is decided.
        ears: what is heard, and the policy that decides; it neither guesses nor hums.
        executor: for voice activity.
        counts: whether a decision counts; others are an engine's that has a small tier, or sees to it itself.
        set_gain_db: the bot's volume, while it is not known; must not block.
    """

    def __init__(
        self,
        events: CallEvents,
        steps: Steps,
        ears: Ears,
        executor: Executor,
        *,
        counts: Callable[[Act], bool],
        set_gain_db: Callable[[float], None],
    ) -> None:
        self._steps = steps
        self._ears, self._policy = ears, ears.policy
        self._executor = executor
        self._counts = counts
        self._set_gain_db = set_gain_db
        self._unit_bytes = ears.rate_hz * UNIT_MS // 1000 * PCM_BYTES_PER_SAMPLE
        self._waiting_bytes = ears.rate_hz * WAITING_MS // 1000 * PCM_BYTES_PER_SAMPLE
        self._pcm = bytearray()
        self._events: deque[_BotEvent] = deque(maxlen=WAITING_EVENTS)
        self._coming: deque[tuple[str, bool]] = deque(maxlen=WAITING_EVENTS)
        self._wake = asyncio.Event()
        self._speaking = False
        self._ends_turn = False
        events.subscribe(TurnEndRequested, self._on_turn_end_requested)
        events.subscribe(ReplyAnnounced, self._on_reply_announced)
        events.subscribe(ClauseAnnounced, self._on_clause_announced)
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ReplyProgressed, self._on_reply_progressed)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def hear(self, pcm: bytes) -> None:
        """More of the caller's audio: 16-bit mono at the detector's rate."""
        self._pcm += pcm
        if len(self._pcm) > self._waiting_bytes:
            del self._pcm[: len(self._pcm) - self._waiting_bytes]
        if len(self._pcm) >= self._unit_bytes:
            self._wake.set()

    def on_words(self, words: Told) -> None:
        """What the recogniser understood."""
        self._ears.on_words(words)

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
                        # One specialist fails, the call goes on: a unit was not heard.
                        logger.warning(f"turns beside the engine: a unit was not heard: {error}")
                        continue
                    for act in filter(self._counts, acts):
                        self._follow(act)
        finally:
            self._ears.close()

    def _unit(self, pcm: bytes, events: list[_BotEvent]) -> list[Act]:
        """In the executor."""
        for event in events:
            event(self._policy, self._ears.now_ms)
        self._ears.hear(pcm16_to_float(pcm), bot_speaks=self._speaking)
        if self._ends_turn:
            self._ends_turn = False
            self._policy.end_turn()
        acts = self._policy.on_tick(self._ears.now_ms)
        if any(isinstance(act, Ask | Close) for act in acts):
            self._ears.turn_over()
        return acts

    def _follow(self, act: Act) -> None:
        if isinstance(act, Open):
            self._steps.on_turn(is_open=True)
        elif isinstance(act, Ask):
            self._steps.on_asked(Asked(act.text, act.silence_ms, act.completeness))
        elif isinstance(act, Close | GoOn):
            self._steps.on_turn(is_open=False)
        elif isinstance(act, Forget):
            self._steps.on_forgotten()
        elif isinstance(act, Yield):
            self._steps.on_dropped()
        elif isinstance(act, Volume):
            self._set_gain_db(act.gain_db)

    # What the bot does.

    def _on_reply_announced(self, event: ReplyAnnounced) -> None:
        reply_id, protected = event.reply_id, event.protected
        # Announced again where it is known only then that it may not be interrupted.
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
        """For the next unit; when no audio comes any more, the oldest are forgotten."""
        self._events.append(event)
