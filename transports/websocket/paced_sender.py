"""Pacing of a client's speech in real time: it goes on at once as long as it is not far ahead of the clock.

Clients send pieces of 20 ms to a second, or a whole recording at once. Voice activity, the recogniser and the
turn logic count in both samples and seconds. So speech that is far ahead of the clock waits here, in order,
together with the client's actions that follow it (the end of a turn). A late client is not compensated for:
its clock begins anew.

A client's audio waits undecoded: what it costs to decode is spent at the pace of speech, however much of it a
client sends at once.

Pure: times are passed in, in microseconds of any clock. When it is full, more than ``most_ms`` is refused,
and the queued speech stays.
"""

from collections import deque
from dataclasses import dataclass

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.protocols.client_protocol import Action, Pictures, ProtocolError
from parley.transports.websocket.codecs import Coded

_US_PER_S = 1_000_000
# Longest audio that is decoded in one piece, on the event loop: up to 3 ms of work.
MOST_DECODED_US = 200_000
# Bounds of one client: actions queued after its speech, and bytes of the picture files among them.
MOST_WANTS, MOST_PICTURE_BYTES = 512, 16_000_000


@dataclass(frozen=True, slots=True)
class _Piece:
    audio: bytes | Coded
    length_us: int
    at_once: bool


class SpeechLine:
    """Queue of one caller's speech and actions.

    Args:
        rate_hz: rate of the PCM.
        ahead_ms: speech that is no further ahead of the clock goes on at once.
        most_ms: longest speech that may wait.
        piece_ms: length of the pieces in which queued speech goes on.
    """

    def __init__(
        self, rate_hz: int, *, ahead_ms: int = 200, most_ms: int = 60_000, piece_ms: int = 20
    ) -> None:
        self._rate_hz = rate_hz
        self._ahead_us = ahead_ms * 1000
        self._most_us = most_ms * 1000
        self._piece_ms = piece_ms
        self._piece_bytes = rate_hz * piece_ms // 1000 * PCM_BYTES_PER_SAMPLE
        self._waiting: deque[_Piece | Action] = deque()
        self._held_us = 0
        # Queued actions, and the bytes of their pictures.
        self._wants = self._picture_bytes = 0
        # The clock's time at which all the speech that went on would have been said.
        self._said_us = 0

    @property
    def held_ms(self) -> int:
        """Length of the speech that waits."""
        return self._held_us // 1000

    def set_ahead_ms(self, ahead_ms: int) -> None:
        """Set how far speech may be ahead of the clock from here on."""
        self._ahead_us = ahead_ms * 1000

    def speak(self, audio: bytes | Coded, *, at_once: bool = False) -> None:
        """Queue speech.

        Args:
            audio: PCM, or a client's audio, of any length.
            at_once: it was said before, and goes on without waiting for the clock.

        Raises:
            ProtocolError: too much waits.
        """
        self.check_room((audio.length_us if isinstance(audio, Coded) else self._length_us(audio)) // 1000)
        if isinstance(audio, Coded):
            pieces = [_Piece(piece, piece.length_us, at_once) for piece in audio.pieces(self._piece_ms)]
        else:
            step = self._piece_bytes
            parts = (audio[start : start + step] for start in range(0, len(audio), step))
            pieces = [_Piece(part, self._length_us(part), at_once) for part in parts]
        self._held_us += sum(piece.length_us for piece in pieces)
        self._waiting.extend(pieces)

    def check_room(self, long_ms: float) -> None:
        """Raise ProtocolError when this much more speech may not wait."""
        if self._held_us + long_ms * 1000 > self._most_us:
            raise ProtocolError(
                f"{self.held_ms // 1000} s of speech are waiting: send it in real time",
                code="too_fast",
                param="audio",
            )

    def want(self, action: Action) -> None:
        """Queue an action after the speech so far.

        Raises:
            ProtocolError: too many actions wait.
        """
        picture_bytes = _picture_bytes(action)
        if self._wants >= MOST_WANTS or self._picture_bytes + picture_bytes > MOST_PICTURE_BYTES:
            raise ProtocolError("too much speech is waiting: send it in real time", code="too_fast")
        self._wants += 1
        self._picture_bytes += picture_bytes
        self._waiting.append(action)

    def clear(self) -> None:
        """Drop everything queued."""
        self._waiting.clear()
        self._held_us = self._wants = self._picture_bytes = 0

    def next_due_us(self) -> int | None:
        """Return the time at which something is due; None while nothing is queued."""
        if not self._waiting:
            return None
        first = self._waiting[0]
        if not isinstance(first, _Piece) or first.at_once:
            return 0
        return self._said_us - self._ahead_us

    def take(self, now_us: int) -> bytes | Coded | Action | None:
        """Return what goes on now, speech in one piece or an action; None when nothing is due."""
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
            # One by one: the listener reports the state of the voice once for each piece.
            self._waiting.popleft()
            self._held_us -= first.length_us
            return first.audio
        taken: bytes | Coded | None = None
        taken_us = 0
        while self._waiting and isinstance(piece := self._waiting[0], _Piece):
            if piece.at_once or self._said_us - self._ahead_us > now_us:
                break
            if isinstance(piece.audio, Coded) and piece.audio.is_slow and taken_us >= MOST_DECODED_US:
                break
            joined = piece.audio if taken is None else _joined(taken, piece.audio)
            if joined is None:
                break
            self._waiting.popleft()
            taken = joined
            taken_us += piece.length_us
            self._held_us -= piece.length_us
            self._said_us += piece.length_us
        return taken

    def _length_us(self, pcm: bytes) -> int:
        return len(pcm) // PCM_BYTES_PER_SAMPLE * _US_PER_S // self._rate_hz


def _joined(earlier: bytes | Coded, later: bytes | Coded) -> bytes | Coded | None:
    """Return two pieces as one; None when they are not of one stream."""
    if isinstance(earlier, bytes) and isinstance(later, bytes):
        return earlier + later
    if isinstance(earlier, Coded) and isinstance(later, Coded) and earlier.stream is later.stream:
        return earlier.followed_by(later)
    return None


def _picture_bytes(action: Action) -> int:
    return sum(map(len, action.files)) if isinstance(action, Pictures) else 0
