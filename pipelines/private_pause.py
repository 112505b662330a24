"""Private pauses of one call: between their events nothing of the call is recorded or stored.

A pause is requested by an operator (``PUT /api/sessions/{id}/private-pause``) or by a tool of the model, and
ends in the same way, or by itself after ``longest_s``. It begins at once. It ends at the first quiet moment
after that: what the caller was saying, and what the agent was answering, belongs to it, ``MOST_ENDING_S``
after the request at most. Words are marks meanwhile for everything but the model, where the deployment lets
it hear.

``run`` owns the times; its caller owns the task.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from parley.core.bounded_dict import BoundedDict
from parley.core.call_events import (
    PrivatePauseBegan,
    PrivatePauseEnded,
    PrivatePauseRequested,
    ReplyFinished,
    ReplyOpened,
    ReplyStarted,
    TurnEnded,
    VoiceStarted,
)
from parley.core.privacy import PrivatePauseSettings
from parley.models.tools import Tool
from parley.processors.perception.private_words import PrivateWords
from parley.runtime.event_stream import CallEvents
from parley.session_store.conversation import Conversation

PAUSE, RESUME = "pause_recording", "resume_recording"
LOOK_S = 0.5
MOST_ENDING_S = 30.0
MOST_OPEN = 32


class PrivatePauses:
    """Private pauses of one call.

    Args:
        settings: of the deployment.
        conversation: the session, which stores no words meanwhile.
        events: events of the call.
        words: the caller's words in a pause.
        paused_by: who began the pause in which the call goes on; empty where there is none.
    """

    def __init__(
        self,
        settings: PrivatePauseSettings,
        conversation: Conversation,
        events: CallEvents,
        words: PrivateWords,
        *,
        paused_by: str = "",
    ) -> None:
        self._paused_by = paused_by
        self._settings, self._conversation = settings, conversation
        self._events, self._words = events, words
        self._held = ExitStack()
        self._ends_ms = 0
        # Why the pause is to end, and since when; empty while it is not.
        self._ending, self._ending_ms = "", 0
        self._replies: BoundedDict[str, bool] = BoundedDict(MOST_OPEN)
        self._is_turn = False
        self._quiet_looks = 0
        self._changed = asyncio.Event()
        events.subscribe(PrivatePauseRequested, self._on_requested)
        events.subscribe(ReplyOpened, self._on_reply)
        events.subscribe(ReplyStarted, self._on_reply)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(TurnEnded, self._on_turn_ended)

    def tools(self) -> Sequence[Tool]:
        """Return the model's tools; none where it has none."""
        if not self._settings.tool:
            return ()
        return (
            _PauseTool(
                PAUSE,
                "Pauses the recording of the call and everything that is stored of it. Use it before the "
                "caller says something that must not be kept, such as the number of a payment card.",
                lambda: self._request(is_on=True),
            ),
            _PauseTool(
                RESUME,
                "Ends the pause: the call is recorded and stored again.",
                lambda: self._request(is_on=False),
            ),
        )

    async def run(self) -> None:
        """End each pause in time, until cancelled; a pause of a call that is over ends with it.

        The pause of a call that goes on begins here, for its longest time.
        """
        if self._paused_by:
            self._on_requested(PrivatePauseRequested(self._events.now_ms(), True, self._paused_by))
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                while self._words.is_on:
                    await asyncio.sleep(LOOK_S)
                    self._look()
        finally:
            # The records of the end of a call that was paused have no words either.
            self._held.close()

    def _request(self, *, is_on: bool) -> Mapping[str, Any]:
        self._events.publish(PrivatePauseRequested(self._events.now_ms(), is_on, "tool"))
        return {"status": "paused" if is_on else "recorded again after your next words"}

    def _on_requested(self, event: PrivatePauseRequested) -> None:
        if not event.is_on:
            if self._words.is_on and not self._ending:
                self._ending, self._ending_ms = event.by, event.at_ms
            return
        self._ending = ""
        if self._words.is_on:
            return
        self._ends_ms = event.at_ms + round(self._settings.longest_s * 1_000)
        self._quiet_looks = 0
        # In this order: the record of the beginning comes before the pause.
        self._events.publish(PrivatePauseBegan(event.at_ms, event.by))
        self._words.begin()
        self._held.enter_context(self._conversation.private())
        self._changed.set()

    def _look(self) -> None:
        """End the pause when it is due and nothing of it is left."""
        now_ms = self._events.now_ms()
        if not self._ending and now_ms >= self._ends_ms:
            self._ending, self._ending_ms = "time", self._ends_ms
        is_quiet = bool(self._ending) and not self._replies and not self._is_turn
        self._quiet_looks = self._quiet_looks + 1 if is_quiet else 0
        # The second look: the aggregators report a turn a moment after its end.
        is_late = bool(self._ending) and now_ms >= self._ending_ms + MOST_ENDING_S * 1_000
        if self._quiet_looks >= 2 or is_late:
            self._end()

    def _end(self) -> None:
        by, self._ending = self._ending or "time", ""
        self._words.end()
        self._held.close()
        self._events.publish(PrivatePauseEnded(self._events.now_ms(), by))

    def _on_reply(self, event: ReplyOpened | ReplyStarted) -> None:
        self._replies[event.reply_id] = True

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        self._replies.pop(event.heard.reply_id, None)

    def _on_voice_started(self, _event: VoiceStarted) -> None:
        self._is_turn = True

    def _on_turn_ended(self, _event: TurnEnded) -> None:
        self._is_turn = False


class _PauseTool:
    """Tool of a call that begins or ends a pause (``models.tools.Tool``)."""

    idempotent = True
    timeout_s = 5.0
    parameters: Mapping[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}

    def __init__(self, name: str, description: str, act: Callable[[], Mapping[str, Any]]) -> None:
        self.name, self.description, self._act = name, description, act

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Begin or end the pause (``Tool``)."""
        return self._act()
