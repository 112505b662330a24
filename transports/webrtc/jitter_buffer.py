"""Jitter buffer for a recogniser: passes the caller's packets on in order and without delay.

aiortc holds back four packets of a caller's audio for a human listener, whose ear needs an even stream. A
recogniser and voice activity count samples, and their arrival times do not matter. So packets in order are
passed on at once, which saves 60 to 80 ms on every turn. The buffer of aiortc has another cost: it waits 16
packets for a lost one and gives back one for each that arrives. The first loss therefore delays the rest of
the call by 240 ms.

A missing packet is awaited only on a line on which packets have overtaken each other. The buffer then waits
for as many newer packets as the late one had let pass, at most ``LONGEST_HOLD``. The number falls by one
after every ``CALM_PACKETS`` in order. Several packets that become due at once leave as one Opus packet of
several frames (RFC 6716, 3.2.5), because the receiver takes one for each that arrives.

aiortc's receiver calls it for every packet, on the loop. It holds no more than ``LONGEST_HOLD`` packets and
those that cannot be joined, and owns no task.
"""

from collections import deque
from dataclasses import dataclass
from itertools import pairwise

from aiortc.jitterbuffer import JitterFrame
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from aiortc.rtp import RtpPacket
from loguru import logger

from parley.transports.pipecat_internals import jitter_buffer_of, payload_of, set_jitter_buffer

LONGEST_HOLD = 4
# Ten seconds of packets of 20 ms.
CALM_PACKETS = 500
# Sequence numbers that differ by more belong to a stream that began anew; the same value as aiortc's.
RESTART = 100
FIRST_DYNAMIC_TYPE = 96
# RFC 6716, 3.1: frame lengths in steps of 2.5 ms by the configuration number: SILK, hybrid, CELT.
_SILK, _HYBRID, _CELT = (4, 8, 16, 24), (4, 8), (1, 2, 4, 8)
# In steps of 2.5 ms: 120 ms.
_LONGEST_PACKET = 48


@dataclass(frozen=True, slots=True)
class _Piece:
    data: bytes
    timestamp: int
    is_opus: bool


class LowDelayJitterBuffer:
    """Replacement of ``aiortc.jitterbuffer.JitterBuffer`` for one stream of audio.

    Attributes:
        hold: number of newer packets that may arrive while a missing one is awaited.
    """

    def __init__(self) -> None:
        self._next: int | None = None
        self._held: dict[int, _Piece] = {}
        self._due: deque[_Piece] = deque()
        # Given up, and recent enough that it may still come.
        self._missed: deque[int] = deque(maxlen=RESTART)
        self._calm = 0
        self.hold = 0

    def add(self, packet: RtpPacket) -> tuple[bool, JitterFrame | None]:
        """Add a packet, which may arrive in any order.

        Returns:
            False, as no picture is ever requested, and the frame that is due now, if any.
        """
        number = packet.sequence_number
        data = payload_of(packet)
        # RFC 3551: G.711 and G.722 have fixed numbers, Opus never has.
        piece = _Piece(data, packet.timestamp, is_opus=packet.payload_type >= FIRST_DYNAMIC_TYPE)
        if self._next is None or RESTART < _ahead(number, self._next) < (1 << 16) - RESTART:
            self._next = number
            self._held.clear()
            self._missed.clear()
        if _ahead(number, self._next) >= 1 << 15:
            self._came_late(number)
        else:
            self._held[number] = piece
            self._next = self._take(self._next)
        return False, self._leave()

    def _came_late(self, number: int) -> None:
        assert self._next is not None
        if number in self._missed:
            self._missed.remove(number)
            self.hold = max(self.hold, min(LONGEST_HOLD, _ahead(self._next, number) - 1))
            self._calm = 0

    def _take(self, following: int) -> int:
        """Move the packets that are in order to those due; return the number that is awaited next."""
        while self._held:
            if following in self._held:
                self._due.append(self._held.pop(following))
                self._calm += 1
            elif len(self._held) <= self.hold:
                break
            else:
                self._missed.append(following)
            following = (following + 1) & 0xFFFF
        if self._calm >= CALM_PACKETS and self.hold:
            self._calm = 0
            self.hold -= 1
        return following

    def _leave(self) -> JitterFrame | None:
        """Return as many of the due packets as fit into one."""
        while self._due and not self._due[0].data:
            self._due.popleft()
        if not self._due:
            return None
        first = self._due.popleft()
        datas = [first.data]
        while self._due and (not first.is_opus or joinable([*datas, self._due[0].data])):
            datas.append(self._due.popleft().data)
        return JitterFrame(
            data=joined(datas) if first.is_opus else b"".join(datas), timestamp=first.timestamp
        )


def install(receiver: RTCRtpReceiver) -> None:
    """Make a receiver of audio use an ``LowDelayJitterBuffer``; a receiver that has one keeps it."""
    current = jitter_buffer_of(receiver)
    if current is None:
        logger.warning(
            "this version of aiortc keeps its jitter buffer elsewhere; callers' audio arrives 60 ms later"
        )
    elif not isinstance(current, LowDelayJitterBuffer):
        set_jitter_buffer(receiver, LowDelayJitterBuffer())


def joinable(packets: list[bytes]) -> bool:
    """Return whether Opus packets can be one: one frame each, of one configuration, 120 ms at most."""
    if not all(packets) or any(packet[0] & 3 for packet in packets):
        return False
    if any(one[0] != other[0] for one, other in pairwise(packets)):
        return False
    return len(packets) * _frame_length(packets[0][0] >> 3) <= _LONGEST_PACKET


def joined(packets: list[bytes]) -> bytes:
    """Return one Opus packet with the frames of ``packets``, which are ``joinable`` or a single one.

    RFC 6716, 3.2.5: code 3 with variable lengths; the last frame takes the remaining bytes.
    """
    if len(packets) == 1:
        return packets[0]
    frames = [packet[1:] for packet in packets]
    lengths = b"".join(_length(len(frame)) for frame in frames[:-1])
    return bytes((packets[0][0] | 3, 0x80 | len(frames))) + lengths + b"".join(frames)


def _length(count: int) -> bytes:
    if count < 252:
        return bytes((count,))
    first = 252 + (count & 3)
    return bytes((first, (count - first) // 4))


def _frame_length(configuration: int) -> int:
    """Return the length of one frame, in steps of 2.5 ms."""
    if configuration < 12:
        return _SILK[configuration % 4]
    if configuration < 16:
        return _HYBRID[configuration % 2]
    return _CELT[configuration % 4]


def _ahead(number: int, other: int) -> int:
    return (number - other) & 0xFFFF
