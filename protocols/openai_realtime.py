"""OpenAI's realtime protocol (GA event names): a voice conversation by events over one WebSocket.

What is kept of it: the session and its updates; audio in, with the server's turn detection or with commits of
the client's; typed and recorded messages; responses with their items, parts and deltas in the order that
clients rely on; cancelling; truncating at the heard millisecond; tools that the client runs; audio as PCM of
24 kHz or G.711. What is refused is refused by name. A caller who begins to speak has cut the bot off by the
time ``speech_started`` is sent, as with ``interrupt_response``.

One response at a time. An item's audio is a reply of the call; ``HeardUntil`` names it by that.

Source: the API reference and the events of the official client (openai-python, ``types/realtime``).
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from protocols.surface import (
    SAMPLE_BYTES,
    Action,
    Began,
    Begin,
    CallerStarted,
    CallerStopped,
    ClientTool,
    Codec,
    EndTurn,
    Format,
    Greet,
    Happening,
    HeardUntil,
    Hush,
    InQueue,
    Message,
    Over,
    Refusal,
    ReplyAudio,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
    Said,
    Send,
    Speech,
    ToolAnswer,
    ToolAsked,
    Trimmed,
    Typed,
    Wish,
    Words,
    parsed,
    samples_of,
    text_of,
    written,
)

PCM = Format(Codec.PCM16, 24_000)
FORMATS = {"audio/pcm": PCM, "audio/pcmu": Format(Codec.PCMU, 8_000), "audio/pcma": Format(Codec.PCMA, 8_000)}
# Of one event, and of what waits for its commit.
MOST_AUDIO_BYTES, MOST_HELD_MS = 1_500_000, 120_000
MOST_CHARS, MOST_TOOLS, MOST_ITEMS = 32_768, 64, 512
# A commit of less is refused, as by OpenAI.
LEAST_COMMIT_MS = 100
VOICE = "parley"


@dataclass(slots=True)
class _Item:
    """Something in the conversation.

    Attributes:
        body: as the client is told of it.
        reply_id: of what the bot says.
        audio_ms: of that, sent so far.
    """

    body: Message
    reply_id: str = ""
    audio_ms: float = 0.0


@dataclass(slots=True)
class _Response:
    """What the bot is saying.

    Attributes:
        text: of it, as it was said so far.
    """

    response_id: str
    item: _Item
    text: str = ""
    is_cancelled: bool = False


class OpenAIRealtime:
    """See ``Dialect``.

    Args:
        model: that the client asked for.
    """

    name = "openai"
    wants_units = False
    greets = False
    prompts = False

    def __init__(self, model: str) -> None:
        self.input_format = self.output_format = PCM
        self._model = model
        self._session_id = _new("sess")
        self._conversation_id = _new("conv")
        self._instructions = ""
        self._tools: list[Message] = []
        self._modality = "audio"
        # None: the client says where a turn ends.
        self._detection: Message | None = _detection({})
        self._transcription: Message | None = None
        self._items: OrderedDict[str, _Item] = OrderedDict()
        self._last_item: str | None = None
        self._response: _Response | None = None
        self._user: _Item | None = None
        self._user_words: list[str] = []
        # Audio that waits for its commit, and what came in all.
        self._held = bytearray()
        self._heard_ms = 0.0
        # Typed messages that wait for a response, and tools whose answer is awaited.
        self._typed: list[str] = []
        self._asked: set[str] = set()
        self._notes: list[str] = []
        self._has_begun = self._cancels = False
        self._event_id: str | None = None

    # What the client says.

    def read(self, text: str, at_ms: int) -> Sequence[Action]:
        """See ``Dialect``."""
        self._event_id = None
        event = parsed(text)
        given = event.get("event_id")
        self._event_id = given if isinstance(given, str) else None
        handler = _HANDLERS.get(event["type"])
        if handler is None:
            raise Refusal(
                f"there is no client event {event['type'][:64]!r}", code="unknown_event", param="type"
            )
        actions = handler(self, event)
        if self._has_begun or event["type"] == "session.update":
            return actions
        self._has_begun = True
        return [Begin(), *actions]

    def refused(self, refusal: Refusal) -> Sequence[Message]:
        """See ``Dialect``."""
        return [self._error(str(refusal), refusal.code, refusal.param)]

    def _error(self, message: str, code: str, param: str | None = None, kind: str = "") -> Message:
        error = {
            "type": kind or "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": self._event_id,
        }
        return _event("error", error=error)

    def _update(self, event: Message) -> list[Action]:
        session = _mapping(event, "session")
        if session.get("type", "realtime") != "realtime":
            raise Refusal("session.type: only realtime is served", code="invalid_value", param="session.type")
        modality = _modality(session, self._modality)
        audio = _mapping(session, "audio", optional=True)
        heard, said = (_mapping(audio, side, optional=True) for side in ("input", "output"))
        formats = [
            _format(side.get("format"), old, param=f"session.audio.{name}.format")
            for side, old, name in (
                (heard, self.input_format, "input"),
                (said, self.output_format, "output"),
            )
        ]
        detection, tools = self._detection, self._tools
        if "turn_detection" in heard:
            given = heard["turn_detection"]
            detection = None if given is None else _detection(_mapping(heard, "turn_detection"))
        wished: tuple[ClientTool, ...] | None = None
        if session.get("tools") is not None:
            tools, wished = _tools(session["tools"])
        instructions: str | None = None
        if session.get("instructions") is not None:
            instructions = text_of(session, "instructions", most_chars=MOST_CHARS)
        # Nothing is changed before all of it is known to be right.
        self._modality, self._detection, self._tools = modality, detection, tools
        self.input_format, self.output_format = formats
        if "transcription" in heard:
            self._transcription = heard["transcription"]
        if instructions is not None:
            self._instructions = instructions
        return [
            Wish(instructions=self._told() if instructions is not None else None, tools=wished),
            Send(_event("session.updated", session=self._session())),
        ]

    def _told(self) -> str:
        return "\n\n".join(part for part in (self._instructions, *self._notes) if part)

    def _append(self, event: Message) -> list[Action]:
        codec = self.input_format.codec
        data = samples_of(event.get("audio"), codec, param="audio", most_bytes=MOST_AUDIO_BYTES)
        if self._detection is not None:
            self._heard_ms += self._ms(data)
            return [Speech(data)]
        if self._ms(self._held) + self._ms(data) > MOST_HELD_MS:
            raise Refusal(
                f"the input audio buffer holds {MOST_HELD_MS // 1000} s, commit or clear it",
                code="input_audio_buffer_full",
                param="audio",
            )
        self._held += data
        self._heard_ms += self._ms(data)
        return []

    def _ms(self, data: bytes | bytearray) -> float:
        return len(data) * 1000 / (SAMPLE_BYTES[self.input_format.codec] * self.input_format.rate_hz)

    def _commit(self, event: Message) -> list[Action]:
        if self._detection is not None:
            if self._user is None:
                raise Refusal("nothing was said", code="input_audio_buffer_commit_empty")
            return [EndTurn()]
        if self._ms(self._held) < LEAST_COMMIT_MS:
            raise Refusal(
                f"the buffer has {self._ms(self._held):.0f} ms of audio, a commit needs {LEAST_COMMIT_MS}",
                code="input_audio_buffer_commit_empty",
            )
        data, self._held = bytes(self._held), bytearray()
        self._user = self._user_item()
        return [*(Send(message) for message in self._committed(self._user)), Speech(data), EndTurn()]

    def _clear(self, event: Message) -> list[Action]:
        self._held.clear()
        return [Send(_event("input_audio_buffer.cleared"))]

    def _create_item(self, event: Message) -> list[Action]:
        given = _mapping(event, "item")
        kind = given.get("type")
        if kind == "function_call_output":
            return self._tool_answered(given)
        if kind != "message":
            raise Refusal(f"item.type: {kind!r} is not taken", code="invalid_value", param="item.type")
        role, content = given.get("role"), given.get("content")
        if role not in ("user", "system", "assistant") or not isinstance(content, list):
            raise Refusal("item: a message has a role and content", code="invalid_value", param="item.role")
        texts, audio, shown = [], b"", []
        for part in content:
            if not isinstance(part, dict):
                raise Refusal("item.content: not a part", code="invalid_value", param="item.content")
            if part.get("type") in ("input_text", "output_text", "text"):
                texts.append(text_of(part, "text", most_chars=MOST_CHARS))
            elif part.get("type") == "input_audio" and role == "user":
                audio += samples_of(
                    part.get("audio"), self.input_format.codec, param="audio", most_bytes=MOST_AUDIO_BYTES
                )
            else:
                raise Refusal(
                    f"item.content.type: {part.get('type')!r} is not taken here",
                    code="invalid_value",
                    param="item.content",
                )
            shown.append({name: value for name, value in part.items() if name != "audio"})
        item = self._add(
            {"type": "message", "role": role, "status": "completed", "content": shown},
            item_id=given.get("id"),
        )
        words = "\n".join(texts).strip()
        done = [Send(message) for message in self._added(item)]
        if audio:
            return [*done, Speech(audio), EndTurn()]
        if not words:
            return [*done]
        if role == "user":
            self._typed.append(words)
        elif role == "assistant":
            return [*done, Said(words)]
        else:
            self._notes.append(words)
            return [*done, Wish(instructions=self._told())]
        return [*done]

    def _tool_answered(self, given: Message) -> list[Action]:
        call_id = text_of(given, "call_id", most_chars=256)
        if call_id not in self._asked:
            raise Refusal(
                f"no call {call_id!r} waits for its output", code="invalid_value", param="item.call_id"
            )
        output = text_of(given, "output", most_chars=MOST_CHARS * 8)
        self._asked.discard(call_id)
        body = {"type": "function_call_output", "call_id": call_id, "output": output, "status": "completed"}
        item = self._add(body, item_id=given.get("id"))
        return [*(Send(message) for message in self._added(item)), ToolAnswer(call_id, output)]

    def _truncate(self, event: Message) -> list[Action]:
        item_id = text_of(event, "item_id", most_chars=256)
        item = self._items.get(item_id)
        if item is None or not item.reply_id:
            raise Refusal(f"there is no audio of an item {item_id!r}", code="item_not_found", param="item_id")
        audio_ms = event.get("audio_end_ms")
        if not isinstance(audio_ms, int) or isinstance(audio_ms, bool) or audio_ms < 0:
            raise Refusal(
                "audio_end_ms: expected whole milliseconds", code="invalid_value", param="audio_end_ms"
            )
        if audio_ms > item.audio_ms + 1:
            raise Refusal(
                f"audio_end_ms: the item has {item.audio_ms:.0f} ms of audio",
                code="invalid_value",
                param="audio_end_ms",
            )
        return [HeardUntil(item.reply_id, audio_ms)]

    def _retrieve(self, event: Message) -> list[Action]:
        item_id = text_of(event, "item_id", most_chars=256)
        item = self._items.get(item_id)
        if item is None:
            raise Refusal(f"there is no item {item_id!r}", code="item_not_found", param="item_id")
        return [Send(_event("conversation.item.retrieved", item=item.body))]

    def _delete(self, event: Message) -> list[Action]:
        raise Refusal(
            "what was said stays in the session; an item cannot be deleted",
            code="not_supported",
            param="type",
        )

    def _respond(self, event: Message) -> list[Action]:
        if self._typed:
            typed, self._typed = self._typed, []
            return [Typed("\n".join(typed))]
        if self._response is not None or self._last_item is not None:
            # The turn is answered by itself, and so is a tool's output.
            return []
        return [Greet()]

    def _cancel(self, event: Message) -> list[Action]:
        response = self._response
        wanted = event.get("response_id")
        if response is None or wanted not in (None, response.response_id):
            raise Refusal("no such response is on", code="response_cancel_not_active", param="response_id")
        self._cancels = True
        return [Hush()]

    def _hush(self, event: Message) -> list[Action]:
        self._cancels = self._response is not None
        return [Hush()] if self._cancels else []

    # What the client is told.

    def tell(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """See ``Dialect``."""
        match happening:
            case Began(session_id):
                self._session_id = session_id
                return [_event("session.created", session=self._session())]
            case InQueue():
                # Not of OpenAI's; its clients pass over types that they do not know.
                return []
            case CallerStarted():
                return self._caller_started()
            case CallerStopped():
                return self._caller_stopped()
            case Words(text, is_final):
                return self._words(text) if is_final else []
            case ReplyBegan(reply_id):
                return self._begin(reply_id)
            case ReplyAudio(data, duration_ms):
                return self._audio(data, duration_ms)
            case ReplyWords(text):
                return self._said(text)
            case ReplyOver(_, was_cut):
                return self._end(was_cut=was_cut)
            case ToolAsked(call_id, name, arguments):
                return self._asks(call_id, name, arguments)
            case Trimmed(reply_id, audio_ms):
                return self._trimmed(reply_id, audio_ms)
            case Over(reason, message) if reason != "stopped":
                return [
                    self._error(message or f"the conversation is over: {reason}", reason, kind="server_error")
                ]
            case _:
                return []

    def goodbye(self, reason: str) -> tuple[int, str]:
        """See ``Dialect``."""
        return (1011, reason) if reason == "error" else (1000, reason)

    def _session(self) -> Message:
        return {
            "type": "realtime",
            "object": "realtime.session",
            "id": self._session_id,
            "model": self._model,
            "output_modalities": [self._modality],
            "instructions": self._instructions,
            "tools": self._tools,
            "tool_choice": "auto",
            "max_output_tokens": "inf",
            "audio": {
                "input": {
                    "format": _shown(self.input_format),
                    "transcription": self._transcription,
                    "noise_reduction": None,
                    "turn_detection": self._detection,
                },
                "output": {"format": _shown(self.output_format), "voice": VOICE, "speed": 1.0},
            },
        }

    def _caller_started(self) -> list[Message]:
        if self._detection is None or self._user is not None:
            return []
        self._user = self._user_item()
        body = self._user.body
        return [
            _event(
                "input_audio_buffer.speech_started", audio_start_ms=int(self._heard_ms), item_id=body["id"]
            )
        ]

    def _user_item(self) -> _Item:
        self._user_words = []
        return self._new_item(
            {
                "type": "message",
                "role": "user",
                "status": "in_progress",
                "content": [{"type": "input_audio", "transcript": None}],
            }
        )

    def _committed(self, item: _Item) -> list[Message]:
        previous = self._last_item
        item.body["status"] = "completed"
        self._keep(item)
        return [
            _event("input_audio_buffer.committed", previous_item_id=previous, item_id=item.body["id"]),
            _event("conversation.item.added", previous_item_id=previous, item=dict(item.body)),
            _event("conversation.item.done", previous_item_id=previous, item=dict(item.body)),
        ]

    def _caller_stopped(self) -> list[Message]:
        item, self._user = self._user, None
        if item is None:
            return []
        messages: list[Message] = []
        if self._detection is not None:
            messages.append(
                _event(
                    "input_audio_buffer.speech_stopped",
                    audio_end_ms=int(self._heard_ms),
                    item_id=item.body["id"],
                )
            )
            messages += self._committed(item)
        transcript = " ".join(self._user_words)
        item.body["content"][0]["transcript"] = transcript
        messages.append(
            _event(
                "conversation.item.input_audio_transcription.completed",
                item_id=item.body["id"],
                content_index=0,
                transcript=transcript,
                usage={"type": "duration", "seconds": 0},
            )
        )
        return messages

    def _words(self, text: str) -> list[Message]:
        if self._user is None:
            return []
        joiner = " " if self._user_words else ""
        self._user_words.append(text)
        return [
            _event(
                "conversation.item.input_audio_transcription.delta",
                item_id=self._user.body["id"],
                content_index=0,
                delta=joiner + text,
            )
        ]

    def _begin(self, reply_id: str) -> list[Message]:
        messages = self._end(was_cut=False) if self._response is not None else []
        item = self._new_item(
            {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
        )
        item.reply_id = reply_id
        response = self._response = _Response(_new("resp"), item)
        self._cancels = False
        previous = self._last_item
        self._keep(item)
        messages += [
            _event("response.created", response=self._shown_response("in_progress")),
            self._of_item("response.output_item.added", item=dict(item.body)),
            _event("conversation.item.added", previous_item_id=previous, item=dict(item.body)),
            self._of_part("response.content_part.added", part=self._part("")),
        ]
        assert response.item is item
        return messages

    def _audio(self, data: bytes, duration_ms: float) -> list[Message]:
        response = self._response
        if response is None or self._modality != "audio":
            return []
        response.item.audio_ms += duration_ms
        return [self._of_part("response.output_audio.delta", delta=written(data))]

    def _said(self, text: str) -> list[Message]:
        response = self._response
        if response is None:
            return []
        delta = f" {text}" if response.text else text
        response.text += delta
        return [self._of_part(f"{self._text_events()}.delta", delta=delta)]

    def _text_events(self) -> str:
        return "response.output_audio_transcript" if self._modality == "audio" else "response.output_text"

    def _end(self, *, was_cut: bool) -> list[Message]:
        response = self._response
        if response is None:
            return []
        item = response.item
        item.body["status"] = "incomplete" if was_cut else "completed"
        item.body["content"] = [self._part(response.text)]
        messages = []
        if self._modality == "audio":
            messages.append(self._of_part("response.output_audio.done"))
            messages.append(self._of_part(f"{self._text_events()}.done", transcript=response.text))
        else:
            messages.append(self._of_part(f"{self._text_events()}.done", text=response.text))
        status, details = "completed", None
        if was_cut:
            reason = "client_cancelled" if self._cancels else "turn_detected"
            status, details = "cancelled", {"type": "cancelled", "reason": reason}
        messages += [
            self._of_part("response.content_part.done", part=self._part(response.text)),
            self._of_item("response.output_item.done", item=dict(item.body)),
            _event("conversation.item.done", previous_item_id=None, item=dict(item.body)),
            _event("response.done", response=self._shown_response(status, details, [dict(item.body)])),
        ]
        self._response, self._cancels = None, False
        return messages

    def _asks(self, call_id: str, name: str, arguments: str) -> list[Message]:
        messages = self._end(was_cut=False)
        self._asked.add(call_id)
        body = {
            "type": "function_call",
            "status": "in_progress",
            "name": name,
            "call_id": call_id,
            "arguments": "",
        }
        item = self._new_item(body)
        response = self._response = _Response(_new("resp"), item)
        previous = self._last_item
        self._keep(item)
        created = _event("response.created", response=self._shown_response("in_progress"))
        added = self._of_item("response.output_item.added", item=dict(item.body))
        in_conversation = _event("conversation.item.added", previous_item_id=previous, item=dict(item.body))
        of_call = {"item_id": item.body["id"], "output_index": 0, "call_id": call_id}
        of_call["response_id"] = response.response_id
        item.body |= {"arguments": arguments, "status": "completed"}
        messages += [
            created,
            added,
            in_conversation,
            _event("response.function_call_arguments.delta", delta=arguments, **of_call),
            _event("response.function_call_arguments.done", arguments=arguments, name=name, **of_call),
            self._of_item("response.output_item.done", item=dict(item.body)),
            _event("conversation.item.done", previous_item_id=previous, item=dict(item.body)),
            _event("response.done", response=self._shown_response("completed", None, [dict(item.body)])),
        ]
        self._response = None
        return messages

    def _trimmed(self, reply_id: str, audio_ms: int) -> list[Message]:
        for item_id, item in self._items.items():
            if item.reply_id == reply_id:
                return [
                    _event(
                        "conversation.item.truncated", item_id=item_id, content_index=0, audio_end_ms=audio_ms
                    )
                ]
        return []

    def _part(self, text: str) -> Message:
        if self._modality == "audio":
            return {"type": "output_audio", "transcript": text}
        return {"type": "output_text", "text": text}

    def _of_item(self, type_: str, **fields: Any) -> Message:
        response = self._response
        assert response is not None
        return _event(type_, response_id=response.response_id, output_index=0, **fields)

    def _of_part(self, type_: str, **fields: Any) -> Message:
        response = self._response
        assert response is not None
        item_id = response.item.body["id"]
        return _event(
            type_,
            response_id=response.response_id,
            item_id=item_id,
            output_index=0,
            content_index=0,
            **fields,
        )

    def _shown_response(
        self, status: str, details: Message | None = None, output: Sequence[Message] = ()
    ) -> Message:
        response = self._response
        assert response is not None
        return {
            "object": "realtime.response",
            "id": response.response_id,
            "conversation_id": self._conversation_id,
            "status": status,
            "status_details": details,
            "output": list(output),
            "output_modalities": [self._modality],
            "audio": {"output": {"format": _shown(self.output_format), "voice": VOICE}},
            "max_output_tokens": "inf",
            "metadata": None,
            "usage": None,
        }

    # Items.

    def _new_item(self, body: Message, *, item_id: object = None) -> _Item:
        chosen = item_id if isinstance(item_id, str) and 0 < len(item_id) <= 64 else _new("item")
        if chosen in self._items:
            raise Refusal(f"there is an item {chosen!r} already", code="invalid_value", param="item.id")
        return _Item({"id": chosen, "object": "realtime.item", **body})

    def _keep(self, item: _Item) -> None:
        self._items[item.body["id"]] = item
        self._last_item = item.body["id"]
        while len(self._items) > MOST_ITEMS:
            self._items.popitem(last=False)

    def _add(self, body: Message, *, item_id: object) -> _Item:
        return self._new_item(body, item_id=item_id)

    def _added(self, item: _Item) -> list[Message]:
        previous = self._last_item
        self._keep(item)
        return [
            _event("conversation.item.added", previous_item_id=previous, item=dict(item.body)),
            _event("conversation.item.done", previous_item_id=previous, item=dict(item.body)),
        ]


_HANDLERS = {
    "session.update": OpenAIRealtime._update,
    "input_audio_buffer.append": OpenAIRealtime._append,
    "input_audio_buffer.commit": OpenAIRealtime._commit,
    "input_audio_buffer.clear": OpenAIRealtime._clear,
    "conversation.item.create": OpenAIRealtime._create_item,
    "conversation.item.truncate": OpenAIRealtime._truncate,
    "conversation.item.retrieve": OpenAIRealtime._retrieve,
    "conversation.item.delete": OpenAIRealtime._delete,
    "response.create": OpenAIRealtime._respond,
    "response.cancel": OpenAIRealtime._cancel,
    "output_audio_buffer.clear": OpenAIRealtime._hush,
}


def _new(kind: str) -> str:
    return f"{kind}_{secrets.token_hex(12)}"


def _event(type_: str, **fields: Any) -> Message:
    return {"type": type_, "event_id": _new("event"), **fields}


def _mapping(event: Mapping[str, Any], name: str, *, optional: bool = False) -> Message:
    value = event.get(name)
    if value is None and optional:
        return {}
    if value is None:
        raise Refusal(f"{name}: is missing", code="missing_field", param=name)
    if not isinstance(value, dict):
        raise Refusal(f"{name}: expected an object", code="invalid_value", param=name)
    return value


def _modality(session: Message, old: str) -> str:
    given = session.get("output_modalities")
    if given is None:
        return old
    if given not in (["audio"], ["text"]):
        raise Refusal(
            'session.output_modalities: ["audio"] or ["text"]',
            code="invalid_value",
            param="session.output_modalities",
        )
    return str(given[0])


def _format(given: object, old: Format, *, param: str) -> Format:
    if given is None:
        return old
    kind = given.get("type") if isinstance(given, dict) else given
    found = FORMATS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise Refusal(f"{param}: one of {', '.join(FORMATS)}", code="invalid_value", param=param)
    rate_hz = given.get("rate") if isinstance(given, dict) else None
    if rate_hz not in (None, found.rate_hz):
        raise Refusal(
            f"{param}.rate: {kind} has {found.rate_hz}", code="invalid_value", param=f"{param}.rate"
        )
    return found


def _shown(format_: Format) -> Message:
    kind = next(name for name, each in FORMATS.items() if each == format_)
    return {"type": kind, "rate": format_.rate_hz} if format_ == PCM else {"type": kind}


def _detection(given: Message) -> Message:
    kind = given.get("type") or "server_vad"
    if kind not in ("server_vad", "semantic_vad"):
        param = "session.audio.input.turn_detection.type"
        raise Refusal(f"{param}: server_vad, semantic_vad or null", code="invalid_value", param=param)
    for name in ("create_response", "interrupt_response"):
        if given.get(name) is False:
            param = f"session.audio.input.turn_detection.{name}"
            raise Refusal(
                f"{param}: cannot be false; with turn_detection null the client says where a turn ends",
                code="not_supported",
                param=param,
            )
    # What decides is the deployment's policy; its thresholds are not the client's to set.
    return {"type": kind, "create_response": True, "interrupt_response": True}


def _tools(given: object) -> tuple[list[Message], tuple[ClientTool, ...]]:
    if not isinstance(given, list) or len(given) > MOST_TOOLS:
        raise Refusal(
            f"session.tools: expected up to {MOST_TOOLS} tools", code="invalid_value", param="session.tools"
        )
    tools = []
    for index, each in enumerate(given):
        param = f"session.tools[{index}]"
        if not isinstance(each, dict) or each.get("type") != "function":
            raise Refusal(f"{param}: only functions are taken", code="invalid_value", param=param)
        schema = each.get("parameters") or {"type": "object", "properties": {}}
        if not isinstance(schema, dict):
            raise Refusal(f"{param}.parameters: expected an object", code="invalid_value", param=param)
        name = text_of(each, "name", most_chars=64)
        tools.append(ClientTool(name, str(each.get("description") or name)[:2_000], schema))
    if len({tool.name for tool in tools}) < len(tools):
        raise Refusal("session.tools: two of one name", code="invalid_value", param="session.tools")
    return list(given), tuple(tools)
