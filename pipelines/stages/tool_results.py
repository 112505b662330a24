"""Results of tools in a voice call, once the caller has heard what the agent says about them.

A rule by the result of a tool (``turn_taking.tier_offers``) is followed after the reply that answers it. A
reply before it ("Let me look that up") may end later than the tool. A human who were fetched then would cut
off the answer.

A cascade names a reply when its words come (``ReplyOpened``), full duplex when it is spoken: the first reply
that starts is that of the first response with words.
"""

from dataclasses import dataclass

from parley.core.call_events import (
    ReplyFinished,
    ReplyOpened,
    ReplyStarted,
    ResponseStarted,
    ResponseText,
    TextTyped,
    ToolsCalled,
    TurnStarted,
)
from parley.pipelines.call import Call
from parley.session_store.events import Event, Kind


@dataclass(slots=True)
class _Response:
    """Response of the model whose reply has no name yet.

    Attributes:
        is_answer: it answers what tools have returned.
        has_words: words of it have come.
    """

    is_answer: bool
    has_words: bool = False


class AnsweredToolResults:
    """Results of the tools of one call that are not counted yet.

    Args:
        call: the call.
    """

    def __init__(self, call: Call) -> None:
        self._conversation = call.conversation
        self._taken_seq = call.conversation.last_seq
        # The model has called tools, and begins the answer next.
        self._is_due = False
        self._responses: list[_Response] = []
        # Replies of this call are named when their words come.
        self._are_opened = False
        # The answer, until it is over.
        self._answer_id: str | None = None
        events = call.events
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ReplyOpened, self._on_reply_opened)
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(TurnStarted, self._on_cut)
        events.subscribe(TextTyped, self._on_cut)

    def take(self) -> list[Event]:
        """Return the results since the last call of this method; none while their answer is to come."""
        is_to_come = self._is_due or any(each.is_answer for each in self._responses)
        if is_to_come or self._answer_id is not None:
            return []
        news = [each for each in self._conversation.events if each.seq > self._taken_seq]
        self._taken_seq = max((each.seq for each in news), default=self._taken_seq)
        return [each for each in news if each.kind is Kind.TOOL_RESULT]

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        self._is_due = True

    def _on_response_started(self, _event: ResponseStarted) -> None:
        # One without words has no reply.
        unnamed = [each for each in self._responses if each.has_words]
        self._responses = [*unnamed, _Response(is_answer=self._is_due)]
        self._is_due = False

    def _on_response_text(self, event: ResponseText) -> None:
        if self._responses and event.text.strip():
            self._responses[-1].has_words = True

    def _on_reply_opened(self, event: ReplyOpened) -> None:
        self._are_opened = True
        if self._responses:
            self._name(self._responses.pop(), event.reply_id)

    def _on_reply_started(self, event: ReplyStarted) -> None:
        if not self._are_opened and self._responses and self._responses[0].has_words:
            self._name(self._responses.pop(0), event.reply_id)

    def _name(self, response: _Response, reply_id: str) -> None:
        if response.is_answer:
            self._answer_id = reply_id

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if event.heard.reply_id == self._answer_id:
            self._answer_id = None

    def _on_cut(self, _event: TurnStarted | TextTyped) -> None:
        # What was not spoken yet may never be.
        self._responses.clear()
