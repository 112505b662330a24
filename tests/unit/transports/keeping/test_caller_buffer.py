"""Audio of a caller that a new conversation process has to hear again."""

import numpy as np

from parley.transports.keeping.caller_buffer import BEFORE_S, BYTES_PER_S, KEPT_S, ONSET_BYTES, CallerBuffer

PIECE_BYTES = BYTES_PER_S // 50
QUIET = bytes(PIECE_BYTES)
LOUD = np.full(PIECE_BYTES // 2, 3_000, "<i2").tobytes()
A_SECOND = 50


def heard(buffer: CallerBuffer, *pieces: bytes) -> None:
    for piece in pieces:
        buffer.hear(piece)


def test_a_turn_is_kept_from_before_the_moment_at_which_it_was_noticed():
    buffer = CallerBuffer()
    heard(buffer, *[QUIET] * A_SECOND, *[LOUD] * 10)
    buffer.turn_began((A_SECOND + 10) * PIECE_BYTES)
    heard(buffer, *[LOUD] * 100)
    kept = buffer.take()
    assert kept[-110:] == [LOUD] * 110
    assert len(kept) == round(BEFORE_S * A_SECOND) + 100


def test_a_committed_turn_is_not_heard_again_and_what_follows_it_is():
    buffer = CallerBuffer()
    heard(buffer, *[LOUD] * 20)
    buffer.turn_began(20 * PIECE_BYTES)
    heard(buffer, *[LOUD] * 30)
    ended = 50 * PIECE_BYTES
    heard(buffer, *[QUIET] * 20)
    buffer.turn_settled(ended)
    buffer.begin_gap()
    assert buffer.take() == []
    heard(buffer, LOUD)
    # Places are counted from the beginning of what the new process has received.
    buffer.turn_settled(PIECE_BYTES)
    buffer.begin_gap()
    assert buffer.take() == []


def test_silence_of_a_gap_is_left_out_and_a_soft_onset_is_not():
    buffer = CallerBuffer()
    buffer.begin_gap()
    heard(buffer, *[QUIET] * 200, *[LOUD] * 5, *[QUIET] * 3)
    onset = ONSET_BYTES // PIECE_BYTES
    assert buffer.take() == [QUIET] * onset + [LOUD] * 5 + [QUIET] * 3
    # A second loss has all of it again, and what came since.
    heard(buffer, LOUD)
    buffer.begin_gap()
    assert len(buffer.take()) == onset + 5 + 3 + 1


def test_a_turn_without_end_is_bounded():
    buffer = CallerBuffer()
    buffer.turn_began(0)
    heard(buffer, *[LOUD] * (round(KEPT_S * A_SECOND) + 500))
    assert sum(map(len, buffer.take())) == KEPT_S * BYTES_PER_S


def test_nothing_of_a_private_pause_is_kept_and_places_go_on():
    buffer = CallerBuffer()
    heard(buffer, *[LOUD] * 10)
    buffer.begin_pause()
    buffer.turn_began(10 * PIECE_BYTES)
    heard(buffer, *[LOUD] * 10)
    buffer.begin_gap()
    heard(buffer, *[LOUD] * 10)
    assert buffer.take() == []
    heard(buffer, *[LOUD] * 10)
    buffer.end_pause()
    heard(buffer, *[LOUD] * 10)
    buffer.turn_settled(15 * PIECE_BYTES)
    assert buffer.take() == [LOUD] * 5
