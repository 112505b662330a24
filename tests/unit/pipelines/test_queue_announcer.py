"""Announcements to a caller who waits for a worker."""

import asyncio
from typing import Any

from pipecat.frames.frames import Frame, TTSSpeakFrame

from parley.core.call_events import WaitBegan, WaitEnded
from parley.pipelines.queue_announcer import QueueAnnouncer
from parley.runtime.event_stream import CallEvents
from parley.serving.pool.pool import AssignmentRefused
from parley.serving.scheduler.types import QueuePlace, RefusalReason, RequestRefused, Task
from tests import virtual_time

PHRASE, AGAIN_S = "You are number {position}.", 30.0


class Told:
    """Stand-in for a worker of Pipecat's that records its input."""

    def __init__(self) -> None:
        self.positions: list[tuple[float, int]] = []
        self.said: list[tuple[float, str]] = []

    async def queue(self, frame: Frame) -> None:
        now_s = round(asyncio.get_running_loop().time() - self.began_s, 1)
        if isinstance(frame, TTSSpeakFrame):
            self.said.append((now_s, frame.text))
        else:
            data: dict[str, Any] = frame.data  # type: ignore[attr-defined]
            self.positions.append((now_s, data["position"]))

    began_s = 0.0


def place(position: int) -> QueuePlace:
    return QueuePlace("t", "s", Task.AUDIO_DUPLEX, position, None, 0)


def play(
    *news: tuple[float, QueuePlace | AssignmentRefused | None], until_s: float = 100
) -> tuple[Told, list[bool]]:
    waiting: list[bool] = []

    async def scenario() -> Told:
        events = CallEvents()
        events.subscribe(WaitBegan, lambda _event: waiting.append(True))
        events.subscribe(WaitEnded, lambda _event: waiting.append(False))
        received, queue = Told(), QueueAnnouncer(PHRASE, AGAIN_S, events)
        received.began_s = asyncio.get_running_loop().time()
        task = asyncio.create_task(queue.run(received))  # type: ignore[arg-type]
        at_s = 0.0
        for then_s, each in news:
            await asyncio.sleep(then_s - at_s)
            at_s = then_s
            queue.take(each)
        await asyncio.sleep(until_s - at_s)
        task.cancel()
        await asyncio.wait({task})
        return received

    return virtual_time.run(scenario()), waiting


def test_a_place_is_said_when_it_changes_and_again_while_it_does_not():
    received, waiting = play((1, place(3)), (20, place(2)), (22, place(1)), (90, None))
    assert [text for _, text in received.said] == [PHRASE.format(position=each) for each in (3, 2, 1, 1)]
    # The last step came too soon after the words before.
    assert [at_s for at_s, _ in received.said][:3] == [1, 20, 30] and 60 <= received.said[3][0] <= 61
    assert received.positions[-1] == (90, 0) and waiting == [True, False]


def test_who_is_refused_is_told_why_by_others_and_nothing_after_it():
    refused = AssignmentRefused(RequestRefused("t", RefusalReason.NO_WORKER))
    received, waiting = play((1, place(1)), (25, refused))
    assert received.positions == [(1, 1)] and len(received.said) == 1 and waiting == [True, False]
