"""Turns of a speech model's caller, from audio that comes at once after a stop of the process."""

import asyncio

import pytest

from parley.models.omni.two_tier.dialogue import UserTurnReady
from parley.models.omni.two_tier.speech_input import SpeechInput, SpeechInputSettings
from parley.processors.duplex.turn_monitor import UNIT_MS, NoTurnMonitor, TurnMonitor
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.duplex_policy import DuplexPolicy
from tests import virtual_time
from tests.fakes.executor import InlineExecutor
from tests.fakes.vad import EnergyVad
from tests.voices import silence, tone


class Steps:
    """Dialogue that counts the turns that were opened."""

    def __init__(self) -> None:
        self.opened = 0

    def on_turn(self, *, is_open: bool) -> None:
        self.opened += is_open

    def on_asked(self, asked: UserTurnReady) -> None: ...

    def on_foreseen(self, text: str | None) -> None: ...

    def on_said(self, text: str) -> None: ...

    def on_dropped(self) -> None: ...

    def on_forgotten(self) -> None: ...


@pytest.mark.parametrize("stop_ms", [1_000, 2_500, 2_900])
def test_a_voice_at_the_beginning_of_a_stop_of_the_process_opens_a_turn(stop_ms: int):
    steps = Steps()
    speech_input = SpeechInput(
        DuplexPolicy(),
        vad=EnergyVad(),
        turn=None,
        executor=InlineExecutor(),
        settings=SpeechInputSettings(),
    )

    async def scenario() -> None:
        monitor = TurnMonitor(
            CallEvents(),
            steps,
            speech_input,
            InlineExecutor(),
            is_needed=lambda: True,
            counts=lambda _act: True,
            set_gain_db=lambda _gain_db: None,
        )
        running = asyncio.create_task(monitor.run())
        late = tone(400) + silence(stop_ms - 400)
        for at in range(0, len(late), 640):
            monitor.hear(late[at : at + 640])
        for _ in range(50):
            await asyncio.sleep(0.02)
            monitor.hear(silence(20))
        running.cancel()
        await asyncio.wait({running})

    virtual_time.run(scenario())
    assert steps.opened == 1
    # Its time is that of the audio, none of which is missing.
    assert 0 <= stop_ms + 1_000 - speech_input.now_ms < UNIT_MS + 20


def test_without_a_monitor_there_is_no_task_that_lasts():
    monitor = NoTurnMonitor()
    monitor.hear(bytes(640))
    virtual_time.run(monitor.run())
