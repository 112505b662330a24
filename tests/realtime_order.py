"""The rules that clients of OpenAI's realtime protocol rely on, as a machine that every event goes through.

From what they do: LiveKit's plugin takes an item only inside its response, a part only inside its item, a
delta only inside its part, and ends a generation with ``response.done``; ``openai-agents`` builds its history
by ``previous_item_id``; Pipecat's service takes an item that is added twice for two.
"""

from typing import Any

# Under the names that parts have in events; in an item they are output_audio and output_text.
_DELTAS = {
    "response.output_audio.delta": "audio",
    "response.output_audio_transcript.delta": "audio",
    "response.output_text.delta": "text",
}
_DONES = {
    "response.output_audio.done": "audio",
    "response.output_audio_transcript.done": "audio",
    "response.output_text.done": "text",
}
_OTHERS = ("session.created", "session.updated", "error", "output_audio_buffer.cleared")


class Order:
    """One connection. ``take`` asserts."""

    def __init__(self) -> None:
        self.event_ids: set[str] = set()
        self.began = False
        # Of the response that is on: its id, its items by output index, the part that is open.
        self.response: str | None = None
        self.outputs: list[str] = []
        self.open_items: dict[str, int] = {}
        self.part: tuple[str, str] | None = None
        self.text = ""
        self.arguments: dict[str, str] = {}
        self.done_responses: set[str] = set()
        # Items in the conversation: the one before, and whether they are done.
        self.items: dict[str, str | None] = {}
        self.done_items: set[str] = set()
        self.last_item: str | None = None
        # What the caller says.
        self.speech: str | None = None
        self.stopped: str | None = None
        self.spoken: set[str] = set()
        self.transcribed: set[str] = set()
        self.heard_ms = 0

    def take(self, event: dict[str, Any]) -> None:
        """The next event."""
        kind = event["type"]
        assert event["event_id"] not in self.event_ids, "an event's id twice"
        self.event_ids.add(event["event_id"])
        assert self.began == (kind != "session.created"), f"{kind} before the session, or it twice"
        self.began = True
        if kind.startswith("response."):
            self._of_response(kind, event)
        elif kind.startswith("conversation.item."):
            self._of_item(kind, event)
        elif kind.startswith("input_audio_buffer."):
            self._of_buffer(kind, event)
        else:
            assert kind in _OTHERS, kind
