"""The caller's audio, by packets and times."""

from parley.evals.harness.phone_caller import Piece
from parley.evals.phone.playback import playback

PACKET = bytes(160)


def test_packets_that_come_at_once_are_heard_one_after_the_other():
    heard = playback([Piece(1.0, PACKET), Piece(1.0, PACKET)], [])
    assert [round(each.starts_s, 3) for each in heard] == [1.0, 1.02]


def test_a_packet_is_not_heard_before_it_is_there():
    heard = playback([Piece(1.0, PACKET), Piece(1.5, PACKET)], [])
    assert [each.starts_s for each in heard] == [1.0, 1.5]


def test_a_clear_cuts_what_is_being_played_and_drops_the_rest():
    pieces = [Piece(1.0, PACKET)] * 4
    heard = playback(pieces, [1.03])
    assert [len(each.mu_law) for each in heard] == [160, 80]


def test_what_comes_after_a_clear_is_heard_when_it_comes():
    heard = playback([Piece(1.0, PACKET), Piece(1.0, PACKET), Piece(1.015, PACKET)], [1.01])
    assert [(round(each.starts_s, 3), len(each.mu_law)) for each in heard] == [(1.0, 80), (1.015, 160)]
