"""Hold of a call: requests of its client, messages to it, and frames for the pipeline. On virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from pipecat.frames.frames import Frame, InterruptionFrame
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.call_events import CallEvent, GoodbyeDue, HoldBegan, HoldEnded, WaitBegan, WaitEnded
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.stages.hold import BURST, ENGINE_MARGIN_MS, hold_of
from parley.processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.turn_taking.hold import HOLD_MOST_S
from tests import virtual_time

ON, OFF = {"is_on": True}, {"is_on": False}


class HeldCall:
    """A call whose client can hold it.

    Attributes:
        hold: of the call.
        frames: that went into the pipeline.
        events: of holds and waits.
    """

    def __init__(self, call: Call, *, engine_pause_ms: int | None) -> None:
        self.hold = hold_of(call, engine_pause_ms=engine_pause_ms)
        self.call, self.frames, self.events = call, list[Frame](), list[CallEvent]()
        for kind in (HoldBegan, HoldEnded, WaitBegan, WaitEnded):
            call.events.subscribe(kind, self.events.append)

    async def keep(self, frame: Frame) -> None:
        self.frames.append(frame)

    async def takes(self, *reports: object) -> None:
        """Let the client send something, and the call act on it."""
        for report in reports:
            self.hold.take(report)
        await asyncio.sleep(0.1)

    @property
    def sent(self) -> list[bool]:
        return [each.data["is_on"] for each in self.frames if isinstance(each, RTVIServerMessageFrame)]

    @property
    def ends(self) -> list[str]:
        return [each.by for each in self.events if isinstance(each, HoldEnded)]


def play(
    folder: Path,
    scenario: Callable[[HeldCall], Coroutine[Any, Any, None]],
    *,
    row: str = "webrtc",
    engine_pause_ms: int | None = None,
) -> None:
    async def whole() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
        opened = Conversations(store, compactor=Compactor())
        try:
            async with opened.open() as conversation:
                held = HeldCall(
                    Call(conversation, row, LiveCall(conversation.clock)), engine_pause_ms=engine_pause_ms
                )
                held.call.live.input.open(held.keep)
                works = [held.call.live.input.run(), *(start() for start in held.hold.background)]
                async with asyncio.TaskGroup() as tasks:
                    running = [tasks.create_task(each) for each in works]
                    await scenario(held)
                    for task in running:
                        task.cancel()
        finally:
            await opened.close()
            await store.close()

    virtual_time.run(whole())


def test_the_client_is_sent_each_change_and_a_repeated_request_is_none(tmp_path: Path):
    async def scenario(held: HeldCall) -> None:
        await held.takes(OFF, ON, ON)
        assert held.sent == [True] and held.hold.is_on()
        assert [type(each) for each in held.frames].count(InterruptionFrame) == 1
        await held.takes(OFF, OFF)
        assert held.sent == [True, False] and not held.hold.is_on()
        kinds = [type(each) for each in held.events]
        assert kinds == [HoldBegan, WaitBegan, WaitEnded, HoldEnded]

    play(tmp_path, scenario)


@pytest.mark.parametrize("report", [None, "on", {}, {"is_on": 1}, {"is_on": True, "for_s": 3}])
def test_a_message_that_is_no_request_is_dropped(tmp_path: Path, report: object):
    async def scenario(held: HeldCall) -> None:
        await held.takes(report)
        assert held.frames == [] and held.events == []

    play(tmp_path, scenario)


def test_a_flood_of_requests_is_dropped(tmp_path: Path):
    async def scenario(held: HeldCall) -> None:
        for _ in range(BURST):
            await held.takes(ON, OFF)
        assert len(held.ends) <= BURST // 2 + 1

    play(tmp_path, scenario)


def test_a_speech_model_is_paused_for_less_than_its_own_limit(tmp_path: Path):
    async def scenario(held: HeldCall) -> None:
        await held.takes(ON)
        assert any(isinstance(each, DuplexPauseFrame) for each in held.frames)
        await asyncio.sleep((60_000 - ENGINE_MARGIN_MS) / 1_000)
        assert held.ends == ["time"] and isinstance(held.frames[-2], DuplexResumeFrame)
        await held.takes(ON)
        assert held.sent == [True, False]

    play(tmp_path, scenario, engine_pause_ms=60_000)


def test_a_farewell_ends_the_hold_and_permits_no_other(tmp_path: Path):
    async def scenario(held: HeldCall) -> None:
        await held.takes(ON)
        held.call.events.publish(GoodbyeDue(held.call.events.now_ms()))
        await held.takes(ON)
        assert held.ends == ["goodbye"] and not held.hold.is_on()
        await asyncio.sleep(HOLD_MOST_S + 1)
        assert held.ends == ["goodbye"]

    play(tmp_path, scenario)


def test_a_call_whose_client_speaks_no_rtvi_has_no_stages_of_it(tmp_path: Path):
    async def scenario(held: HeldCall) -> None:
        assert (held.hold.head, held.hold.dialogue, held.hold.background) == ([], [], [])

    play(tmp_path, scenario, row="twilio")
