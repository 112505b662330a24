"""Closes the records of a call's turns, and sends its client what was decided and heard."""

from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from core.call_events import BotTurnEnded, CallEvent, ReplyCut, ReplyDucked, ReplyRestored, ReplyResumed
from pipelines.call import Call


class TurnRecords:
    """Subscribes to the ends of the bot's turns and to decisions about voices over it.

    Args:
        call: whose turns.
        sends: whether there is a client that reads the messages.
    """

    def __init__(self, call: Call, *, sends: bool) -> None:
        self._call, self._sends = call, sends
        events = call.events
        events.subscribe(BotTurnEnded, self._on_bot_turn_ended)
        for kind in (ReplyDucked, ReplyRestored, ReplyCut, ReplyResumed):
            events.subscribe(kind, self._on_decision)

    def _on_bot_turn_ended(self, event: BotTurnEnded) -> None:
        turns, call = self._call.turns, self._call
        turns.bot_said(event.text, interrupted=event.interrupted)
        turns.close()
        records = [record.as_message() for record in turns.drain()]
        replies = call.drain_heard()
        if event.text and not any(reply.in_context for reply in replies):
            # Not for the voice (a client that reads): nothing of it was played, all of it was shown.
            call.wrote(event.text, interrupted=event.interrupted)
        for data in [*(reply.as_message() for reply in replies), *records]:
            self._send(data)

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
        self._send(self._call.turns.interruption(act, **facts))

    def _send(self, data: dict[str, object]) -> None:
        if self._sends:
            self._call.input.put(RTVIServerMessageFrame(data=data))
