"""Records of the units of a full-duplex engine."""

from parley.core.call_events import CallEvent, ReplyCut, UnitTaken, VoteChanged
from parley.core.units import Tick, Vote
from parley.pipelines.stages.ticks import UnitRecords
from parley.runtime.event_stream import CallEvents


def tick(slot: int, vote: Vote) -> Tick:
    return Tick(slot, slot * 80_000, 0, 0, 1_000, 0, 80, 0, 0, False, vote, 0, "", 0)


async def test_runs_of_the_same_vote_are_one_event_and_a_yield_cuts_the_reply():
    events, seen, written = CallEvents(), list[CallEvent](), list[Tick]()
    events.subscribe(VoteChanged, seen.append)
    events.subscribe(ReplyCut, seen.append)
    UnitRecords(events, written.append)
    votes = [Vote.LISTEN, Vote.LISTEN, Vote.SPEAK, Vote.SPEAK, Vote.YIELD, Vote.LISTEN, Vote.BACKCHANNEL]
    for slot, vote in enumerate(votes):
        events.publish(UnitTaken(slot, tick(slot, vote)))
    assert [each.vote if isinstance(each, VoteChanged) else "cut" for each in seen] == [
        *("listen", "speak", "yield", "cut", "listen", "backchannel"),
    ]
    assert [each.vote for each in written] == votes
