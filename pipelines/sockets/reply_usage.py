"""Tokens of the model for each reply of a call, as the model reports them, for a client that reads them.

The report of a request comes when the model has written its answer, long before that has been spoken. The
report of an answer that was begun ahead of the end of a turn comes before the turn has a request; that of a
guess that was withdrawn belongs to no reply. A request that only calls tools has no words: its tokens count
for the response that the client receives with the call, or for the reply to what tools of the deployment have
returned. Nothing is estimated: a reply of which one request has no report has none either.
"""

from collections.abc import Callable
from dataclasses import dataclass

from parley.core.call_events import (
    AnsweredAhead,
    EngineUsed,
    ReplyFinished,
    ReplyOpened,
    ReplyStarted,
    ResponseStarted,
    ResponseText,
    TextTyped,
    ToolsCalled,
    TurnStarted,
)
from parley.core.usage import Stage, Usage
from parley.protocols.client_protocol import Happening, ReplyUsed
from parley.runtime.event_stream import CallEvents


@dataclass(slots=True)
class _Request:
    """Request to the model.

    Attributes:
        before: tokens of the requests before it whose tools it answers; None: not known.
        usage: tokens of it; None until they are reported.
        reply_id: of its reply; empty until that begins.
        has_words: it has words, which are a reply of their own.
        calls_tools: it calls tools.
        is_over: no report of it comes any more: its reply is over, or a turn of the caller has cut it.
    """

    before: Usage | None
    usage: Usage | None = None
    reply_id: str = ""
    has_words: bool = False
    calls_tools: bool = False
    is_over: bool = False

    @property
    def total(self) -> Usage | None:
        """Tokens so far, with those of the requests before it; None where a part is not known."""
        return None if self.before is None or self.usage is None else self.before + self.usage


class ReplyUsage:
    """Tokens of the replies of one call.

    Args:
        events: events of the call.
        report: reports the tokens of a reply to the client; must not block.
    """

    def __init__(self, events: CallEvents, report: Callable[[Happening], None]) -> None:
        self._report = report
        self._request: _Request | None = None
        # Of an answer that is held until the turn is over, which may be withdrawn.
        self._held: Usage | None = None
        self._is_ahead = False
        events.subscribe(EngineUsed, self._on_engine_used)
        events.subscribe(AnsweredAhead, self._on_answered_ahead)
        events.subscribe(ResponseStarted, self._on_response_started)
        events.subscribe(ReplyOpened, self._on_reply_opened)
        # Full duplex names a reply when it is spoken, after its words have come.
        events.subscribe(ReplyStarted, self._on_reply_started)
        events.subscribe(ResponseText, self._on_response_text)
        events.subscribe(ToolsCalled, self._on_tools_called)
        events.subscribe(TurnStarted, self._on_cut)
        events.subscribe(TextTyped, self._on_cut)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def take_of_call(self) -> Usage | None:
        """Return the tokens of the request that calls a tool of the client, once; None where unknown."""
        request = self._request
        if request is None or request.has_words:
            # Its words are a response with these tokens.
            return None
        total, request.before, request.usage = request.total, Usage(), Usage()
        return total if total is not None and total.amounts() else None

    def _on_engine_used(self, event: EngineUsed) -> None:
        if event.stage is not Stage.LLM or event.is_out_of_band:
            return
        request = self._request
        if request is None or request.is_over or request.usage is not None:
            self._held = event.usage
            return
        request.usage = event.usage
        self._settle()

    def _on_answered_ahead(self, _event: AnsweredAhead) -> None:
        self._is_ahead = True

    def _on_response_started(self, _event: ResponseStarted) -> None:
        last = self._request
        is_answer = last is not None and last.calls_tools and not last.has_words
        before = last.total if last is not None and is_answer else Usage()
        self._request = _Request(before, self._held if self._is_ahead else None)
        self._held, self._is_ahead = None, False

    def _on_reply_opened(self, event: ReplyOpened) -> None:
        if self._request is not None:
            self._request.reply_id = event.reply_id
            self._settle()

    def _on_reply_started(self, event: ReplyStarted) -> None:
        request = self._request
        if request is not None and not request.reply_id and request.has_words:
            request.reply_id = event.reply_id
            self._settle()

    def _on_response_text(self, event: ResponseText) -> None:
        if self._request is not None and event.text.strip():
            self._request.has_words = True

    def _on_tools_called(self, _event: ToolsCalled) -> None:
        if self._request is not None:
            self._request.calls_tools = True

    def _on_cut(self, _event: TurnStarted | TextTyped) -> None:
        if self._request is not None:
            self._request.is_over = True

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if self._request is not None and self._request.reply_id == event.heard.reply_id:
            self._request.is_over = True

    def _settle(self) -> None:
        """Report the tokens of the present reply where they are known."""
        request = self._request
        if request is not None and request.reply_id and (total := request.total) is not None:
            self._report(ReplyUsed(request.reply_id, total))
