"""Free slots of workers that several gateways share, and choice of the one for a request. Pure.

A gateway reaches the workers that it reports. A slot that one of them fills is taken for all. The order of
preference is: the worker that the conversation's handle names; the one with the smallest share of its slots
in use. Ties are decided by name. Caches that no handle names are not known here.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class FreeSlots:
    """Worker with a free slot.

    Attributes:
        worker: its name.
        incarnation: of its process.
        slots: concurrent conversations.
        taken: number of its conversations.
        free_bytes: memory for further ones.
    """

    worker: str
    incarnation: str
    slots: int
    taken: int
    free_bytes: float

    @property
    def is_open(self) -> bool:
        """True while a slot is free."""
        return self.taken < self.slots


@dataclass(frozen=True, slots=True)
class ReportedSlots:
    """Report of one gateway about one worker, with what all conversations there use.

    Attributes:
        member: gateway that reported it.
        worker: its name.
        incarnation: of its process.
        slots: concurrent conversations.
        kv_bytes: memory for their caches; None: without a limit.
        taken: number of its conversations.
        used_bytes: memory that they may come to need.
    """

    member: str
    worker: str
    incarnation: str
    slots: int
    kv_bytes: int | None
    taken: int
    used_bytes: int


class SharedSlots:
    """Free slots of one line.

    Args:
        reports: of all gateways.
    """

    def __init__(self, reports: Iterable[ReportedSlots]) -> None:
        self._workers: dict[tuple[str, str], FreeSlots] = {}
        self._reached: dict[str, list[FreeSlots]] = {}
        for each in reports:
            free_bytes = math.inf if each.kv_bytes is None else each.kv_bytes - each.used_bytes
            known = self._workers.setdefault(
                (each.worker, each.incarnation),
                FreeSlots(each.worker, each.incarnation, each.slots, each.taken, free_bytes),
            )
            # Gateways may be configured differently during an upgrade: the smaller limit holds for all.
            known.slots = min(known.slots, each.slots)
            known.free_bytes = min(known.free_bytes, free_bytes)
            self._reached.setdefault(each.member, []).append(known)

    @property
    def members(self) -> list[str]:
        """Gateways that reach a worker with a free slot."""
        return [member for member in self._reached if self.is_open(member)]

    def is_open(self, member: str) -> bool:
        """Return whether a gateway reaches a worker with a free slot."""
        return any(each.is_open for each in self._reached.get(member, ()))

    def choose(self, member: str, kv_bytes: int, handle: tuple[str, str] | None) -> FreeSlots | None:
        """Return the worker for a request; None when none has the memory.

        Args:
            member: gateway of the request.
            kv_bytes: memory that the conversation may come to need.
            handle: worker and process with its cache.
        """
        fits = [
            each for each in self._reached.get(member, ()) if each.is_open and kv_bytes <= each.free_bytes
        ]
        for each in fits:
            if (each.worker, each.incarnation) == handle:
                return each
        return min(fits, key=lambda each: (each.taken / each.slots, each.worker), default=None)

    @staticmethod
    def take(worker: FreeSlots, kv_bytes: int) -> None:
        """Fill a slot of a worker."""
        worker.taken += 1
        worker.free_bytes -= kv_bytes
