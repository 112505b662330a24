"""What a caller is sent: packets of 20 ms on a clock, with marks between them.

In: audio as it is made, and marks. Out: packets and marks when they are due. A packet leaves ``lead_ms``
before it is to be played: what the other side holds bridges a late loop, and is what a ``clear`` takes
back. A burst would be played too, and nobody could say how far it has come.

A stretch of speech begins when audio comes and nothing waits; its packets are counted from there, so
nothing drifts. Between stretches there is nothing, or comfort noise, one packet at a time and without a
lead: speech that comes has to wait for no more than one of them. The tones of keys stand in the same line as
speech, in packets of their own.

Pure: times come in, in microseconds on any clock. Full: whoever fills it asks ``held_us`` and waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from protocols.twilio_media import PACKET_BYTES, PACKET_MS, SILENCE

PACKET_US = PACKET_MS * 1000


class Sound(Enum):
    """What a packet is of."""

    SPEECH = "speech"
    TONE = "tone"
    NOISE = "noise"


@dataclass(frozen=True, slots=True)
class Packet:
    """Audio that leaves now.

    Attributes:
        mu_law: ``PACKET_BYTES`` of it.
        plays_us: when it begins to be played.
        sound: what it is of.
    """

    mu_law: bytes
    plays_us: int
    sound: Sound = Sound.SPEECH

    @property
    def is_speech(self) -> bool:
        """Whether somebody says it."""
        return self.sound is Sound.SPEECH


@dataclass(frozen=True, slots=True)
class Mark:
    """Leaves behind the packets before it.

    Attributes:
        name: of the mark.
        plays_us: when what is before it has been played.
    """

    name: str
    plays_us: int


class PacketLine:
    """One caller.

    Args:
        lead_ms: a packet of speech leaves so long before it is played.
        comfort: the next packet of noise between stretches; None for none.
    """

    def __init__(self, *, lead_ms: int, comfort: Callable[[], bytes] | None = None) -> None:
        self._lead_us = lead_ms * 1000
        self._comfort = comfort
        self._is_noisy = True
        self._waiting: deque[tuple[Sound, bytes] | str] = deque()
        self._packets = 0
        # Less than a packet.
        self._rest = b""
        # When what leaves next is played.
        self._next_us = 0

    @property
    def is_noisy(self) -> bool:
        """Return whether there may be noise at the moment."""
        return self._is_noisy

    def allow_noise(self, allowed: bool) -> None:
        """Play noise between stretches from now on, or none."""
        self._is_noisy = allowed

    @property
    def held_us(self) -> int:
        """Speech and tones that wait to leave."""
        return self._packets * PACKET_US

    @property
    def played_us(self) -> int:
        """When all that has left will have been played."""
        return self._next_us

    def push(self, mu_law: bytes) -> None:
        """More speech, of any length."""
        data = self._rest + mu_law
        whole = len(data) // PACKET_BYTES * PACKET_BYTES
        self._append(Sound.SPEECH, data[:whole])
        self._rest = data[whole:]

    def press(self, mu_law: bytes) -> None:
        """The tones of a key, behind what was said so far."""
        self.end()
        self._append(Sound.TONE, mu_law + SILENCE * (-len(mu_law) % PACKET_BYTES))

    def end(self) -> None:
        """What follows is another reply: less than a packet leaves as one, with silence behind it."""
        if self._rest:
            self.push(SILENCE * (PACKET_BYTES - len(self._rest)))

    def mark(self, name: str) -> None:
        """Behind what was pushed so far, but for less than a packet."""
        self._waiting.append(name)

    def clear(self, *, plays_on: bool = False) -> list[str]:
        """Forget speech that has not left, and its marks; keys that are being pressed stay.

        Args:
            plays_on: what has left is played all the same.

        Returns:
            The marks.
        """
        marks = [each for each in self._waiting if isinstance(each, str)]
        self._waiting = deque(
            each for each in self._waiting if not isinstance(each, str) and each[0] is Sound.TONE
        )
        self._packets = len(self._waiting)
        self._rest = b""
        if not plays_on:
            self._next_us = 0
        return marks

    def next_due_us(self) -> int | None:
        """When there is something to take; None while nothing waits."""
        if self._packets:
            return self._next_us - self._lead_us
        if self._waiting:
            return 0
        return self._next_us if self._comfort is not None and self._is_noisy else None

    def take(self, now_us: int) -> Packet | Mark | None:
        """What leaves now."""
        due_us = self.next_due_us()
        if due_us is None or due_us > now_us:
            return None
        if not self._waiting:
            assert self._comfort is not None
            return Packet(self._comfort(), self._passed(now_us), Sound.NOISE)
        first = self._waiting.popleft()
        if isinstance(first, str):
            return Mark(first, max(self._next_us, now_us))
        self._packets -= 1
        sound, mu_law = first
        return Packet(mu_law, self._passed(now_us), sound)

    def _append(self, sound: Sound, mu_law: bytes) -> None:
        for place in range(0, len(mu_law), PACKET_BYTES):
            self._waiting.append((sound, mu_law[place : place + PACKET_BYTES]))
            self._packets += 1

    def _passed(self, now_us: int) -> int:
        """A packet leaves; returns when it is played. One that is late is played when it is there."""
        plays_us = max(self._next_us, now_us)
        self._next_us = plays_us + PACKET_US
        return plays_us
