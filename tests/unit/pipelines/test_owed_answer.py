"""Answer that a caller is owed when a realtime service fails."""

from pipecat.frames.frames import Frame, LLMRunFrame, TTSSpeakFrame

from parley.core.call_events import ServiceSpoke, TextTyped, TurnEnded, TurnTranscribed
from parley.core.timeline import HeardMark, HeardReply
from parley.pipelines.stages.service_part import OwedAnswer
from parley.runtime.event_stream import CallEvents, EventScope

GREETING = TTSSpeakFrame("Good day. How can I help?")


def owed() -> tuple[CallEvents, OwedAnswer]:
    events = CallEvents()
    return events, OwedAnswer(EventScope(events))


def kinds(frames: list[Frame]) -> list[type[Frame]]:
    return [type(each) for each in frames]


def heard(text: str, unheard: str) -> HeardReply:
    mark = HeardMark("r", 400, 1)
    return HeardReply(
        "r", text, unheard, truncated=True, mark=mark, in_context=True, started_us=1, ended_us=2
    )


def test_a_call_that_has_not_begun_is_greeted():
    _, answer = owed()
    assert answer.frames(None, was_cut=False, greeting=GREETING) == [GREETING]
    assert answer.frames(None, was_cut=False, greeting=None) == []


def test_a_greeting_that_was_cut_is_finished_and_one_that_was_not_heard_is_said():
    events, answer = owed()
    events.publish(ServiceSpoke(1))
    [rest] = answer.frames(heard("Good day.", "How can I help?"), was_cut=True, greeting=GREETING)
    assert isinstance(rest, TTSSpeakFrame)
    assert rest.text == "How can I help?"
    assert answer.frames(heard("", "Good day."), was_cut=True, greeting=GREETING) == [GREETING]
    assert answer.frames(None, was_cut=False, greeting=GREETING) == []


def test_a_turn_without_an_answer_and_one_whose_answer_was_cut_are_asked():
    events, answer = owed()
    events.publish(TurnEnded(1, ""))
    events.publish(TurnTranscribed(2, "how much is it"))
    assert kinds(answer.frames(None, was_cut=False, greeting=GREETING)) == [LLMRunFrame]
    events.publish(ServiceSpoke(1))
    assert kinds(answer.frames(heard("It", "costs"), was_cut=True, greeting=GREETING)) == [LLMRunFrame]
    assert answer.frames(None, was_cut=False, greeting=GREETING) == []


def test_words_that_come_after_their_answer_are_not_asked_again():
    events, answer = owed()
    events.publish(TurnEnded(1, ""))
    events.publish(ServiceSpoke(1))
    events.publish(TurnTranscribed(2, "how much is it"))
    assert answer.frames(None, was_cut=False, greeting=GREETING) == []


def test_typed_words_without_an_answer_are_asked():
    events, answer = owed()
    events.publish(TextTyped(1, "how much is it"))
    assert kinds(answer.frames(None, was_cut=False, greeting=GREETING)) == [LLMRunFrame]
