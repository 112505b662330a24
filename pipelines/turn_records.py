"""Completion of the records of a call's turns, and reports of decisions and playback to its client."""

from collections import deque

from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.call_events import (
    BotTurnEnded,
    CallEvent,
    ReplyCut,
    ReplyDucked,
    ReplyFinished,
    ReplyRestored,
    ReplyResumed,
)
from parley.core.timeline import HeardReply
from parley.pipelines.call import Call

# Replies that wait to be sent with the next turn.
MOST_WAITING = 16


class TurnRecords:
    """Subscriber to the ends of the bot's turns and to decisions about voices over it.

    Args:
        call: the call.
        sends: True when there is a client that reads the messages.
    """

    def __init__(self, call: Call, *, sends: bool) -> None:
        self._call, self._sends = call, sends
        # Replies that were not sent to the client yet.
        self._heard: deque[HeardReply] = deque(maxlen=MOST_WAITING)
        events = call.events
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        for kind in (ReplyDucked, ReplyRestored, ReplyCut, ReplyResumed):
            events.subscribe(kind, self._on_decision)

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if event.heard.is_known:
            self._heard.append(event.heard)

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        turns = self._call.live.turns
        turns.bot_said(event.text, interrupted=event.interrupted)
        turns.close()
        records = [record.as_message() for record in turns.drain()]
        for data in [*(reply.as_message() for reply in self._heard), *records]:
            self._send(data)
        self._heard.clear()

    def _on_decision(self, event: CallEvent) -> None:
        match event:
            case ReplyDucked():
                act, facts = "duck", dict[str, object]()
            case ReplyRestored():
                act, facts = "restore", {}
            case ReplyCut(reason=reason, voice_ms=voice_ms):
                act, facts = "cut", {"reason": reason}
                if voice_ms is not None:
                    facts["voice_ms"] = voice_ms
            case ReplyResumed(from_word=from_word):
                act, facts = "resume", {"from_word": from_word}
            case _:
                raise AssertionError(event)
        self._send(self._call.live.turns.interruption(act, **facts))

    def _send(self, data: dict[str, object]) -> None:
        if self._sends:
            self._call.live.input.put(RTVIServerMessageFrame(data=data))
