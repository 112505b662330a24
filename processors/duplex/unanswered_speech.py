"""Caller's speech that a realtime service has not transcribed, for the recogniser that takes over.

Input: the caller's audio and voice marks as frames, and what the service reports of turns. Output: the frames
from the beginning of the oldest voice whose words are not in the session, or the audio of the last half
second. The service's transcript of a turn settles its voice, so that words are neither lost nor doubled:
words are in the session by exactly one of the two ways. A voice that the service has answered without a
transcript, and one that it did not take for speech, is forgotten after ``FORGOTTEN_MS``. At most ``KEPT_MS``
of audio are kept; the beginning of a longer speech is lost. Owns no task, reads no clock.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import ServiceSpoke, TurnEnded, TurnTranscribed
from parley.processors.duplex.caller_turns import FORGOTTEN_MS
from parley.processors.perception.unsettled_audio import BEFORE_MS, KEPT_S
from parley.runtime.event_stream import CallEvents

KEPT_MS = KEPT_S * 1000
# Audio of before a voice that is kept: a voice is detected within this time after it began.
ONSET_MS = 500


@dataclass(slots=True)
class _Speech:
    """Voices of one turn.

    Attributes:
        start: number of its first frame.
        last_start: number of the first frame of its newest voice.
        ended_ms: when that voice ended; None while it goes on.
        is_answered: the service has begun a reply since the turn was over.
    """

    start: int
    last_start: int
    ended_ms: int | None = None
    is_answered: bool = False


class UnansweredSpeech:
    """Frames of the caller's speech since the last turn that a service has transcribed.

    Args:
        events: events of the call, as long as the service has it.
    """

    def __init__(self, events: CallEvents) -> None:
        self._now_ms: Callable[[], int] = events.now_ms
        # With the length of each frame; voice marks have none.
        self._frames: deque[tuple[Frame, int]] = deque()
        self._first = 0
        self._kept_ms = 0
        # Speech of the turn that is open, and of turns that are over without a transcript so far.
        self._open: _Speech | None = None
        self._over: deque[_Speech] = deque()
        events.subscribe(TurnEnded, lambda _event: self._end_turn())
        events.subscribe(TurnTranscribed, lambda _event: self._settle())
        events.subscribe(ServiceSpoke, lambda _event: self._note_answer())

    def take(self, frame: Frame) -> bool:
        """Take a frame as it comes; return whether it is one of the caller's, which are kept."""
        if isinstance(frame, InputAudioRawFrame):
            self._append(frame, 1000 * frame.num_frames // frame.sample_rate)
        elif isinstance(frame, VADUserStartedSpeakingFrame):
            self._begin_voice(frame)
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            if self._open is not None:
                self._open.ended_ms = self._now_ms()
            self._append(frame, 0)
        else:
            return False
        self._trim()
        return True

    @property
    def in_voice(self) -> bool:
        """True while the caller speaks."""
        return self._open is not None and self._open.ended_ms is None

    @property
    def is_empty(self) -> bool:
        """True when all speech is in the session."""
        return self._start() is None

    def frames(self) -> list[Frame]:
        """Return the frames since the beginning of the oldest speech.

        Where there is none, it is the newest audio: a voice may have begun that is not noticed yet.
        """
        start = self._start()
        if start is None:
            newest = list(self._frames)[self._number_before(ONSET_MS) - self._first :]
            return [frame for frame, _ in newest if isinstance(frame, InputAudioRawFrame)]
        return [frame for frame, _ in list(self._frames)[max(0, start - self._first) :]]

    def _begin_voice(self, frame: VADUserStartedSpeakingFrame) -> None:
        now_ms = self._now_ms()
        start = self._number_before(round(1000 * frame.start_secs) + BEFORE_MS)
        if self._open is not None and self._is_old(self._open, now_ms):
            # The service did not take it for speech.
            self._open = None
        if self._open is None:
            self._open = _Speech(start, start)
        else:
            self._open.last_start, self._open.ended_ms = start, None
        self._append(frame, 0)

    def _end_turn(self) -> None:
        speech, self._open = self._open, None
        if speech is None:
            return
        if speech.ended_ms is None and speech.last_start > speech.start:
            # The voice that goes on belongs to the next turn.
            self._open = _Speech(speech.last_start, speech.last_start)
            speech = _Speech(speech.start, speech.start, self._now_ms())
        elif speech.ended_ms is None:
            # The service was quicker than the detection of silence here.
            speech.ended_ms = self._now_ms()
        self._over.append(speech)

    def _settle(self) -> None:
        if self._over:
            self._over.popleft()
        elif not self.in_voice:
            # A service may send the words before it reports the end of their turn.
            self._open = None

    def _note_answer(self) -> None:
        """Note that the service answers: a turn without a transcript for long after it had no words."""
        for each in self._over:
            each.is_answered = True

    def _is_old(self, speech: _Speech, now_ms: int) -> bool:
        return speech.ended_ms is not None and now_ms - speech.ended_ms > FORGOTTEN_MS

    def _start(self) -> int | None:
        now_ms = self._now_ms()
        while self._over and self._over[0].is_answered and self._is_old(self._over[0], now_ms):
            self._over.popleft()
        if self._over:
            return self._over[0].start
        if self._open is None or self._is_old(self._open, now_ms):
            return None
        return self._open.start

    def _append(self, frame: Frame, length_ms: int) -> None:
        self._frames.append((frame, length_ms))
        self._kept_ms += length_ms

    def _number_before(self, ms: int) -> int:
        """Return the number of the frame that came ``ms`` of audio ago, or of the oldest one."""
        number = self._first + len(self._frames)
        for _, length_ms in reversed(self._frames):
            if ms <= 0:
                break
            number -= 1
            ms -= length_ms
        return number

    def _trim(self) -> None:
        start = self._start()
        while self._frames:
            length_ms = self._frames[0][1]
            is_needed = start is not None and self._first >= start
            least_ms = KEPT_MS if is_needed else ONSET_MS
            if start is not None and not is_needed:
                # Frames of before the speech.
                least_ms = 0
            if self._kept_ms - length_ms < least_ms:
                return
            self._frames.popleft()
            self._first += 1
            self._kept_ms -= length_ms
