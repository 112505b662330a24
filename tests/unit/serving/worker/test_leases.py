"""Ownership of a worker, by its own clock."""

import pytest

from parley.serving.worker.leases import LeaseRefused, Leases, RefusedBecause

LEASE_MS = 6_000


def leases(slots: int = 1) -> Leases:
    return Leases("i1", slots=slots, lease_ms=LEASE_MS)


def refused(held: Leases, session: str, epoch: int = 0, incarnation: str = "i1", now_ms: int = 0) -> str:
    with pytest.raises(LeaseRefused) as error:
        held.take(session, epoch, incarnation, now_ms)
    return error.value.because


def test_one_session_has_it_at_a_time() -> None:
    held = leases()
    held.take("a", 0, "i1", 0)
    assert refused(held, "b") is RefusedBecause.BUSY
    assert refused(held, "a") is RefusedBecause.BUSY
    held.give_back("a")
    assert held.take("b", 0, "i1", 0).session_id == "b"


def test_many_streams_have_a_place_each() -> None:
    held = leases(slots=2)
    held.take("a", 0, "i1", 0)
    held.take("b", 0, "i1", 0)
    assert refused(held, "c") is RefusedBecause.BUSY


def test_a_lease_for_another_process_is_refused() -> None:
    assert refused(leases(), "a", incarnation="i0") is RefusedBecause.OTHER_INCARNATION


def test_it_ends_when_no_one_renews_it_and_is_told_once() -> None:
    held = leases()
    held.take("a", 3, "i1", 0)
    assert held.renew("a", 3, 5_000)
    assert held.next_deadline_ms() == 11_000
    assert held.expired(10_999) == ()
    # Late by a millisecond is late.
    assert not held.renew("a", 3, 11_000)
    [gone] = held.expired(11_000)
    assert (gone.session_id, gone.is_over) == ("a", True)
    assert held.expired(12_000) == () and held.next_deadline_ms() is None
    # Its place is taken until it is clean.
    assert not held.has_room
    held.give_back("a")
    assert held.has_room


def test_only_the_owner_renews_it() -> None:
    held = leases()
    held.take("a", 3, "i1", 0)
    for session, epoch in (("a", 2), ("a", 4), ("b", 3)):
        assert not held.renew(session, epoch, 1)
    assert held.renew("a", 3, 1)


def test_a_newer_owner_of_the_session_takes_it_over_and_the_older_one_never_comes_back() -> None:
    held = leases()
    held.take("a", 3, "i1", 0)
    assert held.supersede("b", 9) is None and held.supersede("a", 3) is None
    older = held.supersede("a", 4)
    assert older is not None and older.is_over and not held.renew("a", 3, 1)
    assert refused(held, "a", 4) is RefusedBecause.BUSY
    held.give_back("a")
    assert refused(held, "a", 3) is RefusedBecause.STALE
    assert held.take("a", 4, "i1", 0).epoch == 4


def test_the_owner_may_come_again() -> None:
    held = leases()
    for _ in range(2):
        held.take("a", 3, "i1", 0)
        held.give_back("a")
