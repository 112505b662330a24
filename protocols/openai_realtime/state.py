"""State of one conversation in OpenAI's realtime protocol, shared by ``client_events`` and ``server_events``.

An answer may be owed: the server answers on its own after a turn of the caller, a commit, a typed message and
the output of a tool. A client that then sends ``response.create`` has requested that answer, and receives no
second one.
"""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from enum import Enum

from parley.core.bounded_dict import BoundedDict
from parley.core.call_choices import NO_VOICES, VoiceNames
from parley.core.passage_notes import CitedPassage
from parley.core.usage import Usage
from parley.protocols.client_protocol import SAMPLE_BYTES, Codec, Format, Message, ProtocolError
from parley.protocols.openai_realtime.mcp_items import OpenMcpItems
from parley.protocols.openai_realtime.shapes import (
    METADATA_CHARS,
    MOST_METADATA,
    REALTIME,
    TRANSCRIPTION,
    ResponseRequest,
    Settings,
    detection,
    event,
    new_id,
    shown_choice,
    shown_format,
    shown_usage,
    shown_voice,
    status_details,
)

MOST_ITEMS = 512
MOST_ITEM_CHARS = 64
# Answers outside of the conversation that one client may wait for at a time.
MOST_ASIDE = 4
# Longest audio that waits for its commit.
MOST_HELD_MS = 55_000
# Replies that are not over and whose passages or tokens are known.
MOST_CITING = 8


@dataclass(slots=True)
class Item:
    """Item of the conversation.

    Attributes:
        body: as the client receives it.
        previous: id of the item before it.
        reply_id: of the bot's reply; empty for other items.
        audio_ms: duration of the reply's audio sent so far.
        text: words of the reply so far.
        output_index: position in its response.
        words: text of a typed message that has not been answered.
        modality: of the reply, fixed when it begins.
        heard: words of the reply that the caller heard, once it is known how much was played.
        played_ms: how much that was; None: not known.
    """

    body: Message
    previous: str | None = None
    reply_id: str = ""
    audio_ms: float = 0.0
    text: str = ""
    output_index: int = 0
    words: str = ""
    modality: str = "audio"
    heard: str | None = None
    played_ms: int | None = None

    @property
    def item_id(self) -> str:
        """Id by which the client refers to it."""
        return str(self.body["id"])

    def play(self, duration_ms: float) -> None:
        """Count audio that was sent."""
        self.audio_ms += duration_ms

    def trim(self, heard: str, played_ms: int) -> None:
        """Record what the caller has heard of it."""
        self.heard, self.played_ms = heard, played_ms

    def shown(self) -> Message:
        """Return the item as it is now: of a reply that was truncated, the words that were heard."""
        body = dict(self.body)
        if self.heard is not None and self.body["content"]:
            [part] = self.body["content"]
            body["content"] = [{**part, "transcript" if "transcript" in part else "text": self.heard}]
        return body

    def say(self, text: str) -> str:
        """Add words of the bot; return them with the separator from the words before."""
        delta = f" {text}" if self.text else text
        self.text += delta
        return delta


