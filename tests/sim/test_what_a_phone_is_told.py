"""Events that a pipeline reports to the control of a phone call, and the control's requests."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from parley.core.call_events import TurnEnded, TurnStarted
from parley.models.omni import OmniHost
from tests.sim.call import RunningCall, silence, simulate, voice

STEP_S = 0.05


@pytest.mark.parametrize("omni", [None, ()], ids=["cascade", "two_tier"])
def test_turns_are_told_and_whether_an_answer_is_owed(
    tmp_path: Path, omni: Sequence[OmniHost] | None
) -> None:
    started: list[TurnStarted] = []
    turns: list[str] = []
    answering: list[bool] = []

    async def asks(running: RunningCall) -> None:
        running.call.events.subscribe(TurnStarted, started.append)
        running.call.events.subscribe(TurnEnded, lambda event: turns.append(event.text))
        for _ in range(int(6 / STEP_S)):
            answering.append(running.call.live.floor.is_answering())
            await asyncio.sleep(STEP_S)

    call = simulate([silence(1_000), voice(1_000), silence(4_000)], tmp_path, omni=omni, concurrently=asks)
    assert len(started) == 1 and [text for text in turns if text] == [call.turns[0].user_text]
    [(start_ms, end_ms)] = call.bot_spans_ms()
    middle = int((start_ms + end_ms) / 2 / 1_000 / STEP_S)
    assert answering[middle] and not any(answering[: int(1 / STEP_S)]) and not answering[-1]
