"""Parts of a reply that an interruption holds back, for every state and event."""

from itertools import product

import pytest

from parley.processors.duplex.forced_listening import TRANSITIONS, Cue, ForcedListening, Hold

INTERRUPTIONS = (Cue.INTERRUPTED, Cue.INTERRUPTED_SPEAKING)
UNIT_HELD, NEXT_HELD = (Hold.UNIT, Hold.BOTH), (Hold.NEXT, Hold.BOTH)


@pytest.mark.parametrize(("hold", "cue"), product(Hold, Cue))
def test_every_pair_holds_back_what_it_says(hold: Hold, cue: Cue) -> None:
    after = TRANSITIONS[hold, cue]
    if cue in INTERRUPTIONS:
        # Audio on its way is dropped, and a bot that speaks has to yield the next unit as well.
        assert after in UNIT_HELD
        assert (after in NEXT_HELD) is (hold in NEXT_HELD or cue is Cue.INTERRUPTED_SPEAKING)
    elif cue is Cue.SPOKE:
        # An engine that takes dropped audio for spoken has to listen.
        assert after is (Hold.BOTH if hold in UNIT_HELD else hold)
    else:
        stays = hold in NEXT_HELD and cue is Cue.UNIT_BEGUN_OVER_CALLER
        assert after is (Hold.NEXT if stays else Hold.NOTHING)


def test_an_engine_listens_for_a_unit_and_as_long_as_the_caller_speaks() -> None:
    listening = ForcedListening()
    assert not listening.begin_unit()
    listening.follow_caller(speaks=True)
    listening.interrupt(engine_speaks=True)
    assert [listening.begin_unit() for _ in range(3)] == [True] * 3
    listening.follow_caller(speaks=False)
    assert [listening.begin_unit() for _ in range(2)] == [True, False]


def test_what_was_on_its_way_is_dropped_once_and_has_the_engine_listen() -> None:
    listening = ForcedListening()
    listening.begin_unit()
    listening.interrupt(engine_speaks=False)
    assert listening.drops()
    assert listening.begin_unit()
    assert not listening.drops() and not listening.begin_unit()
