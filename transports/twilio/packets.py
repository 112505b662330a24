"""Audio to a caller: packets of 20 ms on a clock, with marks between them.

Input: audio as it is made, and marks. Output: packets and marks when they are due. A packet leaves
``lead_ms`` before it is to be played. The audio that the other side holds bridges a late loop, and is what a
``clear`` takes back. A burst would be played too, but its progress could not be followed.

A stretch of speech begins when audio comes and no packet is queued; its packets are counted from there, so
nothing drifts. Between stretches the line sends nothing, or comfort noise, one packet at a time and without a
lead: new speech waits for at most one of them. The tones of keys are queued in the same line as speech, in
packets of their own.

Pure: times are passed in, in microseconds of any clock. The queue has no bound: its producer checks
``held_us`` and waits.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from parley.protocols.twilio_media import PACKET_BYTES, PACKET_MS, SILENCE

PACKET_US = PACKET_MS * 1000


class PacketSound(Enum):
    """Kind of sound in a packet."""

    SPEECH = "speech"
    TONE = "tone"
    NOISE = "noise"


@dataclass(frozen=True, slots=True)
class Packet:
    """Audio that leaves now.

    Attributes:
        mu_law: ``PACKET_BYTES`` of audio.
        plays_us: time at which it begins to be played.
        sound: kind of its sound.
    """

    mu_law: bytes
    plays_us: int
    sound: PacketSound = PacketSound.SPEECH

    @property
    def is_speech(self) -> bool:
        """True when the packet carries speech."""
        return self.sound is PacketSound.SPEECH


@dataclass(frozen=True, slots=True)
class Mark:
    """Mark that leaves after the packets before it.

    Attributes:
        name: name of the mark.
        plays_us: time at which the packets before it have been played.
    """

    name: str
    plays_us: int


class PacketLine:
    """Queue of packets and marks to one caller.

    Args:
        lead_ms: time by which a packet of speech leaves before it is played.
        comfort: returns the next packet of noise between stretches; None for no noise.
    """

    def __init__(self, *, lead_ms: int, comfort: Callable[[], bytes] | None = None) -> None:
        self._lead_us = lead_ms * 1000
        self._comfort = comfort
        self._is_noisy = True
        self._waiting: deque[tuple[PacketSound, bytes] | str] = deque()
        self._packets = 0
        # End of the speech so far: less than a packet.
        self._rest = b""
        # Time at which the next packet to leave is played.
        self._next_us = 0

    @property
    def is_noisy(self) -> bool:
        """True when noise is allowed at the moment."""
        return self._is_noisy

    def allow_noise(self, allowed: bool) -> None:
        """Allow or forbid noise between stretches from now on."""
        self._is_noisy = allowed

    @property
    def held_us(self) -> int:
        """Length of the speech and tones that wait to leave."""
        return self._packets * PACKET_US

    @property
    def played_us(self) -> int:
        """Time at which everything that has left will have been played."""
        return self._next_us

    def push(self, mu_law: bytes) -> None:
        """Queue more speech, of any length."""
        data = self._rest + mu_law
        whole = len(data) // PACKET_BYTES * PACKET_BYTES
        self._append(PacketSound.SPEECH, data[:whole])
        self._rest = data[whole:]

    def press(self, mu_law: bytes) -> None:
        """Queue the tones of a key after the speech so far."""
        self.end()
        self._append(PacketSound.TONE, mu_law + SILENCE * (-len(mu_law) % PACKET_BYTES))

    def end(self) -> None:
        """End the reply: a rest of less than a packet is filled up with silence."""
        if self._rest:
            self.push(SILENCE * (PACKET_BYTES - len(self._rest)))

    def mark(self, name: str) -> None:
        """Queue a mark after the speech so far, except a rest of less than a packet."""
        self._waiting.append(name)

    def clear(self, *, plays_on: bool = False) -> list[str]:
        """Drop speech that has not left, and its marks; keys that are being pressed stay.

        Args:
            plays_on: packets that have left are played in any case.

        Returns:
            The names of the dropped marks.
        """
        marks = [each for each in self._waiting if isinstance(each, str)]
        self._waiting = deque(
            each for each in self._waiting if not isinstance(each, str) and each[0] is PacketSound.TONE
        )
        self._packets = len(self._waiting)
        self._rest = b""
        if not plays_on:
            self._next_us = 0
        return marks

    def next_due_us(self) -> int | None:
        """Return the time at which something is due; None while nothing is queued."""
        if self._packets:
            return self._next_us - self._lead_us
        if self._waiting:
            return 0
        return self._next_us if self._comfort is not None and self._is_noisy else None

    def take(self, now_us: int) -> Packet | Mark | None:
        """Return the packet or the mark that leaves now; None when nothing is due."""
        due_us = self.next_due_us()
        if due_us is None or due_us > now_us:
            return None
        if not self._waiting:
            assert self._comfort is not None
            return Packet(self._comfort(), self._passed(now_us), PacketSound.NOISE)
        first = self._waiting.popleft()
        if isinstance(first, str):
            return Mark(first, max(self._next_us, now_us))
        self._packets -= 1
        sound, mu_law = first
        return Packet(mu_law, self._passed(now_us), sound)

    def _append(self, sound: PacketSound, mu_law: bytes) -> None:
        for place in range(0, len(mu_law), PACKET_BYTES):
            self._waiting.append((sound, mu_law[place : place + PACKET_BYTES]))
            self._packets += 1

    def _passed(self, now_us: int) -> int:
        """Count a packet that leaves; return when it is played. A late one is played when it arrives."""
        plays_us = max(self._next_us, now_us)
        self._next_us = plays_us + PACKET_US
        return plays_us
