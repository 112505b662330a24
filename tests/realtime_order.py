"""State machine of the rules of event order that clients of OpenAI's realtime protocol rely on.

The rules come from the clients. LiveKit's plugin takes an item only inside its response, a part only inside
its item, a delta only inside its part, and ends a generation with ``response.done``. ``openai-agents`` builds
its history by ``previous_item_id``. Pipecat's service takes an item that is added twice for two.
"""

from typing import Any

# Keyed by the names that parts have in events; in an item they are output_audio and output_text.
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
_OTHERS = ("session.created", "session.updated", "error")


class Order:
    """State of one connection; ``take`` asserts the rules."""

    def __init__(self) -> None:
        self.event_ids: set[str] = set()
        self.began = False
        # State of the response that is on: its id, its items by output index, the part that is open.
        self.response: str | None = None
        self.outputs: list[str] = []
        self.open_items: dict[str, int] = {}
        self.part: tuple[str, str] | None = None
        self.part_dones: set[str] = set()
        self.text = ""
        self.arguments: dict[str, str] = {}
        self.done_responses: set[str] = set()
        # Responses outside of the conversation, and their items.
        self.aside: dict[str, list[str]] = {}
        # Items in the conversation: the one before, and whether they are done.
        self.items: dict[str, str | None] = {}
        self.done_items: set[str] = set()
        self.last_item: str | None = None
        # The response whose sound goes out by a track.
        self.sounding: str | None = None
        # Listings of MCP servers and calls of their tools, by item: how far they are.
        self.listings: dict[str, str] = {}
        self.mcp_calls: dict[str, str] = {}
        # The item of the caller's speech.
        self.speech: str | None = None
        self.stopped: str | None = None
        self.spoken: set[str] = set()
        self.transcribed: set[str] = set()
        self.heard_ms = 0

    def take(self, event: dict[str, Any]) -> None:
        """Check the next event."""
        kind = event["type"]
        assert event["event_id"] not in self.event_ids, "an event's id twice"
        self.event_ids.add(event["event_id"])
        assert self.began == (kind != "session.created"), f"{kind} before the session, or it twice"
        self.began = True
        if kind.startswith(("mcp_list_tools.", "response.mcp_call.")):
            self._of_mcp(kind, event["item_id"])
        elif kind.startswith("response."):
            self._of_response(kind, event)
        elif kind.startswith("conversation.item."):
            self._of_item(kind, event)
        elif kind.startswith("input_audio_buffer."):
            self._of_buffer(kind, event)
        elif kind.startswith("output_audio_buffer."):
            self._of_output(kind, event.get("response_id"))
        else:
            assert kind in _OTHERS, kind

    def over(self) -> None:
        """Assert that nothing is left open."""
        assert self.response is None
        assert not self.aside
        assert not self.open_items
        assert self.part is None
        assert self.sounding is None
        assert set(self.items) == self.done_items, set(self.items) - self.done_items

    def _of_response(self, kind: str, event: dict[str, Any]) -> None:
        response = event.get("response", {})
        response_id = response.get("id") or event.get("response_id")
        if response.get("conversation_id", "") is None and kind == "response.created":
            assert response_id not in self.aside
            self.aside[response_id] = []
            return
        if response_id in self.aside:
            self._aside(kind, event, response_id)
            return
        if kind == "response.created":
            assert self.response is None, "a response in a response"
            self.response = event["response"]["id"]
            assert self.response not in self.done_responses
            assert event["response"]["status"] == "in_progress"
            self.outputs = []
            return
        assert self.response is not None, f"{kind} outside of a response"
        if kind == "response.done":
            self._done(event["response"])
            return
        assert event["response_id"] == self.response, kind
        if kind == "response.output_item.added":
            item_id = event["item"]["id"]
            assert event["output_index"] == len(self.outputs)
            assert item_id not in self.outputs
            self.outputs.append(item_id)
            self.open_items[item_id] = event["output_index"]
            return
        item_id = event["item"]["id"] if "item" in event else event["item_id"]
        assert self.open_items.get(item_id) == event["output_index"], f"{kind} of an item that is not open"
        if kind == "response.output_item.done":
            assert self.part is None or self.part[0] != item_id, "an item is done before its part"
            assert event["item"].get("status") in ("completed", "incomplete", None)
            del self.open_items[item_id]
        elif kind.startswith(("response.function_call_arguments.", "response.mcp_call_arguments.")):
            if kind.endswith("delta"):
                self.arguments[item_id] = self.arguments.get(item_id, "") + event["delta"]
            else:
                assert event["arguments"] == self.arguments[item_id]
        elif kind == "response.content_part.added":
            assert self.part is None
            self.part, self.text, self.part_dones = (item_id, event["part"]["type"]), "", set()
            assert item_id in self.items, "a part of an item that is not in the conversation"
        elif kind == "response.content_part.done":
            assert self.part == (item_id, event["part"]["type"])
            expected = {kind for kind, part in _DONES.items() if part == self.part[1]}
            assert self.part_dones == expected, "a part is done before what it consists of"
            self.part = None
        elif kind in _DELTAS:
            assert self.part == (item_id, _DELTAS[kind]), f"{kind} outside of its part"
            if "audio.delta" not in kind:
                self.text += event["delta"]
        elif kind in _DONES:
            assert self.part == (item_id, _DONES[kind]), f"{kind} outside of its part"
            assert kind not in self.part_dones
            self.part_dones.add(kind)
            if "audio.done" not in kind:
                assert event.get("transcript", event.get("text")) == self.text
        else:
            raise AssertionError(kind)

    def _of_mcp(self, kind: str, item_id: str) -> None:
        """Check the state of a listing or a call, which is no part of a response."""
        known = self.listings if kind.startswith("mcp_list_tools.") else self.mcp_calls
        state = kind.rpartition(".")[2]
        assert item_id in self.items and item_id not in self.done_items, kind
        assert known[item_id] in ("", "in_progress") and known[item_id] != state, kind
        # A call that is not approved is never in progress.
        assert state in ("in_progress", "failed") or known[item_id] == "in_progress", kind
        known[item_id] = state

    def _aside(self, kind: str, event: dict[str, Any], response_id: str) -> None:
        """Check an event of a response outside of the conversation, which is no part of its items."""
        if kind == "response.output_item.added":
            self.aside[response_id].append(event["item"]["id"])
        elif kind == "response.done":
            items = self.aside.pop(response_id)
            assert [item["id"] for item in event["response"]["output"]] == items
            assert not set(items) & set(self.items)
        else:
            item_id = event["item"]["id"] if "item" in event else event["item_id"]
            assert item_id in self.aside[response_id]

    def _done(self, response: dict[str, Any]) -> None:
        assert response["id"] == self.response
        assert not self.open_items, "a response is done before its items"
        assert [item["id"] for item in response["output"]] == self.outputs
        status, details = response["status"], response["status_details"]
        assert status in ("completed", "cancelled", "failed", "incomplete")
        if status == "cancelled":
            assert details["reason"] in ("turn_detected", "client_cancelled")
        self.done_responses.add(response["id"])
        self.response = None

    def _of_item(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "conversation.item.added":
            item_id = event["item"]["id"]
            assert item_id not in self.items, "an item is added twice"
            assert event["previous_item_id"] == self.last_item, "the chain of items is broken"
            self.items[item_id] = self.last_item
            self.last_item = item_id
            if event["item"]["type"] == "mcp_list_tools":
                self.listings[item_id] = ""
            elif event["item"]["type"] == "mcp_call":
                self.mcp_calls[item_id] = ""
            if any(part["type"] == "input_audio" for part in event["item"].get("content", ())):
                self.spoken.add(item_id)
        elif kind == "conversation.item.done":
            item_id = event["item"]["id"]
            assert item_id in self.items, "an item is done that was not added"
            assert item_id not in self.done_items, "an item is done twice"
            assert event["previous_item_id"] == self.items[item_id]
            for known in (self.listings, self.mcp_calls):
                assert known.get(item_id, "completed") in ("completed", "failed"), "done before it is over"
            self.done_items.add(item_id)
        elif kind in ("conversation.item.retrieved",):
            assert event["item"]["id"] in self.items
        elif kind.startswith("conversation.item.input_audio_transcription."):
            assert event["item_id"] in self.spoken, "words of nothing that was said"
            assert event["item_id"] not in self.transcribed, "words behind the end of the words"
            if kind.endswith("completed"):
                self.transcribed.add(event["item_id"])
        elif kind == "conversation.item.truncated":
            assert event["item_id"] in self.items
        elif kind == "conversation.item.deleted":
            assert event["item_id"] in self.done_items
            self.done_items.discard(event["item_id"])
            del self.items[event["item_id"]]
            self.last_item = next(reversed(self.items), None)
        else:
            raise AssertionError(kind)

    def _of_buffer(self, kind: str, event: dict[str, Any]) -> None:
        if kind == "input_audio_buffer.speech_started":
            assert self.speech is None, "somebody speaks twice"
            self.speech = event["item_id"]
            self.spoken.add(self.speech)
            assert event["audio_start_ms"] >= 0
            self.heard_ms = event["audio_start_ms"]
        elif kind == "input_audio_buffer.speech_stopped":
            assert event["item_id"] == self.speech
            assert event["audio_end_ms"] >= self.heard_ms, "speech of less than nothing"
            self.stopped, self.speech = self.speech, None
        elif kind == "input_audio_buffer.committed":
            assert self.speech is None or self.speech != event["item_id"]
            assert event["previous_item_id"] == self.last_item
            self.spoken.add(event["item_id"])
        else:
            assert kind in ("input_audio_buffer.cleared", "input_audio_buffer.timeout_triggered"), kind

    def _of_output(self, kind: str, response_id: str | None) -> None:
        if kind == "output_audio_buffer.started":
            assert self.sounding is None, "two responses at once"
            assert response_id == self.response and self.part is not None, "sound of no part"
            self.sounding = response_id
        elif kind == "output_audio_buffer.stopped":
            assert response_id == self.sounding and response_id in self.done_responses
            self.sounding = None
        else:
            assert kind == "output_audio_buffer.cleared", kind
            # An answer to a client whose sound goes by events names no response.
            assert response_id == self.sounding
            self.sounding = None
