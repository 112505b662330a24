"""A timeline written by hand: events of one session, in the order of commit."""

from collections.abc import Mapping
from typing import Any

from parley.session_store.events import Draft, Event, Kind


class Timeline:
    """Builder of a timeline; every event happens a second after the one before, unless a time is given."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._replies = 0

    def add(
        self, kind: Kind, payload: Mapping[str, Any], *, at_us: int | None = None, source: str = "test"
    ) -> Event:
        seq = len(self.events) + 1
        event_us = seq * 1_000_000 if at_us is None else at_us
        event = Event(
            "s", seq, 1, kind, {"v": 1, **payload}, event_us, event_us, source, None, True, 1.0, f"key.{seq}"
        )
        self.events.append(event)
        return event

    def commit(self, draft: Draft) -> Event:
        seq = len(self.events) + 1
        event = Event(
            "s", seq, 1, draft.kind, {"v": 1, **draft.payload}, draft.event_us, draft.arrival_us,
            draft.source, draft.speaker, draft.final, draft.confidence, draft.key,
        )  # fmt: skip
        self.events.append(event)
        return event

    def said(self, text: str, *, at_us: int | None = None, transport: str = "webrtc", **more: Any) -> Event:
        return self.add(
            Kind.USER_TURN, {"text": text, "transport": transport, **more}, at_us=at_us, source="user"
        )

    def heard(self, reply_id: str, text: str, *, at_us: int | None = None) -> Event:
        return self.add(Kind.HEARD, {"reply_id": reply_id, "text": text}, at_us=at_us, source="bot")

    def replied(
        self, text: str, *, unheard: str | None = None, reply_id: str = "", at_us: int | None = None
    ) -> Event:
        self._replies += 1
        payload = {
            "reply_id": reply_id or f"reply.{self._replies}",
            "text": text,
            "truncated": unheard is not None,
            "unheard": unheard or "",
        }
        return self.add(Kind.BOT_TURN, payload, at_us=at_us, source="bot")

    def called(self, call_id: str, name: str = "look_up", **arguments: Any) -> Event:
        return self.add(
            Kind.TOOL_CALL, {"call_id": call_id, "name": name, "arguments": arguments}, source="bot"
        )

    def answered(self, call_id: str, result: Any, outcome: str = "done") -> Event:
        payload = {"call_id": call_id, "name": "look_up", "result": result, "outcome": outcome}
        return self.add(Kind.TOOL_RESULT, payload, source="tool")

    def state(self, **payload: Any) -> Event:
        return self.add(Kind.STATE, payload, source="system")

    def summary(self, text: str, until_seq: int, **payload: Any) -> Event:
        return self.add(Kind.SUMMARY, {"text": text, "until_seq": until_seq, **payload}, source="system")

    def visible(self) -> list[Event]:
        """Return the events that a process keeps in memory: not those that the newest summary covers."""
        summaries = [event for event in self.events if event.kind is Kind.SUMMARY]
        until_seq = summaries[-1].payload["until_seq"] if summaries else 0
        return [
            event
            for event in self.events
            if event.kind is Kind.STATE
            or event in summaries[-1:]
            or event.seq > until_seq
            and event not in summaries
        ]
