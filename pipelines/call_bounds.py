"""Records of the beginning and the end of a call in its session, by the call's events."""

from collections.abc import Mapping

from parley.core.call_events import CallAnswered, CallBegan, CallEnded, CallEnding
from parley.runtime.event_stream import CallEvents
from parley.session_store.conversation import Conversation
from parley.session_store.events import Kind


class CallBounds:
    """Records of one call: when it began, and when and why it ended.

    Args:
        events: events of the call.
        conversation: its session.
        call_id: its id.
        transport: name of its transport in the records.
        more: further fields of both records.
        choices: further fields of the first record.
    """

    def __init__(
        self,
        events: CallEvents,
        conversation: Conversation,
        call_id: str,
        transport: str,
        *,
        more: Mapping[str, object] | None = None,
        choices: Mapping[str, object] | None = None,
    ) -> None:
        self._conversation, self._call_id = conversation, call_id
        self._payload: dict[str, object] = {"transport": transport, "call_id": call_id, **(more or {})}
        self._choices = dict(choices or {})
        events.subscribe(CallBegan, lambda _event: self._write(Kind.JOINED, self._choices))
        events.subscribe(CallAnswered, self._on_call_answered)
        events.subscribe(CallEnding, self._on_call_ending)
        events.subscribe(CallEnded, lambda _event: self._write(Kind.LEFT, {}))

    def _on_call_answered(self, event: CallAnswered) -> None:
        self._payload["answered_by"] = event.by

    def _on_call_ending(self, event: CallEnding) -> None:
        # The first reason holds.
        self._payload.setdefault("reason", event.reason)

    def _write(self, kind: Kind, more: Mapping[str, object]) -> None:
        payload = {**self._payload, **more}
        draft = self._conversation.draft(kind, "system", payload, key=f"{kind.value}.{self._call_id}")
        self._conversation.record(draft)
