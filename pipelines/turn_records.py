"""Completion of the records of a call's turns, and reports of decisions and playback to its client."""

from collections import deque

from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.bounded_dict import BoundedDict
from parley.core.call_events import (
    BotTurnEnded,
    CallEvent,
    PassagesCited,
    ReplyCut,
    ReplyDucked,
    ReplyFinished,
    ReplyRestored,
    ReplyResumed,
)
from parley.core.passage_notes import CitedPassage, cited_as_json
from parley.core.timeline import HeardReply
from parley.pipelines.call import Call
from parley.pipelines.client_metrics import ClientMetrics

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
        self._metrics = ClientMetrics(call, sends=sends)
        # Replies that were not sent to the client yet.
        self._heard: deque[HeardReply] = deque(maxlen=MOST_WAITING)
        # Passages of the replies of the bot's present turn.
        self._cited: BoundedDict[str, tuple[CitedPassage, ...]] = BoundedDict(MOST_WAITING)
        events = call.events
        events.subscribe(PassagesCited, self._on_passages_cited)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        for kind in (ReplyDucked, ReplyRestored, ReplyCut, ReplyResumed):
            events.subscribe(kind, self._on_decision)

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if event.heard.is_known:
            self._heard.append(event.heard)

    def _on_passages_cited(self, event: PassagesCited) -> None:
        self._cited[event.reply_id] = event.passages

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        turns = self._call.live.turns
        turns.bot_said(event.text, interrupted=event.interrupted)
        turns.close()
        drained = turns.drain()
        records = [record.as_message() for record in drained]
        for data in [*(reply.as_message() for reply in self._heard), *self._passages(event.text), *records]:
            self._send(data)
        self._metrics.send_turns(drained)
        self._heard.clear()
        self._cited.clear()

    def _passages(self, said: str) -> list[dict[str, object]]:
        """Return the message with the passages of the turn; none where nothing was said, or there are none.

        It precedes the record of the turn, so that a page shows both under the same words.
        """
        passages = cited_as_json(passage for cited in self._cited.values() for passage in cited)
        return [{"kind": "passages", "passages": passages}] if passages and said else []

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
