"""The end of a turn is reported after its words, or after a second when no words are reported."""

from pipecat.frames.frames import (
    OutputTransportMessageUrgentFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame

from parley.protocols.client_protocol import TURN_END
from parley.transports.websocket.transport import TURN_OVER, WORDS_S
from tests.unit.transports.websocket.timed_client import messages_for

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"


def received(*frames: object) -> list[tuple[float, str]]:
    """Return a client's messages about the caller's turns, with their times, for these frames."""
    read = messages_for(*frames)
    first_s = next(at_s for at_s, kind in read if kind == STARTED)
    return [(round(at_s - first_s, 1), kind) for at_s, kind in read if kind in (STARTED, STOPPED)]


def turn() -> tuple[UserStartedSpeakingFrame, UserStoppedSpeakingFrame]:
    return UserStartedSpeakingFrame(), UserStoppedSpeakingFrame()


def over(stopped: UserStoppedSpeakingFrame) -> OutputTransportMessageUrgentFrame:
    """Return RTVI's message of this end."""
    frame = OutputTransportMessageUrgentFrame(message={"label": "rtvi-ai", "type": TURN_OVER})
    TURN_END.put(frame, stopped.id)
    return frame


def test_an_end_is_told_when_rtvi_has_told_of_it():
    started, stopped = turn()
    assert received(started, stopped, SleepFrame(0.3), over(stopped), SleepFrame(2)) == [
        (0.0, STARTED),
        (0.3, STOPPED),
    ]


def test_an_end_of_which_rtvi_has_told_before_is_told_at_once():
    started, stopped = turn()
    assert received(started, over(stopped), SleepFrame(0.3), stopped, SleepFrame(2)) == [
        (0.0, STARTED),
        (0.3, STOPPED),
    ]


def test_a_late_message_of_an_earlier_end_tells_no_other_end():
    # The wait for the first end is over when its message comes: while the caller speaks again, or after that.
    for speaks_again in (True, False):
        (started, stopped), (again, ended) = turn(), turn()
        late = over(stopped)
        between = (again, late, ended) if speaks_again else (again, ended, late)
        sent = (started, stopped, SleepFrame(1.5), *between, SleepFrame(0.6), over(ended), SleepFrame(2))
        assert received(*sent) == [(0.0, STARTED), (WORDS_S, STOPPED), (1.5, STARTED), (2.1, STOPPED)]


def test_a_message_tells_of_all_ends_before_it():
    first, second = turn(), turn()
    assert received(*first, SleepFrame(0.2), *second, SleepFrame(0.2), over(second[1]), SleepFrame(2)) == [
        (0.0, STARTED),
        (0.4, STOPPED),
        (0.4, STARTED),
        (0.4, STOPPED),
    ]


def test_an_end_of_which_rtvi_tells_nothing_is_told_after_a_second():
    assert received(*turn(), SleepFrame(2)) == [(0.0, STARTED), (WORDS_S, STOPPED)]


def test_each_of_two_ends_that_are_held_has_a_second_of_its_own():
    assert received(*turn(), SleepFrame(0.8), *turn(), SleepFrame(2)) == [
        (0.0, STARTED),
        (WORDS_S, STOPPED),
        (WORDS_S, STARTED),
        (0.8 + WORDS_S, STOPPED),
    ]
