"""The model's requests and the answers of tools in one pipeline while it answers one turn.

    a request after results -> the session's view of that moment, with calls that have no event -> the service

The request after a result is made from the session, like the one after the caller's words. Pipecat keeps a
context of its own in step, and the service is asked with another one, made at that moment. Calls that were
refused or repeated have no event, because nothing happened; the model sees them, in their place in the row,
for as long as it answers this turn. There is no task: ``on_frame`` runs in the service's.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from pipecat.frames.frames import Frame, LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage, LLMSpecificMessage
from pipecat.services.llm_service import FunctionCallParams

from parley.processors.dialogue.speculation import TurnConfirmedFrame
from parley.processors.pipecat_internals import ask_with
from parley.session_store.conversation import Conversation
from parley.session_store.events import Event, Kind
from parley.session_store.memory import text_in
from parley.session_store.prompt import as_shown
from parley.session_store.redaction import PRIVATE_RESULT

# The heard part of the words before a call is recorded, not awaited; a commit takes milliseconds. A database
# that is away delays the answer no longer than this.
RECORDED_S = 0.5
# Seqs of events that only the model sees: after every event of the session, so that they stand last at their
# moment.
EXTRA_EVENT_SEQ = 2**62


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """Answer to the model about a call.

    Attributes:
        result: result of the call.
        call_id: id of the call in the timeline whose result it is; None for a refusal or a repetition, which
            the timeline does not contain.
        is_handed: true when the client runs the call, and its result comes later.
    """

    result: Mapping[str, Any]
    call_id: str | None = None
    is_handed: bool = False


class ToolExchange:
    """Requests and answers of the model in one pipeline while it answers one turn.

    The object stands before the service (``on_frame``): a request that follows results of tools is made with
    a context of its own, from the timeline as it is then. Pipecat's context, which the aggregators keep in
    step, is left alone.

    Args:
        conversation: the session.
        context: Pipecat's, of the pipeline.
        turn: the only one that is answered; None for the newest one whenever the model is asked.

    Attributes:
        turn_seq: seq of the turn that is answered.
        requests: number of requests to the model here.
    """

    def __init__(self, conversation: Conversation, context: LLMContext, turn: Event | None) -> None:
        self._conversation = conversation
        self._context = context
        self._own: set[str] = set()
        self.requests = 0
        self._turn = turn
        self.turn_seq = 0 if turn is None else turn.seq
        # Ids under which results stand in views of the session. All others are the provider's.
        self._viewed: set[str] = set()
        # Call and result as events that are not in the timeline, with the id of the call that they are about,
        # if any.
        self._extra_events: list[tuple[str | None, tuple[Event, Event]]] = []
        # The provider's id of a call -> that in the view.
        self._ids: dict[str, str] = {}
        # Calls that others answered, by the message of the result.
        self._foreign: list[LLMContextMessage] = []
        self._pinned: list[LLMContextMessage] = []

    def add_own(self, names: Iterable[str]) -> None:
        """Add names of tools that are offered here, whose calls are in the timeline."""
        self._own.update(names)

    def record_answer(self, params: FunctionCallParams, answer: AnsweredCall) -> None:
        """Record the answer to a call."""
        self._add(params.tool_call_id, params.function_name, params.arguments, answer.result, answer.call_id)

    async def on_frame(self, _service: object, frame: Frame) -> None:
        """Handle every frame before the service gets it."""
        if isinstance(frame, TurnConfirmedFrame):
            # The model's words and calls from here on belong to the turn that it had guessed.
            self._begin()
            return
        if not isinstance(frame, LLMContextFrame) or frame.context is not self._context:
            return
        self.requests += 1
        if not self._new_results():
            # The caller's turn, which the gate has put into the context as it is in the session.
            self._begin()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(RECORDED_S):
                await self._conversation.flushed()
        context = LLMContext(
            messages=self._messages(), tools=self._context.tools, tool_choice=self._context.tool_choice
        )
        ask_with(frame, context)

    def _begin(self) -> None:
        if self._turn is None:
            self.turn_seq = newest_turn_seq(self._conversation)
        # As the gate let them pass; messages put into the context later have not passed it.
        self._pinned = [
            message
            for message in self._context.messages
            if isinstance(message, dict) and message.get("role") in ("system", "developer")
        ]
        self._viewed.update(_result_ids(self._context.messages))
        self._extra_events.clear()
        self._ids.clear()
        self._foreign.clear()

    def _new_results(self) -> set[str]:
        """Return ids of results in the context and in no view: they came since the turn was asked."""
        given = set(_result_ids(self._context.messages)) - self._viewed
        if given:
            self._viewed.update(_result_ids(self._conversation.view().messages))
        return given - self._viewed

    def _messages(self) -> list[LLMContextMessage]:
        """Return the session's view, the server's pinned messages, and the calls of this exchange alone."""
        self._take_foreign()
        events = self._conversation.events
        recorded = {text_in(event.payload, "call_id") for event in events if event.kind is Kind.TOOL_CALL}
        private = {
            text_in(event.payload, "call_id")
            for event in events
            if event.kind is Kind.TOOL_RESULT and event.payload.get("result") == PRIVATE_RESULT
        }
        extra_events = [
            event for of, pair in self._extra_events if of is None or of not in recorded for event in pair
        ]
        view = self._conversation.view(turn=self.turn_seq, extra_events=extra_events, pictures=True)
        shown = [self._shown(message, private) for message in view.messages]
        return self._with_thoughts([*self._pinned, *cast(Sequence[LLMContextMessage], shown)])

    def _shown(self, message: Mapping[str, Any], private: Set[str]) -> Mapping[str, Any]:
        """Return a message with what the tool answered, where the session has no word of it.

        The session hides a call of a private pause. The model that called the tool has to answer.
        """
        call_id = message.get("tool_call_id")
        if call_id not in private:
            return message
        found = (pair for of, pair in self._extra_events if of == call_id)
        _, result = next(found, (None, None))
        return message if result is None else {**message, "content": as_shown(result.payload["result"])}

    def _take_foreign(self) -> None:
        """Collect results that no tool of the session gave: of an unknown function, or a client's own."""
        calls: dict[str, dict[str, Any]] = {}
        for message in self._context.messages:
            if not isinstance(message, dict):
                continue
            plain = cast(dict[str, Any], message)
            calls.update({call["id"]: call["function"] for call in plain.get("tool_calls") or ()})
            call_id = str(plain.get("tool_call_id"))
            if plain["role"] != "tool" or call_id in self._viewed or call_id not in calls:
                continue
            name = calls[call_id]["name"]
            if name not in self._own and not any(message is known for known in self._foreign):
                self._foreign.append(message)
                arguments = calls[call_id].get("arguments")
                self._add(call_id, name, arguments, str(plain.get("content", "")), None)

    def _add(self, given_id: str, name: str, arguments: object, result: object, call_id: str | None) -> None:
        number = 2 * len(self._extra_events)
        shown_id = call_id or f"call_{self.turn_seq}_beside_{number}"
        self._ids[given_id] = shown_id
        now_us = self._conversation.clock.now_us()
        payload: dict[str, object] = {"call_id": shown_id, "name": name, "turn": self.turn_seq}

        def event(kind: Kind, seq: int, **more: object) -> Event:
            return Event(
                session_id=self._conversation.session_id,
                seq=seq,
                epoch=self._conversation.epoch,
                kind=kind,
                payload={**payload, **more},
                event_us=now_us,
                arrival_us=now_us,
                source="system",
                speaker=None,
                final=True,
                confidence=1.0,
                key=f"{shown_id}.{kind.value}",
            )

        pair = (
            event(Kind.TOOL_CALL, EXTRA_EVENT_SEQ + number, arguments=arguments),
            event(Kind.TOOL_RESULT, EXTRA_EVENT_SEQ + number + 1, result=result),
        )
        self._extra_events.append((call_id, pair))

    def _with_thoughts(self, messages: list[LLMContextMessage]) -> list[LLMContextMessage]:
        """Place messages that only the service itself can read before the call that they belong to.

        Claude signs its thoughts and requires them back with the call, while the turn lasts.
        """
        thoughts: list[LLMContextMessage] = []
        for message in self._context.messages:
            if isinstance(message, LLMSpecificMessage):
                thoughts.append(message)
                continue
            ids = {self._ids.get(call_id) for call_id in _call_ids(message)}
            if not thoughts or not ids:
                continue
            place = next((at for at, one in enumerate(messages) if ids & set(_call_ids(one))), None)
            while place and _is_words(messages[place - 1]):
                place -= 1
            if place is not None:
                messages[place:place] = thoughts
            thoughts = []
        return messages


def newest_turn_seq(conversation: Conversation) -> int:
    """Return the seq of the caller's newest turn; 0 without one."""
    return max((event.seq for event in conversation.events if event.kind is Kind.USER_TURN), default=0)


def _result_ids(messages: Iterable[object]) -> Iterator[str]:
    for message in messages:
        if isinstance(message, dict) and message.get("role") == "tool":
            yield str(message.get("tool_call_id"))


def _call_ids(message: LLMContextMessage) -> list[str]:
    if not isinstance(message, dict):
        return []
    return [call["id"] for call in cast(dict[str, Any], message).get("tool_calls") or ()]


def _is_words(message: LLMContextMessage) -> bool:
    """Return whether a message holds words of the assistant."""
    return isinstance(message, dict) and message.get("role") == "assistant" and not _call_ids(message)
