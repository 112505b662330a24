"""Convert events of a call to events of OpenAI's realtime protocol.

There is one response at a time. The bot's speech is its message. A tool call during the speech is another
item of the same response; otherwise it is a response of its own. An item's audio is a reply of the call, and
``Trimmed`` refers to it by the reply's id.
"""

from collections.abc import Sequence
from typing import Any

from parley.protocols.client_mcp import (
    McpCallBegan,
    McpCallEnded,
    McpCallRuns,
    McpListed,
    McpListingBegan,
    McpListingFailed,
)
from parley.protocols.client_protocol import (
    Began,
    CallerStarted,
    CallerStopped,
    Happening,
    Message,
    OutOfBandAnswer,
    RecognisedWords,
    ReplyAudio,
    ReplyBegan,
    ReplyCites,
    ReplyOver,
    ReplyUsed,
    ReplyWords,
    RequestFailed,
    SessionEnded,
    ToolCalled,
    Trimmed,
    written,
)
from parley.protocols.openai_realtime.mcp_shapes import shown_fault
from parley.protocols.openai_realtime.shapes import error_event, event, status_details
from parley.protocols.openai_realtime.state import Item, RealtimeState, Response, done, truncated


class ServerEventWriter:
    """Writer of one conversation."""

    def __init__(self, state: RealtimeState) -> None:
        self._state = state

    def messages_for(self, happening: Happening) -> Sequence[Message]:
        """Return the events for an event of the call (``ClientProtocol.messages_for``).

        The protocol has none for a queue.
        """
        match happening:
            case Began(session_id):
                return [self._state.begin(session_id)]
            case CallerStarted(voice_ms):
                return self._caller_started(voice_ms)
            case CallerStopped(voice_ms):
                return self._caller_stopped(voice_ms)
            case RecognisedWords(text, is_final):
                return self._words(text) if is_final else []
            case ReplyBegan(reply_id, is_filler):
                return self._begin(reply_id, is_filler=is_filler)
            case ReplyAudio(data, duration_ms):
                return self._audio(data, duration_ms)
            case ReplyWords(text):
                return self._said(text)
            case ReplyCites(reply_id, passages):
                self._state.cite(reply_id, passages)
                return []
            case ReplyUsed(reply_id, usage):
                self._state.use(reply_id, usage)
                return []
            case ReplyOver(reply_id, was_cut):
                return self._over(reply_id, was_cut=was_cut)
            case ToolCalled():
                return self._asks(happening)
            case Trimmed(reply_id, audio_ms, heard):
                return self._trimmed(reply_id, audio_ms, heard)
            case OutOfBandAnswer():
                return self._aside(happening)
            case RequestFailed(fault):
                return self._state.owe_nothing("failed", fault)
            case SessionEnded(reason, message):
                return self._end_of_call(reason, message)
            case _:
                return self._of_mcp(happening)

    def _of_mcp(self, happening: Happening) -> Sequence[Message]:
        """Return the events for what happens with a client's MCP servers."""
        match happening:
            case McpListingBegan(listing_id, label):
                return self._mcp_listing(listing_id, label)
            case McpListed():
                return self._mcp_listed(happening)
            case McpListingFailed(listing_id, reason):
                return self._mcp_listing_failed(listing_id, reason)
            case McpCallBegan():
                return self._mcp_call(happening)
            case McpCallRuns(call_id):
                item = self._state.mcp.calls.get(call_id)
                return [] if item is None else [_of_mcp_call("in_progress", item)]
            case McpCallEnded():
                return self._mcp_call_ended(happening)
            case _:
                return []

    # The caller.

    def _caller_started(self, voice_ms: int | None) -> list[Message]:
        state = self._state
        if state.settings.detection is None or state.caller is not None:
            return []
        item_id = state.begin_turn().item_id
        state.speaks_from(voice_ms)
        started = event("input_audio_buffer.speech_started", audio_start_ms=state.began_ms, item_id=item_id)
        # An answer that has not begun does not come any more. The next response is another one.
        return [started, *state.owe_nothing("cancelled", "turn_detected")]

    def _caller_stopped(self, voice_ms: int | None) -> list[Message]:
        state = self._state
        turn = state.end_turn()
        if turn is None:
            return []
        item, transcript = turn
        messages: list[Message] = []
        is_in_conversation = state.items.get(item.item_id) is item
        if not is_in_conversation:
            state.spoke_until(voice_ms)
            messages.append(
                event(
                    "input_audio_buffer.speech_stopped",
                    audio_end_ms=state.ended_ms,
                    item_id=item.item_id,
                )
            )
            messages += state.committed(item)
        messages.append(
            event(
                "conversation.item.input_audio_transcription.completed",
                item_id=item.item_id,
                content_index=len(item.body["content"]) - 1,
                transcript=transcript,
                usage={"type": "duration", "seconds": round((state.ended_ms - state.began_ms) / 1000, 3)},
            )
        )
        if transcript:
            state.answer_turn()
        else:
            # A turn without words is not answered. A client that has requested an answer receives an empty
            # one.
            messages += state.owe_nothing("completed")
        return messages

    def _words(self, text: str) -> list[Message]:
        state = self._state
        if state.caller is None or not text:
            return []
        joiner = " " if state.caller_words else ""
        state.caller_words.append(text)
        return [
            event(
                "conversation.item.input_audio_transcription.delta",
                item_id=state.caller.item_id,
                content_index=len(state.caller.body["content"]) - 1,
                delta=joiner + text,
            )
        ]

    # The bot.

    def _open(self, *, is_filler: bool = False) -> tuple[Response, list[Message]]:
        """Return the active response, or a new one with the event about it."""
        state = self._state
        if state.response is not None:
            return state.response, []
        response = state.open_filler() if is_filler else state.open_response()
        return response, [event("response.created", response=state.shown_response(response, "in_progress"))]

    def _add(self, response: Response, item: Item) -> list[Message]:
        response.add(item)
        return [
            self._of_item("response.output_item.added", response, item, item=dict(item.body)),
            self._state.items.add(item),
        ]

    def _begin(self, reply_id: str, *, is_filler: bool) -> list[Message]:
        state = self._state
        speech = state.response.speech if state.response is not None else None
        if speech is not None and speech.reply_id == reply_id:
            return []
        messages = self._close(was_cut=False) if speech is not None else []
        response, opened = self._open(is_filler=is_filler)
        item = state.items.new(
            {"type": "message", "role": "assistant", "status": "in_progress", "content": []},
            reply_id=reply_id,
            modality=response.request.modality,
        )
        return [
            *messages,
            *opened,
            *self._add(response, item),
            self._of_part("response.content_part.added", response, item, part=_as_part(self._part(item))),
        ]

    def _audio(self, data: bytes, duration_ms: float) -> list[Message]:
        response = self._state.response
        item = response.speech if response is not None else None
        if response is None or item is None or item.modality != "audio":
            return []
        item.play(duration_ms)
        if not self._state.has_tracks:
            self._state.note_audio()
            return [self._of_part("response.output_audio.delta", response, item, delta=written(data))]
        if response.has_sounded:
            return []
        self._state.note_audio()
        response.sound()
        return [event("output_audio_buffer.started", response_id=response.response_id)]

    def _said(self, text: str) -> list[Message]:
        response = self._state.response
        item = response.speech if response is not None else None
        if response is None or item is None or not text:
            return []
        return [self._of_part(f"{self._text_events(item)}.delta", response, item, delta=item.say(text))]

    def _over(self, reply_id: str, *, was_cut: bool) -> list[Message]:
        response = self._state.response
        if response is None or response.speech is None or response.speech.reply_id != reply_id:
            # The reply was followed by another one.
            return []
        return self._close(was_cut=was_cut)

    def _close(self, *, was_cut: bool) -> list[Message]:
        """End the active response; return the events about it."""
        state = self._state
        response = state.close_response()
        if response is None:
            return []
        messages: list[Message] = []
        if was_cut and response.has_sounded:
            messages.append(event("output_audio_buffer.cleared", response_id=response.response_id))
        item = response.speech
        if item is not None:
            item.body["status"] = "incomplete" if was_cut else "completed"
            part = self._part(item)
            item.body["content"] = [part]
            if part["type"] == "output_audio":
                messages.append(self._of_part("response.output_audio.done", response, item))
                whole = {"transcript": item.text}
            else:
                whole = {"text": item.text}
            messages += [
                self._of_part(f"{self._text_events(item)}.done", response, item, **whole),
                self._of_part("response.content_part.done", response, item, part=_as_part(part)),
                self._of_item("response.output_item.done", response, item, item=dict(item.body)),
                done(item),
            ]
        status, details = "completed", None
        if was_cut:
            reason = "client_cancelled" if response.is_cancelled else "turn_detected"
            status, details = "cancelled", {"type": "cancelled", "reason": reason}
        messages.append(event("response.done", response=state.shown_response(response, status, details)))
        if response.has_sounded and not was_cut:
            messages.append(event("output_audio_buffer.stopped", response_id=response.response_id))
        return [*messages, *state.ended_requests()]

    def _asks(self, called: ToolCalled) -> list[Message]:
        state, call_id, name, arguments = self._state, called.call_id, called.name, called.arguments
        is_speaking = state.response is not None
        response, messages = self._open()
        if response.is_filler:
            # The call is the answer: the output of the tool is answered on a request of its own.
            messages += state.owe_nothing("completed")
        state.asked.add(call_id)
        item = state.items.new(
            {
                "type": "function_call",
                "status": "in_progress",
                "name": name,
                "call_id": call_id,
                "arguments": "",
            }
        )
        messages += self._add(response, item)
        of_call = {
            "response_id": response.response_id,
            "item_id": item.item_id,
            "output_index": item.output_index,
            "call_id": call_id,
        }
        item.body.update(arguments=arguments, status="completed")
        messages += [
            event("response.function_call_arguments.delta", delta=arguments, **of_call),
            event("response.function_call_arguments.done", arguments=arguments, name=name, **of_call),
            self._of_item("response.output_item.done", response, item, item=dict(item.body)),
            done(item),
        ]
        if is_speaking:
            return messages
        response.use(called.usage)
        return [*messages, *self._close(was_cut=False)]

    # A client's MCP servers.

    def _mcp_listing(self, listing_id: str, label: str) -> list[Message]:
        state = self._state
        body = {"type": "mcp_list_tools", "server_label": label, "tools": []}
        item = state.mcp.listings[listing_id] = state.items.new(body, item_id=listing_id)
        return [state.items.add(item), event("mcp_list_tools.in_progress", item_id=listing_id)]

    def _mcp_listed(self, listed: McpListed) -> list[Message]:
        item = self._state.mcp.listings.pop(listed.listing_id, None)
        if item is None:
            return []
        item.body["tools"] = [dict(tool) for tool in listed.tools]
        messages = [event("mcp_list_tools.completed", item_id=item.item_id), done(item)]
        if listed.left_out:
            # The protocol has no event for a part of a list.
            messages.append(error_event(listed.left_out, "mcp_tools_left_out", "tools"))
        return messages

    def _mcp_listing_failed(self, listing_id: str, reason: str) -> list[Message]:
        item = self._state.mcp.listings.pop(listing_id, None)
        if item is None:
            return []
        why = f"the MCP server {item.body['server_label']!r} cannot be used: {reason}"
        return [
            event("mcp_list_tools.failed", item_id=item.item_id),
            done(item),
            # The event of the failure has no field for its reason.
            error_event(why, "mcp_list_tools_failed", "tools"),
        ]

    def _mcp_call(self, call: McpCallBegan) -> list[Message]:
        """Return the events of a call that the model makes, up to the client's approval where it needs one.

        The call goes on after its response: the item is done when the call is.
        """
        state = self._state
        is_speaking = state.response is not None
        response, messages = self._open()
        if response.is_filler:
            # As for a function: the output of the tool is answered on a request of its own.
            messages += state.owe_nothing("completed")
        about = {"server_label": call.label, "name": call.name}
        body = {"type": "mcp_call", **about, "approval_request_id": call.approval_id or None, "arguments": ""}
        item = state.items.new({**body, "output": None, "error": None}, item_id=call.call_id)
        state.mcp.calls[call.call_id] = item
        messages += self._add(response, item)
        of_call = {
            "response_id": response.response_id,
            "item_id": item.item_id,
            "output_index": item.output_index,
        }
        item.body["arguments"] = call.arguments
        messages += [
            event("response.mcp_call_arguments.delta", delta=call.arguments, **of_call),
            event("response.mcp_call_arguments.done", arguments=call.arguments, **of_call),
            self._of_item("response.output_item.done", response, item, item=dict(item.body)),
        ]
        if call.approval_id:
            state.mcp.approvals.add(call.approval_id)
            asked = state.items.new(
                {"type": "mcp_approval_request", **about, "arguments": call.arguments},
                item_id=call.approval_id,
            )
            messages += [
                *self._add(response, asked),
                self._of_item("response.output_item.done", response, asked, item=dict(asked.body)),
                done(asked),
            ]
        if is_speaking:
            return messages
        response.use(call.usage)
        return [*messages, *self._close(was_cut=False)]

    def _mcp_call_ended(self, ended: McpCallEnded) -> list[Message]:
        state = self._state
        known = state.mcp.end_call(ended.call_id)
        if known is None:
            return []
        item, is_answered = known
        fault = shown_fault(ended.fault)
        item.body.update(output=ended.output if fault is None else None, error=fault)
        if is_answered:
            state.answer_output()
        return [_of_mcp_call("completed" if fault is None else "failed", item), done(item)]

    def _aside(self, answer: OutOfBandAnswer) -> list[Message]:
        """Return the events of a response outside of the conversation, from its item to its end."""
        state = self._state
        response = state.aside.pop(answer.request_id, None)
        if response is None:
            return []
        response.use(answer.usage)
        if answer.fault:
            shown = state.shown_response(response, "failed", status_details("failed", answer.fault))
            return [event("response.done", response=shown)]
        item = state.items.new(
            {"type": "message", "role": "assistant", "status": "in_progress", "content": []}, modality="text"
        )
        response.add(item)
        messages = [
            self._of_item("response.output_item.added", response, item, item=dict(item.body)),
            self._of_part("response.content_part.added", response, item, part=_as_part(self._part(item))),
            self._of_part("response.output_text.delta", response, item, delta=item.say(answer.text)),
            self._of_part("response.output_text.done", response, item, text=item.text),
        ]
        part = self._part(item)
        item.body.update(status="completed", content=[part])
        return [
            *messages,
            self._of_part("response.content_part.done", response, item, part=_as_part(part)),
            self._of_item("response.output_item.done", response, item, item=dict(item.body)),
            event("response.done", response=state.shown_response(response, "completed")),
        ]

    def _trimmed(self, reply_id: str, audio_ms: int, heard: str | None) -> list[Message]:
        item = self._state.items.of_reply(reply_id)
        if item is None:
            return []
        if heard is not None:
            item.trim(heard, audio_ms)
        return [truncated(item, audio_ms)]

    def _end_of_call(self, reason: str, message: str) -> list[Message]:
        """End the active response and report an error, if any."""
        messages = self._close(was_cut=True)
        if reason == "stopped":
            return messages
        return [
            *messages,
            error_event(message or f"the conversation is over: {reason}", reason, kind="server_error"),
        ]

    # Shapes that depend on the conversation.

    def _part(self, item: Item) -> Message:
        """Return the bot's speech in the modality in which it began; updates apply to the next response."""
        if item.modality == "audio":
            return {"type": "output_audio", "transcript": item.text}
        return {"type": "output_text", "text": item.text}

    def _text_events(self, item: Item) -> str:
        is_spoken = item.modality == "audio"
        return "response.output_audio_transcript" if is_spoken else "response.output_text"

    def _of_item(self, type_: str, response: Response, of: Item, **fields: Any) -> Message:
        return event(type_, response_id=response.response_id, output_index=of.output_index, **fields)

    def _of_part(self, type_: str, response: Response, of: Item, **fields: Any) -> Message:
        return self._of_item(type_, response, of, item_id=of.item_id, content_index=0, **fields)


def _of_mcp_call(state: str, item: Item) -> Message:
    return event(f"response.mcp_call.{state}", item_id=item.item_id, output_index=item.output_index)


def _as_part(content: Message) -> Message:
    """Return content of an item as a part: events about parts use other names for the types."""
    return {**content, "type": str(content["type"]).removeprefix("output_")}
