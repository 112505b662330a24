"""What a client sends, in real time: speech goes on at once as long as it is not far ahead of the clock.

Clients send pieces of 20 ms to a second, or a whole recording at once. Voice activity, the recogniser and the
turns count in both samples and seconds, so what is far ahead of the clock waits here, in order, and with it
what the client wants behind it (the end of a turn). A client that is late is never made up for: its clock
begins anew.

Pure: times come in, in microseconds on any clock. Full: more than ``most_ms`` is refused, and what is held
stays.
"""

from collections import deque
from dataclasses import dataclass

from core.media import PCM_BYTES_PER_SAMPLE
from protocols.surface import Action, Pictures, Refusal

_US_PER_S = 1_000_000
# Of one client: wishes behind what it said, and files of pictures among them.
MOST_WANTS, MOST_PICTURE_BYTES = 512, 16_000_000


@dataclass(frozen=True, slots=True)
class _Piece:
    pcm: bytes
    at_once: bool


class SpeechLine:
    """One caller.

    Args:
        rate_hz: of the PCM.
        ahead_ms: speech that is no further ahead of the clock goes on at once.
        most_ms: so much may wait.
        piece_ms: what waits goes on in pieces of this length.
    """

    def __init__(
        self, rate_hz: int, *, ahead_ms: int = 200, most_ms: int = 60_000, piece_ms: int = 20
    ) -> None:
        self._rate_hz = rate_hz
        self._ahead_us = ahead_ms * 1000
        self._most_us = most_ms * 1000
        self._piece_bytes = rate_hz * piece_ms // 1000 * PCM_BYTES_PER_SAMPLE
        self._waiting: deque[_Piece | Action] = deque()
        self._held_us = 0
        # What waits that is no speech.
        self._wants = self._picture_bytes = 0
        # The clock's time at which all that went on would have been said.
        self._said_us = 0

    @property
    def held_ms(self) -> int:
        """Speech that waits."""
        return self._held_us // 1000

    def set_ahead_ms(self, ahead_ms: int) -> None:
        """From here on."""
        self._ahead_us = ahead_ms * 1000

    def speak(self, pcm: bytes, *, at_once: bool = False) -> None:
        """More of it.

        Args:
            pcm: of any length.
            at_once: it was said before; the clock is not waited for.

        Raises:
            Refusal: too much waits.
        """
        self.check_room(self._long_us(pcm) // 1000)
        self._held_us += self._long_us(pcm)
        for start in range(0, len(pcm), self._piece_bytes):
            self._waiting.append(_Piece(pcm[start : start + self._piece_bytes], at_once))

    def check_room(self, long_ms: float) -> None:
        """Raises Refusal when so much more may not wait."""
        if self._held_us + long_ms * 1000 > self._most_us:
            raise Refusal(
                f"{self.held_ms // 1000} s of speech wait to be heard: send it as it is said",
                code="too_fast",
                param="audio",
            )

    def want(self, action: Action) -> None:
        """Behind what was said.

        Raises:
            Refusal: too much of it waits.
        """
        picture_bytes = _picture_bytes(action)
        if self._wants >= MOST_WANTS or self._picture_bytes + picture_bytes > MOST_PICTURE_BYTES:
            raise Refusal("too much waits behind what was said: send it as it is said", code="too_fast")
        self._wants += 1
        self._picture_bytes += picture_bytes
        self._waiting.append(action)

    def clear(self) -> None:
        """Forget what waits."""
        self._waiting.clear()
        self._held_us = self._wants = self._picture_bytes = 0

    def next_due_us(self) -> int | None:
        """When there is something to take; None while nothing waits."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        if not isinstance(first, _Piece) or first.at_once:
            return 0
        return self._said_us - self._ahead_us

    def take(self, now_us: int) -> bytes | Action | None:
        """What goes on now: speech in one piece, or a wish; None: it is too early, or nothing waits."""
        due_us = self.next_due_us()
        if due_us is None or due_us > now_us:
            return None
        first = self._waiting[0]
        if not isinstance(first, _Piece):
            self._waiting.popleft()
            self._wants -= 1
            self._picture_bytes -= _picture_bytes(first)
            return first
        self._said_us = max(self._said_us, now_us)
        if first.at_once:
            # One by one: whoever listens tells the state of the voice once for each piece.
            self._waiting.popleft()
            self._held_us -= self._long_us(first.pcm)
            return first.pcm
        taken = []
        while self._waiting and isinstance(piece := self._waiting[0], _Piece):
            if piece.at_once or self._said_us - self._ahead_us > now_us:
                break
            self._waiting.popleft()
            taken.append(piece.pcm)
            long_us = self._long_us(piece.pcm)
            self._held_us -= long_us
            self._said_us += long_us
        return b"".join(taken)

    def _long_us(self, pcm: bytes) -> int:
        return len(pcm) // PCM_BYTES_PER_SAMPLE * _US_PER_S // self._rate_hz


def _picture_bytes(action: Action) -> int:
    return sum(map(len, action.files)) if isinstance(action, Pictures) else 0
