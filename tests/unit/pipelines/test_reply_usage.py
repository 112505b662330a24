"""Tokens of each reply, from the events of a call: which report belongs to which reply."""

from parley.core.call_events import (
    AnsweredAhead,
    CallEvent,
    EngineUsed,
    GuessWithdrawn,
    ReplyFinished,
    ReplyOpened,
    ReplyStarted,
    ResponseStarted,
    ResponseText,
    ToolsCalled,
    TurnGuessed,
    TurnStarted,
)
from parley.core.timeline import HeardMark, HeardReply
from parley.core.usage import Stage, Usage
from parley.pipelines.sockets.reply_usage import ReplyUsage
from parley.protocols.client_protocol import Happening, ReplyUsed
from parley.runtime.event_stream import CallEvents


def tokens(count: int) -> Usage:
    return Usage(prompt_tokens=count)


def spent(count: int, *, stage: Stage = Stage.LLM, is_out_of_band: bool = False) -> EngineUsed:
    return EngineUsed(0, stage, "m", tokens(count), is_out_of_band=is_out_of_band)


def begun(reply_id: str, *words: str) -> list[CallEvent]:
    return [ResponseStarted(0), ReplyOpened(0, reply_id), *(ResponseText(0, word) for word in words)]


class Replies:
    """Call whose events are published, and what is reported to its client."""

    def __init__(self) -> None:
        self.events = CallEvents()
        self.reported: list[Happening] = []
        self.usage = ReplyUsage(self.events, self.reported.append)

    def publish(self, *events: CallEvent) -> list[tuple[str, int]]:
        """Publish events; return the replies that were reported, with their tokens."""
        self.reported.clear()
        for event in events:
            self.events.publish(event)
        assert all(isinstance(each, ReplyUsed) for each in self.reported)
        return [
            (each.reply_id, each.usage.prompt_tokens) for each in self.reported if isinstance(each, ReplyUsed)
        ]


def test_the_report_of_a_request_is_of_its_reply():
    replies = Replies()
    assert replies.publish(*begun("a", "Yes."), spent(9, stage=Stage.STT), spent(3)) == [("a", 3)]
    assert replies.publish(*begun("b", "No."), spent(4)) == [("b", 4)]
    # What a client requests on the side is no part of the conversation.
    assert replies.publish(*begun("c", "Hm."), spent(7, is_out_of_band=True)) == []


def test_an_answer_that_was_begun_ahead_has_its_report_and_one_that_was_withdrawn_gives_it_to_no_reply():
    replies = Replies()
    assert replies.publish(TurnGuessed(0, "tea"), spent(3), AnsweredAhead(0), *begun("a", "Yes.")) == [
        ("a", 3)
    ]
    assert replies.publish(TurnGuessed(0, "tea"), spent(5), GuessWithdrawn(0)) == []
    assert replies.publish(*begun("b", "Yes."), spent(4)) == [("b", 4)]
    # Its report comes after the turn is over.
    assert replies.publish(AnsweredAhead(0), *begun("c", "Yes."), spent(6)) == [("c", 6)]


def test_the_reply_to_what_a_tool_returned_has_the_tokens_of_the_request_that_called_it():
    replies = Replies()
    replies.publish(*begun("a"), spent(3), ToolsCalled(0))
    # The report may also come after the call.
    replies.publish(*begun("b"), ToolsCalled(0), spent(5))
    assert replies.publish(*begun("c", "Sunny."), spent(4)) == [("c", 12)]
    # Words before a call are a reply of their own.
    assert replies.publish(*begun("d", "Let me see."), spent(1), ToolsCalled(0)) == [("d", 1)]
    assert replies.publish(*begun("e", "Rain."), spent(2)) == [("e", 2)]


def test_the_tokens_of_a_call_that_the_client_receives_are_of_that_response_alone():
    replies = Replies()
    replies.publish(*begun("a"), spent(3), ToolsCalled(0))
    assert [replies.usage.take_of_call(), replies.usage.take_of_call()] == [tokens(3), None]
    assert replies.publish(*begun("b", "Sunny."), spent(4)) == [("b", 4)]
    replies.publish(*begun("c", "Let me see."), spent(1), ToolsCalled(0))
    assert replies.usage.take_of_call() is None


def test_what_one_request_has_not_reported_is_not_known_of_the_reply_either():
    replies = Replies()
    replies.publish(*begun("a"), ToolsCalled(0))
    assert replies.usage.take_of_call() is None
    replies.publish(*begun("b"), ToolsCalled(0))
    assert replies.publish(*begun("c", "Sunny."), spent(4)) == []
    # The next turn has nothing to do with it.
    assert replies.publish(*begun("d", "Yes."), spent(5)) == [("d", 5)]


def test_a_report_after_a_reply_was_cut_is_of_no_later_one():
    replies = Replies()
    heard = HeardReply("a", "Yes.", "", True, HeardMark("a", 100, 0), True, 0, 100_000)
    replies.publish(*begun("a", "Yes."), ReplyFinished(0, heard))
    assert replies.publish(spent(3)) == []
    replies.publish(*begun("b", "Yes."), TurnStarted(0))
    # That of a guess, and not of the reply that the turn has cut.
    assert replies.publish(TurnGuessed(0, "tea"), spent(5), AnsweredAhead(0), *begun("c", "No.")) == [
        ("c", 5)
    ]


def test_a_reply_of_full_duplex_is_known_when_it_is_spoken():
    replies = Replies()
    # A filler is spoken before the words have come.
    assert replies.publish(ResponseStarted(0), ReplyStarted(0, "filler")) == []
    assert replies.publish(ResponseText(0, "Yes."), spent(3), ReplyStarted(0, "a")) == [("a", 3)]
    assert replies.publish(ReplyStarted(0, "phrase")) == []
    early = [ResponseStarted(0), ResponseText(0, "No."), ReplyStarted(0, "b")]
    assert replies.publish(*early, spent(4)) == [("b", 4)]
