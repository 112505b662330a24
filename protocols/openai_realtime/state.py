"""One conversation in OpenAI's realtime protocol: what reading and telling both know.

An answer may be owed: the server goes on by itself behind a turn of the caller's, a commit, a typed message
and the output of a tool. A client that asks for it then (``response.create``) has asked for that one, and
gets no second.
"""

from collections import OrderedDict
from dataclasses import dataclass, field
from enum import Enum

from protocols.openai_realtime.shapes import VOICE, Settings, detection, event, new_id, shown_format
from protocols.surface import SAMPLE_BYTES, Message, Refusal

MOST_ITEMS = 512
MOST_ITEM_CHARS = 64


@dataclass(slots=True)
class Item:
    """Something in the conversation.

    Attributes:
        body: as the client is told of it.
        previous: the item before it.
        reply_id: of what the bot says.
        audio_ms: of that, sent so far.
        text: of that, said so far.
        output_index: in its response.
        words: typed, that nobody has answered.
        modality: of what the bot says, from its beginning to its end.
    """

    body: Message
    previous: str | None = None
    reply_id: str = ""
    audio_ms: float = 0.0
    text: str = ""
    output_index: int = 0
    words: str = ""
    modality: str = "audio"

    @property
    def item_id(self) -> str:
        """Under which it can be asked for."""
        return str(self.body["id"])

    def play(self, duration_ms: float) -> None:
        """Count audio that is sent."""
        self.audio_ms += duration_ms

    def say(self, text: str) -> str:
        """Add words of the bot's; return them with what parts them from those before."""
        delta = f" {text}" if self.text else text
        self.text += delta
        return delta


class Items:
    """Of a conversation, in order; of a long one the newest."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, Item] = OrderedDict()
        self.last: str | None = None

    def get(self, item_id: str) -> Item | None:
        """By its id."""
        return self._items.get(item_id)

    def of_reply(self, reply_id: str) -> Item | None:
        """What the bot said as this reply."""
        return next((item for item in reversed(self._items.values()) if item.reply_id == reply_id), None)

    def new(
        self,
        body: Message,
        *,
        item_id: object = None,
        words: str = "",
        reply_id: str = "",
        modality: str = "audio",
    ) -> Item:
        """One that is not in the conversation yet.

        Raises:
            Refusal: its id is taken.
        """
        chosen = (
            item_id if isinstance(item_id, str) and 0 < len(item_id) <= MOST_ITEM_CHARS else new_id("item")
        )
        if chosen in self._items:
            raise Refusal(f"there is an item {chosen!r} already", code="invalid_value", param="item.id")
        body = {"id": chosen, "object": "realtime.item", **body}
        return Item(body, words=words, reply_id=reply_id, modality=modality)

    def add(self, item: Item) -> Message:
        """Put it at the end; the event that says so."""
        item.previous = self.last
        self._items[item.item_id] = item
        self.last = item.item_id
        while len(self._items) > MOST_ITEMS:
            self._items.popitem(last=False)
        return event("conversation.item.added", previous_item_id=item.previous, item=dict(item.body))

    def forget(self, item: Item) -> None:
        """It is not there any more."""
        self._items.pop(item.item_id, None)
        if self.last == item.item_id:
            self.last = next(reversed(self._items), None)


def done(item: Item) -> Message:
    """Nothing of it changes any more."""
    return event("conversation.item.done", previous_item_id=item.previous, item=dict(item.body))


@dataclass(slots=True)
class Response:
    """What the bot is saying and doing, and which items that is.

    Attributes:
        is_claimable: it answers what the client has not asked for yet and may be about to.
        is_cancelled: the client has asked for its end.
    """

    response_id: str = field(default_factory=lambda: new_id("resp"))
    items: list[Item] = field(default_factory=list)
    is_claimable: bool = False
    is_cancelled: bool = False

    @property
    def speech(self) -> Item | None:
        """Return what the bot says; None where it only calls a tool."""
        return next((item for item in self.items if item.reply_id), None)

    def add(self, item: Item) -> None:
        """Put an item at the end."""
        item.output_index = len(self.items)
        self.items.append(item)

    def cancel(self) -> None:
        """Note that the client has asked for its end."""
        self.is_cancelled = True


class Owed(Enum):
    """An answer that will come by itself."""

    NONE = "none"
    TURN = "turn"
    """The caller's turn is over."""
    COMMIT = "commit"
    """The client has committed audio, or put it into an item."""
    TOOL = "tool"
    """A tool was answered."""
    ASKED = "asked"
    """And the client has asked for it."""