class Items:
    """Items of a conversation, in order; the oldest are evicted beyond ``MOST_ITEMS``."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, Item] = OrderedDict()
        self.last: str | None = None

    def get(self, item_id: str) -> Item | None:
        """Return an item by its id."""
        return self._items.get(item_id)

    def of_reply(self, reply_id: str) -> Item | None:
        """Return the item of a reply."""
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
        """Return an item that is not in the conversation yet.

        Raises:
            ProtocolError: its id is taken.
        """
        chosen = (
            item_id if isinstance(item_id, str) and 0 < len(item_id) <= MOST_ITEM_CHARS else new_id("item")
        )
        if chosen in self._items:
            # LiveKit's plugin takes this code for success.
            raise ProtocolError(
                f"there is an item {chosen!r} already", code="item_create_duplicate_item_id", param="item.id"
            )
        body = {"id": chosen, "object": "realtime.item", **body}
        return Item(body, words=words, reply_id=reply_id, modality=modality)

    def add(self, item: Item) -> Message:
        """Append an item; return the event about it."""
        item.previous = self.last
        self._items[item.item_id] = item
        self.last = item.item_id
        while len(self._items) > MOST_ITEMS:
            self._items.popitem(last=False)
        return event("conversation.item.added", previous_item_id=item.previous, item=dict(item.body))

    def forget(self, item: Item) -> None:
        """Remove an item."""
        self._items.pop(item.item_id, None)
        if self.last == item.item_id:
            self.last = next(reversed(self._items), None)


def done(item: Item) -> Message:
    """Return the event after which an item does not change any more."""
    return event("conversation.item.done", previous_item_id=item.previous, item=dict(item.body))


def truncated(item: Item, audio_ms: int) -> Message:
    """Return the event about how much of a reply's audio the caller has heard."""
    return event("conversation.item.truncated", item_id=item.item_id, content_index=0, audio_end_ms=audio_ms)


@dataclass(slots=True)
class Response:
    """Response of the bot, with its items.

    Attributes:
        request: what the client has requested for it.
        response_id: generated here.
        items: in order.
        is_claimable: the client has not requested it yet and may be about to.
        is_cancelled: the client has requested its end.
        is_filler: its speech covers the wait for an answer, which is another response.
        has_sounded: sound of it has gone out by a track.
        usage: tokens of the model for it; None where none are known.
    """

    request: ResponseRequest
    response_id: str = field(default_factory=lambda: new_id("resp"))
    items: list[Item] = field(default_factory=list)
    is_claimable: bool = False
    is_cancelled: bool = False
    is_filler: bool = False
    has_sounded: bool = False
    usage: Usage | None = None

    @property
    def speech(self) -> Item | None:
        """Item with the bot's speech; None for a response that only calls a tool."""
        return next((item for item in self.items if item.reply_id), None)

    def add(self, item: Item) -> None:
        """Append an item."""
        item.output_index = len(self.items)
        self.items.append(item)

    def sound(self) -> None:
        """Record that sound of it has gone out by a track."""
        self.has_sounded = True

    def use(self, usage: Usage | None) -> None:
        """Record the tokens of the model for it."""
        self.usage = usage

    def cancel(self) -> None:
        """Record that the client has requested its end: a later request is for another response."""
        self.is_cancelled, self.is_claimable = True, False


class Owed(Enum):
    """Reason for which an answer will come without a request."""

    NONE = "none"
    TURN = "turn"
    """The caller's turn is over."""
    COMMIT = "commit"
    """The client has committed audio, or put it into an item."""
    TOOL = "tool"
    """A tool was answered."""
    ASKED = "asked"
    """The client has requested it as well."""


