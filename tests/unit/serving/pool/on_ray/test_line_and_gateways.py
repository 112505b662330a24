"""Line with the schedulers of its gateways, in virtual time: messages are lost and the line restarts."""

import random
from collections import Counter
from itertools import count

import pytest

from parley.serving.pool.on_ray.line import RayLine
from parley.serving.pool.on_ray.messages import Exchange, HeldSession, HostReport
from parley.serving.pool.shared.scheduler import LineChanges, SharedScheduler
from parley.serving.scheduler.clock_offset import ClockOffset
from parley.serving.scheduler.eta import Eta
from parley.serving.scheduler.scheduler import SchedulerSettings
from parley.serving.scheduler.types import (
    Effect,
    Lease,
    LeaseGranted,
    LeaseLost,
    Task,
    WorkerCapacity,
    WorkerRequest,
    WorkerState,
)

LEASE_MS = 3_000
STEP_MS = 50
# Slots of each worker.
SLOTS = {"v": 1, "w": 2}


class World:
    """Workers, a line that may be restarted, and the times of both."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.now_ms = 100_000
        self.lives = {name: 1 for name in SLOTS}
        self.line = RayLine("0", LEASE_MS, kind="omni", is_restored=False, now_ms=self.now_ms)
        self.gateways = [Gateway(self, f"g{number}") for number in range(3)]

    @property
    def clock_us(self) -> int:
        return 1_800_000_000_000_000 + self.now_ms * 1_000

    def restart(self) -> None:
        self.line = RayLine(str(self.now_ms), LEASE_MS, kind="omni", is_restored=True, now_ms=self.now_ms)

    def tick(self) -> None:
        self.now_ms += STEP_MS
        due_ms = self.line.next_due_ms()
        if due_ms is not None and due_ms <= self.now_ms:
            self.line.on_time(self.now_ms, self.clock_us)
        if self.line.has_unclaimed:
            for name in SLOTS:
                held = tuple(
                    HeldSession(lease.session_id, lease.epoch)
                    for gateway in self.gateways
                    for lease in gateway.held.values()
                    if (lease.worker, lease.incarnation) == (name, str(self.lives[name]))
                )
                report = HostReport(
                    name, "", 1, "", None, 1, None, "", str(self.lives[name]), SLOTS[name], held
                )
                self.line.on_host_report(report, self.now_ms, self.clock_us)

    def check(self) -> None:
        """Judge that no slot of a process is held twice."""
        held = Counter(
            (lease.worker, lease.incarnation) for each in self.gateways for lease in each.held.values()
        )
        for (worker, _), number in held.items():
            assert number <= SLOTS[worker], f"granted twice at {self.now_ms}: {held}"


class Gateway:
    """Scheduler of a gateway, which does with the line what ``RayLineSync`` does."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.scheduler = SharedScheduler(SchedulerSettings(), eta=Eta(), now_ms=lambda: world.now_ms)
        self.life, self.read, self._numbers = "", 0, count(1)
        self._offset = ClockOffset()
        self.held: dict[str, Lease] = {}
        self.asked = self.served = 0

    def step(self, *, is_answer_lost: bool = False) -> None:
        changes = self.scheduler.take_changes(self._offset.us) if self.life else LineChanges()
        sent = Exchange(self.name, next(self._numbers), self.life, bool(self.life), self.read, 1_000, changes)
        answer = self.world.line.exchange(sent, self.world.now_ms, self.world.clock_us)
        if is_answer_lost:
            self.scheduler.put_back(changes)
            return
        now_us = self.world.now_ms * 1_000
        self._offset.add(asked_us=now_us, theirs_us=answer.clock_us, answered_us=now_us + 1_000)
        if not answer.is_joined:
            self.life, self.read = answer.life, 0
            self.scheduler.put_back(changes)
            self.scheduler.mark_all()
            return
        numbers = [row.granted for row in answer.granted] + [row.number for row in answer.refused]
        self.read = max(numbers, default=self.read)
        self.scheduler.on_reached(True)
        self.scheduler.on_numbers(answer.numbers)
        self.take(self.scheduler.on_granted(answer.granted, self.world.now_ms))
        self.take(self.scheduler.on_refused({row.ticket: row.reason for row in answer.refused}))

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, LeaseGranted):
                self.held[effect.ticket_id] = effect.lease
            elif isinstance(effect, LeaseLost):
                del self.held[effect.ticket_id]

    def reach(self, worker: str) -> None:
        offer = WorkerCapacity(worker, str(self.world.lives[worker]), SLOTS[worker])
        self.take(self.scheduler.worker_up(offer, self.world.now_ms))

    def act(self) -> None:
        """Do something that a pool does."""
        draw, now_ms = self.world.draw, self.world.now_ms
        match draw.randrange(6):
            case 0 | 1 if self.scheduler.waiting < 12:
                ticket = f"{self.name}.{self.asked}"
                self.asked += 1
                self.scheduler.ask(WorkerRequest(ticket, f"session {ticket}", Task.OMNI_DUPLEX), now_ms)
            case 2 | 3 if self.held:
                ticket = draw.choice(sorted(self.held))
                del self.held[ticket]
                self.served += 1
                self.take(self.scheduler.release(ticket, now_ms, well=True))
            case 4 if self.held and draw.random() < 0.2:
                ticket = draw.choice(sorted(self.held))
                self.take(self.scheduler.move(ticket, now_ms))
            case 5:
                worker = draw.choice(sorted(SLOTS))
                if draw.random() < 0.15:
                    self.take(self.scheduler.worker_stands(worker, WorkerState.SUSPECT, now_ms))
                else:
                    self.reach(worker)


@pytest.mark.parametrize("seed", range(6))
def test_no_slot_is_granted_twice_and_every_request_is_served(seed: int) -> None:
    world = World(seed)
    for number in range(1_200):
        world.tick()
        for gateway in world.gateways:
            gateway.act()
            if world.draw.random() < 0.7:
                gateway.step(is_answer_lost=world.draw.random() < 0.1)
            world.check()
        if number % 200 == 150:
            world.restart()
        if number % 150 == 90:
            worker = world.draw.choice(sorted(SLOTS))
            world.lives[worker] += 1
    # Quiet: everything that waits is served, by workers that all reach.
    for _ in range(400):
        world.tick()
        for gateway in world.gateways:
            for worker in SLOTS:
                gateway.reach(worker)
            for ticket in sorted(gateway.held):
                del gateway.held[ticket]
                gateway.served += 1
                gateway.take(gateway.scheduler.release(ticket, world.now_ms, well=True))
            gateway.take(gateway.scheduler.due(world.now_ms))
            gateway.step()
            world.check()
    assert [each.scheduler.waiting for each in world.gateways] == [0, 0, 0]
    assert all(each.served == each.asked > 20 for each in world.gateways)
