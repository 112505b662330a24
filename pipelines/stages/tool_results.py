"""Results of tools in a voice call, once the caller has heard what the agent says about them.

A rule by the result of a tool (``turn_taking.tier_offers``) is followed after the reply that answers it. A
reply before it ("Let me look that up") may end later than the tool. A human who were fetched then would cut
off the answer.
"""

from parley.core.call_events import ReplyFinished, ReplyOpened, ResponseStarted, ToolsCalled
from parley.pipelines.call import Call
from parley.session_store.events import Event, Kind


class AnsweredToolResults:
    """Results of the tools of one call that are not counted yet.

    Args:
        call: the call.
    """

    def __init__(self, call: Call) -> None:
        self._conversation = call.conversation
        self._taken_seq = call.conversation.last_seq
        # The answer: the model has called tools and begins it next; it has begun; its id, until it is over.
        self._is_due = self._has_begun = False
        self._answer_id: str | None = None
        events = call.events
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ReplyOpened, self._on_reply_opened)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def take(self) -> list[Event]:
        """Return the results since the last call of this method; none while their answer is to come."""
        if self._is_due or self._answer_id is not None:
            return []
        news = [each for each in self._conversation.events if each.seq > self._taken_seq]
        self._taken_seq = max((each.seq for each in news), default=self._taken_seq)
        return [each for each in news if each.kind is Kind.TOOL_RESULT]

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        self._is_due = True

    def _on_response_started(self, _event: ResponseStarted) -> None:
        self._is_due, self._has_begun = False, self._is_due

    def _on_reply_opened(self, event: ReplyOpened) -> None:
        if self._has_begun:
            self._has_begun, self._answer_id = False, event.reply_id

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if event.heard.reply_id == self._answer_id:
            self._answer_id = None