class RealtimeState:
    """State of one conversation.

    Args:
        model: name that the client requested.
        kind: of the session at its beginning.
        has_tracks: sound goes by tracks of WebRTC in both directions, and not by events.

    Attributes:
        caller, caller_words: item of the caller's present turn, and its words so far.
        heard_ms: total duration of the audio received.
        began_ms, ended_ms: start and end of the caller's last turn in that audio.
        held: audio that waits for its commit.
        typed: messages that wait for a response.
        notes: system messages of the client, in addition to its instructions.
        asked: ids of tool calls that wait for their output.
        interrupted: those of them that were interrupted: their output is for the next answer, and none comes
            on its own.
        mcp: items about MCP servers that are not over.
        takes_instructions: true when the client's instructions are followed.
        voices: that the client may choose.
        has_spoken: the client has received audio of the bot.
        aside: responses outside of the conversation that the client waits for.
    """

    def __init__(self, model: str, *, kind: str = REALTIME, has_tracks: bool = False) -> None:
        self.model = model
        self.has_tracks = has_tracks
        # Of the caller's track; None before its first sound.
        self._track_format: Format | None = None
        self.session_id = new_id("sess")
        self.conversation_id = new_id("conv")
        self.settings = Settings(kind=kind, detection=detection({}))
        self.items = Items()
        self.response: Response | None = None
        self.owed = Owed.NONE
        self.aside: dict[str, Response] = {}
        # Of the answer that is owed, where the client has requested it.
        self._request: ResponseRequest | None = None
        # Events of requests that ended without an answer while a response was active: they follow it.
        self._ended: list[Message] = []
        self.caller: Item | None = None
        self.caller_words: list[str] = []
        self.heard_ms = 0.0
        self.began_ms = self.ended_ms = 0
        self.held = bytearray()
        self.typed: list[Item] = []
        self.notes: list[Item] = []
        self.asked: set[str] = set()
        self.interrupted: set[str] = set()
        self.mcp = OpenMcpItems()
        self.takes_instructions = True
        self.voices = NO_VOICES
        self.has_spoken = False
        # Passages that replies rest on: those of the next one may be known before the present one is over.
        self._cited: BoundedDict[str, tuple[CitedPassage, ...]] = BoundedDict(MOST_CITING)
        self._used: BoundedDict[str, Usage] = BoundedDict(MOST_CITING)

    def begin(self, session_id: str) -> Message:
        """Set the id of the session; return the event about its beginning."""
        self.session_id = session_id
        return self.created()

    def created(self) -> Message:
        """Return the event about the beginning of the session, with its present settings."""
        return event("session.created", session=self.shown_session())

    def update(self, settings: Settings) -> Message:
        """Set new settings; return the event about them."""
        if settings.input_format != self.settings.input_format and not self.has_tracks:
            # The held audio is in the former format.
            self.held.clear()
        self.settings = settings
        return event("session.updated", session=self.shown_session())

    def permit(self, *, instructions: bool, voices: VoiceNames = NO_VOICES) -> None:
        """Set whether the client's instructions are followed, and its voices (``ClientProtocol.permit``)."""
        self.takes_instructions, self.voices = instructions, voices

    def note_audio(self) -> None:
        """Record that the client has received audio of the bot."""
        self.has_spoken = True

    def noted(self) -> list[str]:
        """Return the client's notes, in addition to its instructions."""
        return [note.words for note in self.notes]

    # The caller.

    @property
    def input_format(self) -> Format:
        """Format of the caller's audio: that of the events, or that in which a track is read."""
        return self._track_format or self.settings.input_format

    def hear_track(self, pcm: bytes, rate_hz: int) -> bool:
        """Count audio of the caller's track; return whether the server is to look for turns in it.

        Without turn detection it waits for its commit. A track has no end, so the oldest of it goes.
        """
        format_ = self._track_format = Format(Codec.PCM16, rate_hz)
        self.hear(pcm)
        if self.settings.detection is not None:
            self.held.clear()
            return True
        self.held += pcm
        most_bytes = MOST_HELD_MS * format_.rate_hz // 1000 * SAMPLE_BYTES[format_.codec]
        del self.held[: max(0, len(self.held) - most_bytes)]
        return False

    def long_ms(self, data: bytes | bytearray) -> float:
        """Return the duration of audio in the input format, in milliseconds."""
        format_ = self.input_format
        return len(data) * 1000 / (SAMPLE_BYTES[format_.codec] * format_.rate_hz)

    def hear(self, data: bytes) -> None:
        """Count received audio."""
        self.heard_ms += self.long_ms(data)

    def _heard_at(self, voice_ms: int | None) -> int:
        """Return a position in the received audio; None: the present end."""
        return int(self.heard_ms) if voice_ms is None else min(voice_ms, int(self.heard_ms))

    def speaks_from(self, voice_ms: int | None) -> None:
        """Record the start of the caller's turn.

        It lies between the end of the last turn and the end of the received audio.
        """
        self.began_ms = max(self.ended_ms, self._heard_at(voice_ms))

    def spoke_until(self, voice_ms: int | None) -> None:
        """Record the end of the caller's turn."""
        self.ended_ms = max(self.began_ms, self._heard_at(voice_ms))

    def spoke(self, data: bytes) -> None:
        """Record a whole turn of the caller, which will be answered where turns are."""
        self.ended_ms = int(self.heard_ms)
        self.began_ms = max(0, self.ended_ms - int(self.long_ms(data)))
        if self.settings.answers_turns:
            self.owed = Owed.COMMIT

    def begin_turn(self, item: Item | None = None) -> Item:
        """Begin a turn of the caller; return its item, which is the given one or a new one."""
        self.caller_words = []
        content = [{"type": "input_audio", "transcript": None}]
        self.caller = item or self.items.new(
            {"type": "message", "role": "user", "status": "in_progress", "content": content}
        )
        return self.caller

    def end_turn(self) -> tuple[Item, str] | None:
        """End the caller's turn; return its item and transcript, or None where none was begun."""
        item, self.caller = self.caller, None
        if item is None:
            return None
        transcript = " ".join(self.caller_words)
        item.body["content"][-1]["transcript"] = transcript
        return item, transcript

    def committed(self, item: Item) -> list[Message]:
        """Add the caller's item to the conversation; return the events about it."""
        previous = self.items.last
        item.body["status"] = "completed"
        return [
            event("input_audio_buffer.committed", previous_item_id=previous, item_id=item.item_id),
            self.items.add(item),
            done(item),
        ]

    # Answers that are owed.

    def ask(self, request: ResponseRequest) -> None:
        """Record that the client has requested an answer to everything that it typed."""
        self.typed.clear()
        self.owed, self._request = Owed.ASKED, request

    @property
    def can_claim(self) -> bool:
        """True while an answer comes on its own that the client has not requested."""
        if self.owed not in (Owed.NONE, Owed.ASKED):
            return True
        return self.response is not None and self.response.is_claimable

    def claim(self, request: ResponseRequest) -> bool:
        """Assign an answer that comes on its own to the client's request; return whether there is one."""
        if self.owed not in (Owed.NONE, Owed.ASKED):
            self.owed, self._request = Owed.ASKED, request
        elif self.response is not None and self.response.is_claimable:
            self.response.is_claimable = False
            # It has begun in its own modality.
            self.response.request = replace(request, modality=self.response.request.modality)
        else:
            return False
        return True

    def wait_for(self, response: Response) -> Message:
        """Expect a response outside of the conversation; return the event about it."""
        self.aside[response.response_id] = response
        return event("response.created", response=self.shown_response(response, "in_progress"))

    def end_call(self, call_id: str) -> None:
        """Forget a call of a tool, whose output is there."""
        self.asked.discard(call_id)
        self.interrupted.discard(call_id)

    def answer_tool(self, call_id: str) -> None:
        """Record the output of a tool, which will be answered."""
        self.end_call(call_id)
        self.answer_output()

    def answer_output(self) -> None:
        """Record that the output of a tool is there, which will be answered."""
        if self.owed is not Owed.ASKED:
            # A request that came before the output is for the answer to it too.
            self.owed = Owed.TOOL

    def answer_turn(self) -> None:
        """Record that a turn will be answered, where turns are."""
        if self.owed is Owed.NONE and self.settings.answers_turns:
            self.owed = Owed.TURN

    def owe_nothing(self, status: str, reason: str = "") -> list[Message]:
        """Expect no answer any more; return an empty one where the client waits for it.

        There is one response at a time: the empty one follows the active one (``ended_requests``).
        """
        if status == "cancelled":
            self.mcp.interrupt()
            self.interrupted = set(self.asked)
        owed, self.owed = self.owed, Owed.NONE
        request, self._request = self._request, None
        if owed is not Owed.ASKED or request is None:
            return []
        ended = self._empty_response(request, status, reason)
        if self.response is None:
            return ended
        self._ended += ended
        return []

    def ended_requests(self) -> list[Message]:
        """Return the empty responses that had to wait for the end of the active one."""
        ended, self._ended = self._ended, []
        return ended

    def open_response(self) -> Response:
        """Begin the answer that was owed, or unprompted speech of the bot."""
        request, self._request = self._request, None
        self.response = Response(
            request or ResponseRequest(modality=self.settings.modality),
            is_claimable=self.owed in (Owed.COMMIT, Owed.TOOL),
        )
        self.owed = Owed.NONE
        return self.response

    def open_filler(self) -> Response:
        """Begin a response with words that cover the wait: the answer that is owed follows it."""
        self.response = Response(ResponseRequest(modality=self.settings.modality), is_filler=True)
        return self.response

    def close_response(self) -> Response | None:
        """End the active response and return it."""
        response, self.response = self.response, None
        if response is not None and response.speech is not None:
            response.use(self._used.get(response.speech.reply_id))
        return response

    def use(self, reply_id: str, usage: Usage) -> None:
        """Note the tokens of the model for a reply."""
        self._used[reply_id] = usage

    def cite(self, reply_id: str, passages: tuple[CitedPassage, ...]) -> None:
        """Note the passages that a reply rests on."""
        self._cited[reply_id] = passages

    # Objects as the client receives them.

    def shown_session(self) -> Message:
        """Return the effective settings of the session."""
        settings = self.settings
        heard = {
            "format": shown_format(settings.input_format),
            "transcription": settings.transcription,
            "noise_reduction": None,
            "turn_detection": None if settings.detection is None else dict(settings.detection),
        }
        if settings.kind == TRANSCRIPTION:
            heard["turn_detection"] = settings.detection and {"type": settings.detection["type"]}
            return {
                "type": TRANSCRIPTION,
                "object": "realtime.transcription_session",
                "id": self.session_id,
                "audio": {"input": heard},
            }
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": self.session_id,
            "model": self.model,
            "output_modalities": [settings.modality],
            "instructions": settings.instructions if self.takes_instructions else "",
            "tools": list(settings.tools),
            "tool_choice": shown_choice(settings),
            "max_output_tokens": "inf",
            "audio": {
                "input": heard,
                "output": {
                    "format": shown_format(settings.output_format),
                    "voice": shown_voice(settings),
                    "speed": 1.0,
                },
            },
        }

    def shown_response(self, response: Response, status: str, details: Message | None = None) -> Message:
        """Return a response as its first and its last event hold it."""
        settings, request = self.settings, response.request
        return {
            "object": "realtime.response",
            "id": response.response_id,
            "conversation_id": None if request.is_out_of_band else self.conversation_id,
            "status": status,
            "status_details": details,
            "output": [dict(item.body) for item in response.items] if status != "in_progress" else [],
            "output_modalities": [request.modality],
            "audio": {
                "output": {"format": shown_format(settings.output_format), "voice": shown_voice(settings)},
            },
            "max_output_tokens": request.most_tokens if request.is_out_of_band else "inf",
            "metadata": self._metadata_of(response, is_over=status != "in_progress"),
            "usage": shown_usage(response.usage),
        }

    def _metadata_of(self, response: Response, *, is_over: bool) -> Message | None:
        """Return the client's metadata of a response, and at its end the passages that it rests on."""
        metadata = dict(response.request.metadata)
        if is_over and response.speech is not None:
            passages = self._cited.get(response.speech.reply_id, ())
            room = MOST_METADATA - len(metadata)
            named = (f"{passage.label} ({passage.number})" for passage in passages[:room])
            for place, name in enumerate(named, start=1):
                metadata.setdefault(f"passage_{place}", name[:METADATA_CHARS])
        return metadata or None

    def _empty_response(self, request: ResponseRequest, status: str, reason: str) -> list[Message]:
        """Return the events of a response without output, for a client that waits for one."""
        response = Response(request)
        details = status_details(status, reason) if reason else None
        return [
            event("response.created", response=self.shown_response(response, "in_progress")),
            event("response.done", response=self.shown_response(response, status, details)),
        ]
