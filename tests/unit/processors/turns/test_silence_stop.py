"""End of a turn after a silence, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable

from pipecat.frames.frames import (
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.processors.turns.silence_stop import SilenceStopStrategy
from tests import virtual_time
from tests.fakes.turn_strategy import hold_turn

SILENCE_MS, PIECE_MS = 600, 20


class Turn:
    """A strategy and the times at which it ended the turn."""

    def __init__(self) -> None:
        self.ended_s: list[float] = []
        self.strategy = SilenceStopStrategy(SILENCE_MS)
        self.strategy.add_event_handler("on_user_turn_stopped", self._ended)

    async def _ended(self, *_arguments: object) -> None:
        self.ended_s.append(asyncio.get_running_loop().time())
        await self.strategy.handle_user_turn_stopped()

    async def voice(self, duration_ms: int) -> None:
        await self.strategy.process_frame(VADUserStartedSpeakingFrame(start_secs=0.2))
        await self.audio(duration_ms)
        await self.strategy.process_frame(VADUserStoppedSpeakingFrame(stop_secs=0.2))

    async def audio(self, duration_ms: int, *, is_late: bool = False) -> None:
        for _ in range(duration_ms // PIECE_MS):
            await self.strategy.process_frame(InputAudioRawFrame(bytes(PIECE_MS * 32), 16_000, 1))
            await asyncio.sleep(0 if is_late else PIECE_MS / 1000)


def play(scenario: Callable[[Turn], Awaitable[None]]) -> Turn:
    async def run() -> Turn:
        turn = Turn()
        await hold_turn(turn.strategy, lambda: scenario(turn))
        return turn

    return virtual_time.run(run())


def test_a_turn_ends_after_the_silence_and_not_in_a_shorter_pause():
    async def scenario(turn: Turn) -> None:
        await turn.voice(500)
        await turn.audio(500)
        await turn.voice(500)
        await turn.audio(1_000)

    [ended_s] = play(scenario).ended_s
    assert round((ended_s - virtual_time.START_S) * 1000) == 1_500 + SILENCE_MS


def test_a_turn_ends_after_the_silence_of_a_client_that_sends_no_more_audio():
    async def scenario(turn: Turn) -> None:
        await turn.voice(500)
        await asyncio.sleep(1)

    [ended_s] = play(scenario).ended_s
    assert round((ended_s - virtual_time.START_S) * 1000) == 500 + SILENCE_MS


def test_a_stop_of_the_process_within_a_pause_ends_no_turn():
    async def scenario(turn: Turn) -> None:
        await turn.voice(500)
        await turn.audio(100)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, virtual_time.VirtualLoop)
        loop.stand_still(2.5)
        await turn.audio(200, is_late=True)
        await turn.strategy.process_frame(VADUserStartedSpeakingFrame(start_secs=0.2))
        await turn.audio(2_300, is_late=True)
        assert turn.ended_s == []
        await turn.voice(500)
        await turn.audio(1_000)

    assert len(play(scenario).ended_s) == 1
