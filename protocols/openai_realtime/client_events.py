"""Convert events of a client of OpenAI's realtime protocol to actions.

Each event has a handler, and all handlers are generators. A handler first yields the actions that may be
refused, and changes the state after them.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from parley.protocols.client_mcp import McpApproval
from parley.protocols.client_protocol import (
    Action,
    Begin,
    CancelResponse,
    CreateResponse,
    EarlierReply,
    EndTurn,
    Message,
    OutOfBandRequest,
    Pictures,
    PlaybackTruncated,
    ProtocolError,
    Send,
    SessionUpdate,
    Speech,
    ToolAnswer,
    ToolsAnswered,
    Typed,
    parsed,
    samples_of,
    text_of,
)
from parley.protocols.openai_realtime.shapes import (
    MOST_CHARS,
    MOST_GIVEN_CHARS,
    MOST_PARTS,
    TRANSCRIPTION,
    Faults,
    ResponseRequest,
    event,
    mapping,
    picture_of,
    response_request,
    updated,
)
from parley.protocols.openai_realtime.state import (
    MOST_ASIDE,
    MOST_HELD_MS,
    Item,
    Owed,
    RealtimeState,
    Response,
    done,
    truncated,
)

# Bound of one event.
MOST_AUDIO_BYTES = 1_500_000
# A shorter commit is refused, as by OpenAI.
LEAST_COMMIT_MS = 100
# Tolerance for the client's rounding: it counts played samples at its own rate.
ROUNDING_MS = 20
MOST_WAITING = 64
# Of the reason of a client's decision, which the model reads.
MOST_REASON_CHARS = 300
# Pictures of an item: the next turn takes no more.
MOST_PICTURES = 4
_TEXTS = ("input_text", "output_text", "text")
# Events that no transcription session has.
_OF_ANSWERS = frozenset({"conversation.item.create", "response.create"})


class Reader:
    """Reader of one conversation.

    Attributes:
        event_id: id of the client's event that is being read, for error events about it.
    """

    def __init__(self, state: RealtimeState, faults: Faults) -> None:
        self._state = state
        self._faults = faults
        self._has_begun = False
        # As a call assumes it until an update says otherwise.
        self._answers_turns = True
        self.event_id: str | None = None

    def read(self, text: str) -> Iterator[Action]:
        """Yield the actions of one event.

        Raises:
            ProtocolError: the event is not accepted.
        """
        self.event_id = None
        given = parsed(text)
        event_id = given.get("event_id")
        self.event_id = event_id if isinstance(event_id, str) else None
        handler = HANDLERS.get(given["type"])
        if handler is None:
            raise ProtocolError(
                f"there is no client event {given['type'][:64]!r}", code="unknown_event", param="type"
            )
        # An update may be followed by another one. Any other event shows that the client is ready.
        if not self._has_begun and given["type"] != "session.update":
            self._has_begun = True
            yield Begin()
        if given["type"] != "session.update":
            yield from self._answering()
        if self._state.settings.kind == TRANSCRIPTION and given["type"] in _OF_ANSWERS:
            raise ProtocolError(
                "a transcription session has the caller's words and no responses",
                code="not_supported",
                param="type",
            )
        yield from handler(self, given)
        self.event_id = None

    def _answering(self) -> Iterator[Action]:
        """Yield the update of whether turns are answered, where the call does not have it yet."""
        answers = self._state.settings.answers_turns
        if answers != self._answers_turns:
            yield SessionUpdate(answers=answers)
            self._answers_turns = answers

    def _update(self, given: Message) -> Iterator[Action]:
        state = self._state
        settings, tools = updated(state.settings, mapping(given, "session"), self._faults, state.voices)
        old = state.settings
        voice = settings.voice if settings.voice != old.voice else None
        if voice is not None and state.has_spoken:
            # Worded as by OpenAI, because clients read it.
            raise ProtocolError(
                "Cannot update a conversation's voice if assistant audio is present.",
                code="cannot_update_voice",
            )
        reference = settings.reference if settings.reference != old.reference else None
        words = settings.instructions if settings.instructions != old.instructions else None
        choice = settings.choice if settings.choice != old.choice else None
        answers = settings.answers_turns if settings.answers_turns != self._answers_turns else None
        patience = settings.patience if settings.patience != old.patience else None
        if settings.patience != old.patience and self._has_begun:
            raise ProtocolError(
                "session.audio.input.turn_detection.eagerness: it is set before the conversation begins",
                code="not_supported",
                param="session.audio.input.turn_detection.eagerness",
            )
        changed = SessionUpdate(
            instructions=words,
            tools=tools.functions,
            choice=choice,
            answers=answers,
            patience=patience,
            mcp=tools.mcp,
            voice=voice,
            reference_voice=reference,
        )
        if changed != SessionUpdate():
            yield changed
        self._answers_turns = settings.answers_turns
        yield Send(state.update(settings))

    # Audio.

    def _audio(self, given: object) -> bytes:
        codec = self._state.input_format.codec
        return samples_of(given, codec, param="audio", most_bytes=MOST_AUDIO_BYTES)

    def _check_has_no_tracks(self, param: str) -> None:
        """Raise ProtocolError where the caller's audio comes by a track."""
        if self._state.has_tracks:
            raise ProtocolError(
                "the audio of this call is that of its track", code="not_supported", param=param
            )

    def _append(self, given: Message) -> Iterator[Action]:
        state = self._state
        self._check_has_no_tracks("type")
        data = self._audio(given.get("audio"))
        if state.settings.detection is not None:
            yield Speech(data)
        elif state.long_ms(state.held) + state.long_ms(data) > MOST_HELD_MS:
            raise ProtocolError(
                f"the input audio buffer holds {MOST_HELD_MS // 1000} s; commit or clear it",
                code="input_audio_buffer_full",
                param="audio",
            )
        else:
            state.held.extend(data)
        state.hear(data)

    def _commit(self, given: Message) -> Iterator[Action]:
        state = self._state
        if state.settings.detection is not None:
            if state.caller is None:
                raise ProtocolError("the buffer contains no speech", code="input_audio_buffer_commit_empty")
            yield EndTurn()
            return
        held_ms = state.long_ms(state.held)
        if held_ms < LEAST_COMMIT_MS:
            raise ProtocolError(
                f"the buffer has {held_ms:.0f} ms of audio; a commit needs {LEAST_COMMIT_MS}",
                code="input_audio_buffer_commit_empty",
            )
        yield from self._speaks(bytes(state.held))
        state.held.clear()
        for message in state.committed(state.begin_turn()):
            yield Send(message)

    def _speaks(self, data: bytes) -> Iterator[Action]:
        """Yield the actions for a whole turn of the caller.

        Such a turn is meant for the bot, so the bot stops speaking for it. An answer that was requested and
        has not begun does not come any more.
        """
        state = self._state
        if state.caller is not None:
            raise ProtocolError(
                "the audio committed before is still being transcribed", code="input_audio_buffer_busy"
            )
        if state.response is not None or state.owed is Owed.ASKED:
            yield CancelResponse()
        yield Speech(data, is_whole=True)
        yield EndTurn(is_quiet=state.settings.detection is None)
        for message in state.owe_nothing("cancelled", "turn_detected"):
            yield Send(message)
        state.spoke(data)

    def _clear(self, given: Message) -> Iterator[Action]:
        self._state.held.clear()
        yield Send(event("input_audio_buffer.cleared"))

    # Items.

    def _create_item(self, given: Message) -> Iterator[Action]:
        body = mapping(given, "item")
        kind = body.get("type")
        if kind == "function_call_output":
            yield from self._tool_answered(body)
        elif kind == "mcp_approval_response":
            yield from self._approved(body)
        elif kind == "message":
            yield from self._message(body)
        else:
            raise ProtocolError(
                f"item.type: {str(kind)[:64]!r} is not supported", code="invalid_value", param="item.type"
            )

    def _message(self, given: Message) -> Iterator[Action]:
        state = self._state
        role, content = given.get("role"), given.get("content")
        if role not in ("user", "system", "assistant") or not isinstance(content, list):
            raise ProtocolError(
                "item: a message has a role and content", code="invalid_value", param="item.role"
            )
        if len(content) > MOST_PARTS:
            raise ProtocolError(
                f"item.content: over {MOST_PARTS} parts", code="too_large", param="item.content"
            )
        parts = _Parts()
        for part in content:
            self._part(part, role, parts)
        if sum(map(len, parts.texts)) > MOST_GIVEN_CHARS:
            raise ProtocolError(
                f"item.content: over {MOST_GIVEN_CHARS} characters", code="too_large", param="item.content"
            )
        if len(state.typed) + len(state.notes) >= MOST_WAITING:
            raise ProtocolError(
                f"{MOST_WAITING} messages are waiting for a response", code="too_many_items", param="item"
            )
        words = "\n".join(parts.texts).strip()
        item = state.items.new(
            {"type": "message", "role": role, "status": "completed", "content": parts.shown},
            item_id=given.get("id"),
            words=words,
        )
        if parts.pictures:
            yield Pictures(tuple(parts.pictures), are_shown=True)
        if parts.audio:
            yield from self._speaks(bytes(parts.audio))
            state.begin_turn(item)
        if words and role == "assistant":
            yield EarlierReply(words)
        elif words and role == "system":
            yield SessionUpdate(notes="\n\n".join((*state.noted(), words)))
            state.notes.append(item)
        elif words:
            state.typed.append(item)
        yield Send(state.items.add(item))
        yield Send(done(item))

    def _part(self, part: object, role: str, parts: "_Parts") -> None:
        if not isinstance(part, dict):
            raise ProtocolError("item.content: expected a part", code="invalid_value", param="item.content")
        kind = part.get("type")
        if kind in _TEXTS:
            parts.texts.append(text_of(part, "text", most_chars=MOST_CHARS))
        elif kind == "input_audio" and role == "user":
            self._check_has_no_tracks("item.content")
            parts.audio += self._audio(part.get("audio"))
            if len(parts.audio) > MOST_AUDIO_BYTES:
                raise ProtocolError("item.content: too much audio", code="too_large", param="item.content")
        elif kind == "input_image" and role == "user":
            if len(parts.pictures) >= MOST_PICTURES:
                raise ProtocolError(
                    f"item.content: over {MOST_PICTURES} pictures", code="too_large", param="item.content"
                )
            parts.pictures.append(picture_of(part.get("image_url"), param="item.content.image_url"))
        else:
            raise ProtocolError(
                f"item.content.type: {str(kind)[:64]!r} is not supported here",
                code="invalid_value",
                param="item.content",
            )
        # Audio and pictures are not sent back.
        shown = {name: value for name, value in part.items() if name not in ("audio", "image_url")}
        parts.shown.append({**shown, "transcript": None} if kind == "input_audio" else shown)

    def _tool_answered(self, given: Message) -> Iterator[Action]:
        state = self._state
        call_id = text_of(given, "call_id", most_chars=256)
        if call_id not in state.asked:
            raise ProtocolError(
                f"no call {call_id[:64]!r} is waiting for its output",
                code="invalid_value",
                param="item.call_id",
            )
        output = text_of(given, "output", most_chars=MOST_CHARS * 8)
        body = {"type": "function_call_output", "call_id": call_id, "output": output, "status": "completed"}
        item = state.items.new(body, item_id=given.get("id"))
        yield ToolAnswer(call_id, output)
        if call_id in state.interrupted:
            # It waits for no request.
            yield ToolsAnswered()
            state.end_call(call_id)
        else:
            state.answer_tool(call_id)
        yield Send(state.items.add(item))
        yield Send(done(item))

    def _approved(self, given: Message) -> Iterator[Action]:
        state = self._state
        approval_id = text_of(given, "approval_request_id", most_chars=256)
        approved, reason = given.get("approve"), given.get("reason")
        if approval_id not in state.mcp.approvals:
            raise ProtocolError(
                f"no request {approval_id[:64]!r} is waiting for approval",
                code="invalid_value",
                param="item.approval_request_id",
            )
        if not isinstance(approved, bool) or not isinstance(reason, str | None):
            raise ProtocolError(
                "item: expected approve, true or false, and perhaps a reason",
                code="invalid_value",
                param="item.approve",
            )
        body = {
            "type": "mcp_approval_response",
            "approval_request_id": approval_id,
            "approve": approved,
            "reason": reason,
        }
        item = state.items.new(body, item_id=given.get("id"))
        yield McpApproval(approval_id, approved, (reason or "")[:MOST_REASON_CHARS])
        state.mcp.approvals.discard(approval_id)
        yield Send(state.items.add(item))
        yield Send(done(item))

    def _known(self, given: Message) -> Item:
        item_id = text_of(given, "item_id", most_chars=256)
        item = self._state.items.get(item_id)
        if item is None:
            # Pipecat's service waits for this code.
            raise ProtocolError(
                f"there is no item {item_id[:64]!r}", code="item_retrieve_invalid_item_id", param="item_id"
            )
        return item

    def _truncate(self, given: Message) -> Iterator[Action]:
        state = self._state
        item_id = text_of(given, "item_id", most_chars=256)
        item = state.items.get(item_id)
        if item is None or not item.reply_id:
            raise ProtocolError(
                f"there is no audio of an item {item_id[:64]!r}",
                code="item_truncate_invalid_item_id",
                param="item_id",
            )
        audio_ms = given.get("audio_end_ms")
        if not isinstance(audio_ms, int) or isinstance(audio_ms, bool) or audio_ms < 0:
            raise ProtocolError(
                "audio_end_ms: expected whole milliseconds", code="invalid_value", param="audio_end_ms"
            )
        if audio_ms > item.audio_ms + ROUNDING_MS:
            raise ProtocolError(
                f"audio_end_ms: the item has {item.audio_ms:.0f} ms of audio",
                code="invalid_value",
                param="audio_end_ms",
            )
        if state.has_tracks:
            # The server's own clock of what was played decides, and has decided.
            heard_ms = audio_ms if item.played_ms is None else min(audio_ms, item.played_ms)
            yield Send(truncated(item, heard_ms))
        else:
            yield PlaybackTruncated(item.reply_id, audio_ms)

    def _retrieve(self, given: Message) -> Iterator[Action]:
        yield Send(event("conversation.item.retrieved", item=self._known(given).shown()))

    def _delete(self, given: Message) -> Iterator[Action]:
        state, item = self._state, self._known(given)
        if item in state.notes:
            notes = [note for note in state.notes if note is not item]
            yield SessionUpdate(notes="\n\n".join(note.words for note in notes))
            state.notes.remove(item)
        elif item in state.typed:
            state.typed.remove(item)
        else:
            raise ProtocolError(
                "only items that have not been answered can be deleted",
                code="not_supported",
                param="item_id",
            )
        item_id = item.item_id
        state.items.forget(item)
        yield Send(event("conversation.item.deleted", item_id=item_id))

    # Responses.

    def _respond(self, given: Message) -> Iterator[Action]:
        state = self._state
        request = response_request(mapping(given, "response", optional=True), state.settings, self._faults)
        is_after_tools = state.owed is Owed.TOOL
        if request.is_out_of_band:
            yield from self._respond_aside(request)
        elif state.typed:
            words = "\n".join(item.words for item in state.typed)
            # A typed message ends the bot's speech, as the caller's voice does.
            if request.instructions is None and not request.has_tools:
                yield Typed(words)
            else:
                yield CreateResponse(request.instructions, words, request.tools, request.choice, request.mcp)
            # An answer that was requested and has not begun does not come any more.
            for message in state.owe_nothing("cancelled", "client_cancelled"):
                yield Send(message)
            state.ask(request)
        elif state.can_claim and (name := _own_field(request, is_after_tools=is_after_tools)):
            raise ProtocolError(
                f"{name}: an answer that comes on its own has the session's; send session.update before it",
                code="not_supported",
                param=name,
            )
        elif state.claim(request):
            if is_after_tools:
                # What they returned waits for this, so that the response has the metadata of the request.
                yield ToolsAnswered(request.tools, request.choice, request.mcp)
        elif state.response is not None and not state.response.is_cancelled:
            raise ProtocolError(
                f"Conversation already has an active response in progress: {state.response.response_id}. "
                "Wait until the response is finished before creating a new one.",
                code="conversation_already_has_active_response",
            )
        elif state.owed is Owed.ASKED:
            # It would take the metadata of this one, and the next answer none.
            raise ProtocolError(
                "Conversation already has an active response in progress, which has not begun. Wait until "
                "the response is finished, or cancel it, before creating a new one.",
                code="conversation_already_has_active_response",
            )
        else:
            yield CreateResponse(
                request.instructions, tools=request.tools, choice=request.choice, mcp=request.mcp
            )
            state.ask(request)

    def _respond_aside(self, request: ResponseRequest) -> Iterator[Action]:
        """Request an answer outside of the conversation."""
        state = self._state
        if len(state.aside) >= MOST_ASIDE:
            raise ProtocolError(
                f"{MOST_ASIDE} responses outside of the conversation are in progress: wait for one",
                code="rate_limit_exceeded",
            )
        lines = None if request.given is None else tuple(self._lines(request.given))
        response = Response(request)
        yield OutOfBandRequest(response.response_id, request.instructions, lines, request.most_tokens)
        yield Send(state.wait_for(response))

    def _lines(self, given: Iterable[Message]) -> Iterator[tuple[str, str]]:
        """Yield role and text of the items of a client's own input, which have a bounded total length."""
        chars = 0
        for each in given:
            role, texts = self._line(each)
            chars += sum(map(len, texts))
            if chars > MOST_GIVEN_CHARS:
                raise ProtocolError(
                    f"response.input: over {MOST_GIVEN_CHARS} characters",
                    code="too_large",
                    param="response.input",
                )
            yield role, "\n".join(texts)

    def _line(self, given: Message) -> tuple[str, list[str]]:
        """Return role and texts of an item of a client's own input."""
        kind, param = given.get("type", "message"), "response.input"
        if kind == "item_reference":
            item_id = text_of(given, "id", most_chars=256)
            item = self._state.items.get(item_id)
            if item is None:
                raise ProtocolError(f"there is no item {item_id[:64]!r}", code="invalid_value", param=param)
            given = item.shown()
            kind = given["type"]
        content, role = given.get("content"), given.get("role")
        if kind != "message" or role not in ("user", "system", "assistant") or not isinstance(content, list):
            raise ProtocolError(f"{param}: expected messages of text", code="not_supported", param=param)
        if len(content) > MOST_PARTS:
            raise ProtocolError(f"{param}: over {MOST_PARTS} parts in an item", code="too_large", param=param)
        texts: list[str] = []
        for part in content:
            text = part.get("text") or part.get("transcript") if isinstance(part, dict) else None
            if not isinstance(text, str) or len(text) > MOST_CHARS:
                raise ProtocolError(f"{param}: expected messages of text", code="not_supported", param=param)
            texts.append(text)
        return role, texts

    def _cancel(self, given: Message) -> Iterator[Action]:
        state = self._state
        response, wanted = state.response, given.get("response_id")
        # What tools have returned is answered on the client's request only, or after a while.
        is_owed = state.owed not in (Owed.NONE, Owed.TOOL)
        if response is None and wanted is None and is_owed:
            yield CancelResponse()
            for message in state.owe_nothing("cancelled", "client_cancelled"):
                yield Send(message)
            return
        if response is None or wanted not in (None, response.response_id):
            # LiveKit's plugin tells it from other errors by its first words.
            raise ProtocolError(
                "Cancellation failed: no active response found",
                code="response_cancel_not_active",
                param="response_id",
            )
        yield from self._interrupt(response)

    def _interrupt(self, response: Response) -> Iterator[Action]:
        """Yield the actions that end the active response, and the answer that was to follow it.

        The interruption ends the making of that answer too, such as of the one to what tools have returned: a
        later request is for a new answer. Audio that is still being transcribed is answered all the same.
        """
        state = self._state
        has_outputs = state.owed is Owed.TOOL
        yield CancelResponse()
        if has_outputs:
            # The next answer has them: they wait for no request any more.
            yield ToolsAnswered()
        response.cancel()
        if state.caller is None:
            for message in state.owe_nothing("cancelled", "client_cancelled"):
                yield Send(message)

    def _clear_output(self, given: Message) -> Iterator[Action]:
        state = self._state
        response = state.response
        # Clients send it after the request to cancel the response.
        if response is not None and not (state.has_tracks and response.is_cancelled):
            yield from self._interrupt(response)
        if not state.has_tracks:
            # The sound of a track ends with its response, which reports it.
            yield Send(event("output_audio_buffer.cleared"))


def _own_field(request: ResponseRequest, *, is_after_tools: bool) -> str:
    """Return the field of a request that an answer which comes on its own cannot follow; empty: none."""
    if request.instructions:
        return "response.instructions"
    if is_after_tools or not request.has_tools:
        return ""
    has_own = request.tools is not None or request.mcp is not None
    return "response.tools" if has_own else "response.tool_choice"


# Not bound methods in the object, which would refer to itself by them.
HANDLERS: dict[str, Callable[[Reader, Message], Iterator[Action]]] = {
    "session.update": Reader._update,
    "input_audio_buffer.append": Reader._append,
    "input_audio_buffer.commit": Reader._commit,
    "input_audio_buffer.clear": Reader._clear,
    "conversation.item.create": Reader._create_item,
    "conversation.item.truncate": Reader._truncate,
    "conversation.item.retrieve": Reader._retrieve,
    "conversation.item.delete": Reader._delete,
    "response.create": Reader._respond,
    "response.cancel": Reader._cancel,
    "output_audio_buffer.clear": Reader._clear_output,
}


class _Parts:
    """Parts of a message, collected from its content."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.audio = bytearray()
        self.pictures: list[bytes] = []
        self.shown: list[dict[str, Any]] = []
