"""A client's speech in real time."""

import pytest

from parley.protocols.client_protocol import EndTurn, Pictures, ProtocolError
from parley.transports.websocket.paced_sender import SpeechLine

RATE_HZ = 16_000


def speech(ms: int) -> bytes:
    return b"\1\0" * (RATE_HZ * ms // 1000)


def line(**settings: int) -> SpeechLine:
    return SpeechLine(RATE_HZ, **settings)


def taken_ms(line: SpeechLine, at_ms: int) -> int:
    """Return the length of all pieces that are passed on at a time."""
    total = 0
    while isinstance(taken := line.take(at_ms * 1000), bytes):
        total += len(taken) * 1000 // (2 * RATE_HZ)
    return total


def test_speech_in_time_goes_on_at_once():
    one = line()
    for at_ms in range(0, 1_000, 20):
        one.speak(speech(20))
        assert taken_ms(one, at_ms) == 20
    assert one.held_ms == 0


def test_a_recording_that_is_sent_at_once_is_heard_at_the_pace_of_speech():
    one = line(ahead_ms=200)
    one.speak(speech(2_000))
    heard = [taken_ms(one, at_ms) for at_ms in range(0, 2_000, 100)]
    assert heard[0] <= 220
    assert all(sum(heard[: n + 1]) <= n * 100 + 220 for n in range(20))
    assert sum(heard) == 2_000


def test_who_was_silent_for_a_while_may_not_make_up_for_it():
    one = line(ahead_ms=200)
    one.speak(speech(20))
    taken_ms(one, 0)
    one.speak(speech(2_000))
    assert taken_ms(one, 60_000) <= 220


def test_what_was_wished_stands_after_what_was_said_and_before_what_is_said_next():
    one = line(ahead_ms=20)
    one.speak(speech(100))
    one.want(EndTurn())
    one.speak(speech(100))
    before_ms = after_ms = 0
    for at_ms in range(0, 1_000, 10):
        while (taken := one.take(at_ms * 1000)) is not None:
            if isinstance(taken, EndTurn):
                before_ms, after_ms = after_ms, 0
                assert at_ms >= 60
            else:
                assert isinstance(taken, bytes)
                after_ms += len(taken) * 1000 // (2 * RATE_HZ)
    assert (before_ms, after_ms) == (100, 100)


def test_what_is_too_far_ahead_is_refused_and_what_is_held_stays():
    one = line(most_ms=1_000)
    one.speak(speech(900))
    with pytest.raises(ProtocolError) as refused:
        one.speak(speech(200))
    assert (refused.value.code, refused.value.param) == ("too_fast", "audio")
    assert one.held_ms == 900


def test_what_was_said_before_is_not_waited_for_and_comes_piece_by_piece():
    one = line()
    one.speak(speech(3_000), at_once=True)
    one.want(EndTurn())
    pieces = []
    while isinstance(taken := one.take(0), bytes):
        pieces.append(len(taken) * 1000 // (2 * RATE_HZ))
    assert (set(pieces), sum(pieces), taken) == ({20}, 3_000, EndTurn())
    # Speech that is sent live after it is in time.
    one.speak(speech(20))
    assert taken_ms(one, 0) == 20


def test_clearing_forgets_words_and_wishes():
    one = line()
    one.speak(speech(500))
    one.want(EndTurn())
    one.clear()
    assert (one.held_ms, one.next_due_us(), one.take(10**9)) == (0, None, None)


def test_what_waits_after_speech_is_bounded():
    one = line()
    one.speak(speech(1_000))
    one.want(Pictures((bytes(9_000_000),)))
    with pytest.raises(ProtocolError, match="too much"):
        one.want(Pictures((bytes(9_000_000),)))
    for _ in range(511):
        one.want(EndTurn())
    with pytest.raises(ProtocolError, match="too much"):
        one.want(EndTurn())
    # When audio has been taken there is room again.
    taken = [one.take(second * 1_000_000) for second in range(20)]
    assert any(isinstance(each, Pictures) for each in taken)
    one.want(Pictures((bytes(9_000_000),)))


def test_room_is_asked_for_before_anything_is_decoded():
    one = line(most_ms=1_000)
    one.speak(speech(900))
    one.check_room(100)
    with pytest.raises(ProtocolError, match="in real time"):
        one.check_room(101)