class State:
    """One conversation.

    Args:
        model: that the client asked for.

    Attributes:
        caller, caller_words: what is being said, and how it was understood so far.
        heard_ms: audio that came in all.
        began_ms, ended_ms: of what the caller said last, in that audio.
        held: audio that waits for its commit.
        typed: messages that wait for a response.
        notes: of the client, beside its instructions.
        asked: calls of tools that wait for their output.
        takes_instructions: those of the client are followed.
    """

    def __init__(self, model: str) -> None:
        self.model = model
        self.session_id = new_id("sess")
        self.conversation_id = new_id("conv")
        self.settings = Settings(detection=detection({}))
        self.items = Items()
        self.response: Response | None = None
        self.owed = Owed.NONE
        self.caller: Item | None = None
        self.caller_words: list[str] = []
        self.heard_ms = 0.0
        self.began_ms = self.ended_ms = 0
        self.held = bytearray()
        self.typed: list[Item] = []
        self.notes: list[Item] = []
        self.asked: set[str] = set()
        self.takes_instructions = True

    def begin(self, session_id: str) -> Message:
        """Take the session's id; return the event of its beginning."""
        self.session_id = session_id
        return event("session.created", session=self.shown_session())

    def update(self, settings: Settings) -> Message:
        """Take new settings; return the event that says so."""
        if settings.input_format != self.settings.input_format:
            # It was written in another format.
            self.held.clear()
        self.settings = settings
        return event("session.updated", session=self.shown_session())

    def permit(self, *, instructions: bool) -> None:
        """See ``Dialect``."""
        self.takes_instructions = instructions

    def noted(self) -> list[str]:
        """What the bot is to know besides its instructions."""
        return [note.words for note in self.notes]

    # The caller.

    def long_ms(self, data: bytes | bytearray) -> float:
        """Of audio in the input's format."""
        format_ = self.settings.input_format
        return len(data) * 1000 / (SAMPLE_BYTES[format_.codec] * format_.rate_hz)

    def hear(self, data: bytes) -> None:
        """Count audio that came in."""
        self.heard_ms += self.long_ms(data)

    def _heard_at(self, voice_ms: int | None) -> int:
        """Return a moment of the audio that came in; None: now."""
        return int(self.heard_ms) if voice_ms is None else min(voice_ms, int(self.heard_ms))

    def speaks_from(self, voice_ms: int | None) -> None:
        """Note when the caller began: not before the end of what was said last, and not behind what came."""
        self.began_ms = max(self.ended_ms, self._heard_at(voice_ms))

    def spoke_until(self, voice_ms: int | None) -> None:
        """Note when the caller ended."""
        self.ended_ms = max(self.began_ms, self._heard_at(voice_ms))

    def spoke(self, data: bytes) -> None:
        """Note a whole turn of the caller's, which is answered."""
        self.ended_ms = int(self.heard_ms)
        self.began_ms = max(0, self.ended_ms - int(self.long_ms(data)))
        self.owed = Owed.COMMIT

    def begin_turn(self, item: Item | None = None) -> Item:
        """Return the item of what the caller begins to say: the given one, or a new one."""
        self.caller_words = []
        content = [{"type": "input_audio", "transcript": None}]
        self.caller = item or self.items.new(
            {"type": "message", "role": "user", "status": "in_progress", "content": content}
        )
        return self.caller

    def end_turn(self) -> tuple[Item, str] | None:
        """Return what the caller said, and its words; None where nothing was begun."""
        item, self.caller = self.caller, None
        if item is None:
            return None
        transcript = " ".join(self.caller_words)
        item.body["content"][-1]["transcript"] = transcript
        return item, transcript

    def committed(self, item: Item) -> list[Message]:
        """What the caller said is in the conversation."""
        previous = self.items.last
        item.body["status"] = "completed"
        return [
            event("input_audio_buffer.committed", previous_item_id=previous, item_id=item.item_id),
            self.items.add(item),
            done(item),
        ]

    # What is answered.

    def ask(self) -> None:
        """Note that the client has asked for an answer, to all that it typed."""
        self.typed.clear()
        self.owed = Owed.ASKED

    def claim(self) -> bool:
        """Take an answer that comes by itself for what the client asks for; return whether there is one."""
        if self.owed not in (Owed.NONE, Owed.ASKED):
            self.owed = Owed.ASKED
        elif self.response is not None and self.response.is_claimable:
            self.response.is_claimable = False
        else:
            return False
        return True

    def answer_tool(self, call_id: str) -> None:
        """Note the output of a tool, which is answered."""
        self.asked.discard(call_id)
        self.owed = Owed.TOOL

    def answer_turn(self) -> None:
        """Note that a turn is answered."""
        if self.owed is Owed.NONE:
            self.owed = Owed.TURN

    def owe_nothing(self, status: str, reason: str = "") -> list[Message]:
        """Expect no answer any more; return an empty one where the client waits for it."""
        owed, self.owed = self.owed, Owed.NONE
        return self.empty_response(status, reason) if owed is Owed.ASKED and self.response is None else []

    def open_response(self) -> Response:
        """Begin the answer that was owed, or what the bot says by itself."""
        self.response = Response(is_claimable=self.owed in (Owed.COMMIT, Owed.TOOL))
        self.owed = Owed.NONE
        return self.response

    def close_response(self) -> Response | None:
        """Return the response that was on."""
        response, self.response = self.response, None
        return response

    # As the client is shown it.

    def shown_session(self) -> Message:
        """What holds."""
        settings = self.settings
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": self.session_id,
            "model": self.model,
            "output_modalities": [settings.modality],
            "instructions": settings.instructions if self.takes_instructions else "",
            "tools": list(settings.tools),
            "tool_choice": settings.tool_choice,
            "max_output_tokens": "inf",
            "audio": {
                "input": {
                    "format": shown_format(settings.input_format),
                    "transcription": settings.transcription,
                    "noise_reduction": None,
                    "turn_detection": None if settings.detection is None else dict(settings.detection),
                },
                "output": {"format": shown_format(settings.output_format), "voice": VOICE, "speed": 1.0},
            },
        }

    def shown_response(self, response: Response, status: str, details: Message | None = None) -> Message:
        """As its first and its last event have it. How many tokens it took is not known."""
        settings = self.settings
        return {
            "object": "realtime.response",
            "id": response.response_id,
            "conversation_id": self.conversation_id,
            "status": status,
            "status_details": details,
            "output": [dict(item.body) for item in response.items] if status != "in_progress" else [],
            "output_modalities": [settings.modality],
            "audio": {"output": {"format": shown_format(settings.output_format), "voice": VOICE}},
            "max_output_tokens": "inf",
            "metadata": None,
            "usage": None,
        }

    def empty_response(self, status: str, reason: str = "") -> list[Message]:
        """One without an answer, for a client that waits for it."""
        response = Response()
        details = {"type": status, "reason": reason} if reason else None
        return [
            event("response.created", response=self.shown_response(response, "in_progress")),
            event("response.done", response=self.shown_response(response, status, details)),
        ]
