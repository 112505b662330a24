"""Pieces of a caller's audio: whole windows of voice activity, and longer ones on a busy server."""

import pytest

from parley.core.errors import ShapeError
from parley.transports.piece_length import MOST_PACKETS, PieceLength

RATE_HZ, PACKET = 16_000, 320


def lengths(pieces: PieceLength, packets: int) -> list[int]:
    """Return the number of packets in each piece when packets come one by one."""
    found: list[int] = []
    waiting = 0
    for _ in range(packets):
        waiting += PACKET
        if pieces.is_whole(waiting):
            pieces.left(waiting)
            found.append(waiting // PACKET)
            waiting = 0
    return found


def test_a_piece_ends_with_the_packet_that_completes_a_window():
    assert lengths(PieceLength(RATE_HZ), 24) == [2, 2, 1, 2, 1] * 3


def test_a_filter_that_holds_audio_back_delays_the_end_of_a_window():
    # 2 ms: the window that ends at 160 ms is complete with the packet at 180 ms.
    assert lengths(PieceLength(RATE_HZ, delay_samples=32), 24) == [2, 2, 1, 2, 2, 1, 2, 1, 2, 2, 1, 2, 1, 2]


def test_a_long_piece_that_waited_ends_inside_of_a_window():
    pieces = PieceLength(RATE_HZ)
    pieces.left(5 * PACKET)
    # 4 ms of a window have left, so that 28 ms are missing.
    assert not pieces.is_whole(PACKET) and pieces.is_whole(2 * PACKET)


def test_pieces_grow_while_each_takes_long_and_shrink_after_that():
    pieces = PieceLength(RATE_HZ)
    for _ in range(200):
        pieces.took(9.0, pieces.packets * PACKET)
    assert pieces.packets == MOST_PACKETS
    assert set(lengths(pieces, 30)) == {MOST_PACKETS}
    for _ in range(200):
        pieces.took(0.5, pieces.packets * PACKET)
    assert pieces.packets == 1


def test_one_piece_that_was_blocked_for_long_changes_nothing():
    pieces = PieceLength(RATE_HZ)
    pieces.took(5_000.0, PACKET)
    assert pieces.packets == 1


def test_a_rate_without_whole_samples_in_a_millisecond_is_refused():
    with pytest.raises(ShapeError):
        PieceLength(11_025)
