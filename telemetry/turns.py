"""Record of every turn: its texts, and the moment at which each stage was reached.

Stages report marks; the first report of a mark in a turn counts. Spans are differences of neighbouring marks,
so they add up to the server's share of voice-to-voice by construction. The network's share is measured at the
client against the same wall clock. Marks are wall-clock microseconds because they leave the process.

One ``TurnLog`` belongs to one conversation and runs on its event loop. It keeps the last ``keep`` turns.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field

from parley.audio.audible import AudibleMeter, is_loud_pcm16
from parley.core.call_events import AnswerHeard
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from parley.runtime.event_stream import CallEvents

# Marks in the order in which a turn reaches them.
MARKS = (
    "speech_end",
    "transcript",
    "endpoint",
    "llm_first_token",
    "first_clause",
    "tts_first_audio",
    "playout",
)
# Spans between two marks, named by what the time was spent on.
SPANS = (
    ("stt_final", "speech_end", "transcript"),
    ("endpoint_wait", "transcript", "endpoint"),
    ("llm_first_token", "endpoint", "llm_first_token"),
    ("first_clause", "llm_first_token", "first_clause"),
    ("tts_first_audio", "first_clause", "tts_first_audio"),
    ("playout_queue", "tts_first_audio", "playout"),
)

# The caller's audio is measured in pieces of this length, and when a turn ends: fifty short ones a second
# cost ten times as much.
MEASURED_MS = 500


@dataclass
class TurnRecord:
    """Exchange of two turns: the words of the caller and the bot's answer.

    Attributes:
        turn: 0 for the greeting, then counting.
        user_text: as recognised; empty for a greeting.
        bot_text: as far as it was spoken.
        interrupted: true when the caller cut the answer off.
        marks_us: mark name to wall-clock microseconds.
        endpoint_silence_ms: silence after which the turn was declared over.
        completeness: estimated completeness of the turn; None when there is no estimate.
        masked: a phrase covered the silence before the answer; ``playout`` is that of the phrase.
        answered_ahead: the model received the request before the turn was over, with the same words.
        resumed: the turn is the rest of a reply after an unintended interruption.
    """

    turn: int
    user_text: str = ""
    bot_text: str = ""
    interrupted: bool = False
    marks_us: dict[str, int] = field(default_factory=dict)
    endpoint_silence_ms: int | None = None
    completeness: float | None = None
    masked: bool = False
    answered_ahead: bool = False
    resumed: bool = False

    def spans_ms(self) -> dict[str, float]:
        """Return the milliseconds between neighbouring marks.

        The time before a missing mark goes to the next span.
        """
        spans: dict[str, float] = {}
        for name, start, end in SPANS:
            at_us = self._reached_us(start)
            if at_us is not None and end in self.marks_us:
                spans[name] = round(max(0, self.marks_us[end] - at_us) / 1000, 1)
        return spans

    def _reached_us(self, mark: str) -> int | None:
        """Return the latest moment at which ``mark`` or an earlier one was reached; None without any."""
        earlier = MARKS[: MARKS.index(mark) + 1]
        reached = [self.marks_us[name] for name in earlier if name in self.marks_us]
        return max(reached) if reached else None

    def as_message(self) -> dict[str, object]:
        """Return the record as JSON values, for the client and for files."""
        return {"kind": "turn", **asdict(self), "spans": self.spans_ms()}


class TurnLog:
    """Marks and texts of one conversation.

    Args:
        events: of the call; receive ``AnswerHeard``, with the spans of the turn. A phrase that covers the
            wait is no answer, and one that waited for a tool is left out. None: without a call.
        rate_hz: of the caller's audio.
        keep: number of turns that are kept.
        now_us: wall clock.
        steady_us: monotonic clock.
    """

    def __init__(
        self,
        events: CallEvents | None = None,
        *,
        rate_hz: int = 16_000,
        keep: int = 500,
        now_us: Callable[[], int] | None = None,
        steady_us: Callable[[], int] | None = None,
    ) -> None:
        self._now_us = now_us or (lambda: time.time_ns() // 1000)
        # Decisions use a monotonic clock: the wall clock may be set during a call.
        self._steady_us = steady_us or (lambda: time.monotonic_ns() // 1000)
        self._keep = keep
        self._records: deque[TurnRecord] = deque(maxlen=keep)
        self._undrained: list[TurnRecord] = []
        self._turns = 0
        self._current = TurnRecord(turn=0)
        self._speech_end_us: int | None = None
        # The same meter that evaluates recordings: a packet with half of a final "k" is not loud as a whole.
        self._caller = AudibleMeter(rate_hz)
        # Pieces of the caller's audio since it was last measured, with the two times of their arrival.
        self._unmeasured: list[tuple[bytes, int, int]] = []
        self._unmeasured_bytes = 0
        self._most_unmeasured_bytes = rate_hz * PCM_BYTES_PER_SAMPLE * MEASURED_MS // 1000
        self._transcript_us: int | None = None
        self._active_us = self._steady_us()
        # Since the end of the caller's turn.
        self._tools_called = False
        self._events = events or CallEvents()

    @property
    def finished(self) -> Iterable[TurnRecord]:
        """Finished turns, oldest first."""
        return tuple(self._records)

    @property
    def current(self) -> TurnRecord:
        """The turn that is being answered."""
        return self._current

    @property
    def answered(self) -> TurnRecord | None:
        """The newest spoken turn whose answer has left for the caller; None when there is none.

        ``current`` may be a new one already when a client reports about the one before.
        """
        for record in (self._current, *reversed(self._records)):
            if "playout" in record.marks_us:
                return record if "speech_end" in record.marks_us else None
        return None

    def drain(self) -> list[TurnRecord]:
        """Return the turns that finished since the last drain."""
        drained, self._undrained = self._undrained, []
        return drained

    def mark(self, name: str) -> None:
        """Record that the current turn reached ``name`` now, unless it already had."""
        self._current.marks_us.setdefault(name, self._now_us())

    def heard(self, pcm: bytes) -> None:
        """Process a piece of the caller's audio; record the time when it is audible."""
        self._unmeasured.append((pcm, self._now_us(), self._steady_us()))
        self._unmeasured_bytes += len(pcm)
        if self._unmeasured_bytes >= self._most_unmeasured_bytes:
            self._measure()

    def _measure(self) -> None:
        """Find the last audible sample in the pieces that were not measured yet."""
        pieces, self._unmeasured, self._unmeasured_bytes = self._unmeasured, [], 0
        begin = self._caller.samples_seen
        if not pieces or not self._caller.feed(pcm16_to_float(b"".join(pcm for pcm, _, _ in pieces))):
            return
        last = self._caller.last_audible or 0
        for pcm, now_us, steady_us in pieces:
            begin += len(pcm) // PCM_BYTES_PER_SAMPLE
            if last < begin:
                self._speech_end_us = now_us
                self._active_us = max(self._active_us, steady_us)
                return

    def words_arrived(self) -> None:
        """Record that the final words of the caller's latest speech arrived."""
        self._transcript_us = self._now_us()

    def user_turn_ended(self, *, silence_ms: int, completeness: float | None) -> None:
        """End the previous record and begin one for the caller's turn that is over."""
        self._measure()
        now_us = self._now_us()
        self.close()
        self._turns += 1
        self._tools_called = False
        self._current = TurnRecord(
            turn=self._turns, endpoint_silence_ms=silence_ms, completeness=completeness
        )
        if self._speech_end_us is not None:
            self._current.marks_us["speech_end"] = self._speech_end_us
            if self._transcript_us is not None and self._transcript_us >= self._speech_end_us:
                self._current.marks_us["transcript"] = self._transcript_us
        self._current.marks_us["endpoint"] = now_us

    def masked(self) -> None:
        """Record that a phrase covers the silence before the answer of the current turn."""
        self._current.masked = True

    def tools_called(self) -> None:
        """Record that the answer of the current turn waits for tools."""
        self._tools_called = True

    def answered_ahead(self) -> None:
        """Record that the answer of the current turn was begun before the turn was over."""
        self._current.answered_ahead = True

    def resumed(self) -> None:
        """Record that the current turn is the rest of a reply after an unintended interruption."""
        self._current.resumed = True

    def interruption(self, act: str, **facts: object) -> dict[str, object]:
        """Return a decision about a voice over the bot, as a message for the client.

        Args:
            act: "duck", "restore", "cut" or "resume".
            facts: JSON values that belong to it.
        """
        return {"kind": "barge_in", "act": act, "at_us": self._now_us(), **facts}

    def user_said(self, text: str) -> None:
        """Add the recognised words of the caller to the current turn."""
        self._current.user_text = f"{self._current.user_text} {text}".strip()

    def user_typed(self, text: str) -> None:
        """Begin a turn for typed text, which is complete as it arrives."""
        self.close()
        self._turns += 1
        self._tools_called = False
        self._current = TurnRecord(turn=self._turns, user_text=text)
        self._current.marks_us["endpoint"] = self._now_us()
        self._active_us = self._steady_us()

    def bot_said(self, text: str, *, interrupted: bool) -> None:
        """Add the bot's words to the current turn, as far as they were played."""
        self._current.bot_text = f"{self._current.bot_text} {text}".strip()
        self._current.interrupted = self._current.interrupted or interrupted

    def played(self, pcm: bytes) -> None:
        """Record that a packet of bot audio left for the caller."""
        self._active_us = self._steady_us()
        marks_us = self._current.marks_us
        if "tts_first_audio" in marks_us and "playout" not in marks_us and is_loud_pcm16(pcm):
            marks_us["playout"] = self._now_us()
            if "speech_end" in marks_us and not self._current.masked and not self._tools_called:
                latency_ms = max(0, marks_us["playout"] - marks_us["speech_end"]) // 1000
                self._report_answer(latency_ms)

    def _report_answer(self, latency_ms: int) -> None:
        if self._events.has_subscribers(AnswerHeard):
            spans_ms = tuple(self._current.spans_ms().items())
            self._events.publish(AnswerHeard(self._events.now_ms(), latency_ms, spans_ms))

    def idle_ms(self) -> int:
        """Return the time since either side last made a sound or typed, in milliseconds."""
        self._measure()
        return (self._steady_us() - self._active_us) // 1000

    def close(self) -> None:
        """Finish the current turn; an empty one leaves no record."""
        record = self._current
        if not record.user_text and not record.bot_text:
            return
        self._records.append(record)
        self._current = TurnRecord(turn=self._turns)
        self._undrained = [*self._undrained[1 - self._keep :], record]
