"""Jitter buffer for a recogniser: passes the caller's packets on in order and without delay.

aiortc holds back four packets of a caller's audio for a human listener, whose ear needs an even stream. A
recogniser and voice activity count samples, and their arrival times do not matter. So packets in order are
passed on at once, which saves 60 to 80 ms on every turn. The buffer of aiortc has another cost: it waits 16
packets for a lost one and gives back one for each that arrives. The first loss therefore delays the rest of
the call by 240 ms.

A missing packet is awaited only on a line on which packets have overtaken each other. The buffer then waits
for as many newer packets as the late one had let pass, at most ``LONGEST_HOLD``. The number falls by one
after every ``CALM_PACKETS`` in order.

It holds no more than ``LONGEST_HOLD`` packets and owns no task.
"""

from collections import deque
from typing import NamedTuple

from parley.transports.webrtc.rtp import RtpAudio

LONGEST_HOLD = 4
# Ten seconds of packets of 20 ms.
CALM_PACKETS = 500
# Sequence numbers that differ by more belong to a stream that began anew; the same value as aiortc's.
RESTART = 100


class DuePacket(NamedTuple):
    """A packet that goes on.

    Attributes:
        lost: number of packets before it that did not come in time.
        packet: the packet.
    """

    lost: int
    packet: RtpAudio


class LowDelayJitterBuffer:
    """Order of one stream's packets.

    Attributes:
        hold: number of newer packets that may arrive while a missing one is awaited.
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._held: dict[int, RtpAudio] = {}
        self._lost = 0
        # Given up, and recent enough that it may still come.
        self._missed: deque[int] = deque(maxlen=RESTART)
        self._calm = 0
        self.hold = 0

    def add(self, packet: RtpAudio) -> list[DuePacket]:
        """Add a packet, which may arrive in any order; return those that are due now, in their order."""
        number = packet.sequence_number
        if self._next is None or RESTART < _ahead(number, self._next) < (1 << 16) - RESTART:
            self._next = number
            self._lost = 0
            self._held.clear()
            self._missed.clear()
        if _ahead(number, self._next) >= 1 << 15:
            self._came_late(number)
            return []
        self._held[number] = packet
        return self._take()

    def _came_late(self, number: int) -> None:
        assert self._next is not None
        if number in self._missed:
            self._missed.remove(number)
            self.hold = max(self.hold, min(LONGEST_HOLD, _ahead(self._next, number) - 1))
            self._calm = 0

    def _take(self) -> list[DuePacket]:
        """Remove the packets that are in order, and give up those that are awaited for too long."""
        assert self._next is not None
        due: list[DuePacket] = []
        while self._held:
            packet = self._held.pop(self._next, None)
            if packet is not None:
                due.append(DuePacket(self._lost, packet))
                self._lost = 0
                self._calm += 1
            elif len(self._held) <= self.hold:
                break
            else:
                self._missed.append(self._next)
                self._lost += 1
            self._next = (self._next + 1) & 0xFFFF
        if self._calm >= CALM_PACKETS and self.hold:
            self._calm = 0
            self.hold -= 1
        return due


def _ahead(number: int, other: int) -> int:
    return (number - other) & 0xFFFF
