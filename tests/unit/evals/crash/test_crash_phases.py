"""Moments of a conversation, on virtual time."""

import asyncio
import itertools
import random
from collections import Counter

import pytest

from parley.core.errors import PeerError
from parley.evals.crash.phases import OF_A_CALL, TYPED, Phase, Progress, draw
from tests.virtual_time import run


@pytest.mark.parametrize("voice", [False, True])
def test_every_phase_is_drawn_as_often_as_every_other(voice):
    phases = (*TYPED, *OF_A_CALL) if voice else TYPED
    drawn = itertools.islice(draw(random.Random(3), voice=voice), 10 * len(phases))
    assert Counter(drawn) == dict.fromkeys(phases, 10)


def test_a_moment_lies_anywhere_in_its_phase():
    async def scenario() -> list[float]:
        loop, chance = asyncio.get_running_loop(), random.Random(1)
        progress = Progress()
        progress.begin()

        async def moment_s() -> float:
            await progress.moment(chance)
            return loop.time()

        moments = []
        for _ in range(41):
            progress.expect(Phase.TOOL)
            moment = asyncio.create_task(moment_s())
            await asyncio.sleep(0.3)
            began_s = loop.time()
            progress.enter(Phase.TOOL)
            await asyncio.sleep(0.2)
            progress.enter(Phase.RESULT)
            moments.append(await moment - began_s)
        return moments

    first, *others = run(scenario())
    # Its length is not known yet.
    assert first == pytest.approx(0, abs=0.001)
    assert all(0 <= after_s <= 0.201 for after_s in others)
    assert min(others) < 0.05
    assert max(others) > 0.15


def test_a_conversation_that_does_not_come_to_its_moment_says_so():
    async def scenario() -> None:
        progress = Progress()
        progress.begin()
        progress.expect(Phase.TOOL)
        progress.enter(Phase.SENDING)
        await progress.moment(random.Random(1))

    with pytest.raises(PeerError, match="while a tool runs"):
        run(scenario())


def test_what_is_said_of_a_dead_conversation_counts_for_nothing():
    async def scenario() -> None:
        progress = Progress()
        progress.begin()
        progress.enter(Phase.TOOL)
        progress.end()
        progress.enter(Phase.RESULT)
        assert progress.phase is Phase.TOOL
        progress.begin()
        assert progress.phase is Phase.BETWEEN

    run(scenario())
