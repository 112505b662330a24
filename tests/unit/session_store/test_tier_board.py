from parley.core.tiers import SessionTier, Tier
from parley.session_store.tier_board import MOST_HELD, TierBoard


def waiting(since_us: int) -> SessionTier:
    return SessionTier(Tier.WAITING, since_us=since_us)


def test_places_follow_the_order_of_the_wait_and_every_change() -> None:
    board = TierBoard()
    for name, since_us in (("b", 2), ("a", 1), ("c", 3)):
        board.put(name, waiting(since_us))
    assert [board.place_of(name) for name in "abcd"] == [1, 2, 3, 0]
    board.put("a", SessionTier(Tier.HUMAN))
    assert [board.place_of(name) for name in "abc"] == [0, 1, 2]
    board.remove("b")
    assert [board.place_of(name) for name in "abc"] == [0, 0, 1]
    board.put("c", SessionTier(Tier.BACK))
    assert board.place_of("c") == 0


def test_a_full_board_has_room_only_for_those_on_it() -> None:
    board = TierBoard()
    for number in range(MOST_HELD):
        assert board.has_room(str(number))
        board.put(str(number), waiting(number))
    assert board.has_room("0") and not board.has_room("more")
    board.remove("0")
    assert board.has_room("more")
