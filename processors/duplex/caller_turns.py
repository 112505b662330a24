"""Write the caller's turns with a realtime service into the session.

Each turn is written at the moment when its voice began, because the transcript of a service comes late,
sometimes after the beginning of the answer.
"""

import asyncio
from collections.abc import Awaitable, Callable

from loguru import logger

from parley.core.call_events import FinalWords, TextTyped, TurnTranscribed, VoiceEnded, VoiceStarted
from parley.core.errors import AgentError
from parley.processors.fusion.perception import Perceived
from parley.runtime.event_stream import CallEvents
from parley.session_store.conversation import Conversation

# A voice that ended so long ago without a transcript was no turn: a cough, a noise.
FORGOTTEN_MS = 5_000
# Wait for the last words of a call that ends on their way to the session, which keeps them.
LAST_WORDS_S = 0.5

Perceive = Callable[[str], Awaitable[Perceived]]


class CallerTurns:
    """Turns of the caller on their way into the session.

    Owns a task for each turn that is not in it yet; ``close`` ends them.

    Args:
        conversation: the session.
        events: events of the call.
        transport: transport of the call, for the record.
        perceive: returns the perceptions of a turn.
    """

    def __init__(
        self, conversation: Conversation, events: CallEvents, *, transport: str, perceive: Perceive
    ) -> None:
        self._conversation = conversation
        self._transport = transport
        self._perceive = perceive
        self._tasks: set[asyncio.Task[None]] = set()
        # Times of the voice without a transcript yet, and of the words that are not a turn yet.
        self._voice_us: int | None = None
        self._voice_ended_us: int | None = None
        self._words_us: int | None = None
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)
        events.subscribe(FinalWords, self._on_final_words)
        events.subscribe(TextTyped, self._on_text_typed)
        events.subscribe(TurnTranscribed, self._on_turn_transcribed)

    def _on_voice_started(self, event: VoiceStarted) -> None:
        now_us = self._conversation.clock.now_us()
        ended_us = self._voice_ended_us
        if self._voice_us is None or (ended_us is not None and now_us - ended_us > FORGOTTEN_MS * 1000):
            self._voice_us = now_us - event.voiced_ms * 1000
        self._voice_ended_us = None

    def _on_voice_ended(self, _event: VoiceEnded) -> None:
        self._voice_ended_us = self._conversation.clock.now_us()

    def _on_final_words(self, _event: FinalWords) -> None:
        if self._words_us is None:
            self._words_us = self._voice_us
        self._voice_us = None

    def _on_text_typed(self, event: TextTyped) -> None:
        self._take(event.text, None, is_typed=True)

    def _on_turn_transcribed(self, event: TurnTranscribed) -> None:
        began_us, self._words_us = self._words_us, None
        self._take(event.text, began_us)

    def _take(self, text: str, began_us: int | None, *, is_typed: bool = False) -> None:
        if text.strip():
            commit = self._commit(text, began_us, is_typed=is_typed)
            task = asyncio.create_task(commit, name="caller_turns.commit")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Wait for pending turns, for ``LAST_WORDS_S``; the session keeps what it has taken."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=LAST_WORDS_S)
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _commit(self, text: str, began_us: int | None, *, is_typed: bool) -> None:
        try:
            seen = await self._perceive(text)
            await self._conversation.user_turn(
                text,
                transport=self._transport,
                rendered=seen.text,
                tokens=seen.tokens,
                event_us=began_us,
                is_typed=is_typed,
            )
        except AgentError as error:
            # The service answers by itself: its answer cannot be held back, and the caller is not informed.
            logger.error(f"a turn could not be written to the session: {type(error).__name__}: {error}")
