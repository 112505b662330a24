"""Track how much of each reply reached the caller: the pure core of playout.

``HeardClock`` receives the output of the voice (audio by its length, words by their place in it), the audio
that the transport's output takes and the packets that leave. It answers with marks: milliseconds played, the
last word heard, the text heard and the rest. It decides nothing about interruptions; it only keeps the
records. Positions are microseconds of a reply's own audio, ``at_us`` is the session clock; nothing here reads
one. Durations and not samples are used, because the voice and the output may run at different rates.

Two accounts meet here. Before the output a reply's audio is queued: words are placed on it. After the output
it is written, in the order in which it will be played, and packets take it from there. Audio that the output
drops is never written or never played, so it is never counted, whatever the reason.

Audio that left counts as heard: packets on their way and in the client's jitter buffer are played even after
an interruption, unless the client empties its buffer (``flushes``) or is gone. The client's delay therefore
determines *when* audio was heard, and how much is lost with the client; not how much of an interrupted reply
was heard.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace

from pydantic import Field

from parley.core.bounded_dict import BoundedDict
from parley.core.strict_model import StrictModel
from parley.core.timeline import HeardMark, HeardReply, HeardSoFar, HeardSource
from parley.processors.playout.word_times import WordTiming, estimate_word_times, spoken_us

# A reply of which only this much was not played is whole: one packet, and voices end in silence.
_WHOLE_US = 20_000
# Length of a word whose end is not known yet: from one word to the next, flite takes 270 ms in the median.
_WORD_US = 270_000
# The output takes the next chunk when the last one has moved; written audio that has not moved for so long is
# gone.
_STALE_US = 500_000
# History of the position at the ear: a peer that vanished is noticed a few seconds late, ten on a telephone
# line.
_HISTORY_US = 12_000_000
# Largest distance at which a word is searched for after the one before it.
_SEARCH_CHARS = 200
_CLAUSE_MARKS = ".,;:?!…。？！，"
_CLOSERS = "\"')]}”’»*_"
# Number of replies that are over and still available.
_KEPT = 16


class PlayoutSettings(StrictModel):
    """Conditions under which audio counts as heard.

    Attributes:
        word_due_percent: the share of a word that is played when it counts as heard.
        client_delay_ms: from the moment a packet leaves to the moment its sound leaves the loudspeaker: one
            way through the network, and the client's jitter buffer (20-60 ms in a browser). Holds until the
            transport knows better (``ClientDelayReported``).
        flushes: the client empties its buffer when it is told of an interruption (a telephone provider).
        keeps_waiting_ms: what was written is told as played or is cleared, although nothing moves for so long
            (a connection that stalls, and is over when it does for longer).
        drain_ms: how long a conversation that ends in good order waits for the last packets.
    """

    word_due_percent: int = Field(default=50, ge=0, le=100)
    client_delay_ms: int = Field(default=60, ge=0, le=5_000)
    flushes: bool = False
    keeps_waiting_ms: int = Field(default=0, ge=0, le=600_000)
    drain_ms: int = Field(default=300, ge=0, le=5_000)


@dataclass(slots=True)
class _Word:
    """A word of a reply.

    Attributes:
        text: the word as the conversation records it.
        joiner: the white space between the word before and this one.
        start_us, end_us: place in the reply's audio; None for an end that is not known yet.
        estimated: True when the place was estimated.
    """

    text: str
    joiner: str
    start_us: int
    end_us: int | None
    estimated: bool


@dataclass(slots=True)
class _Segment:
    """Text that was announced and whose words have no times."""

    text: str
    start_us: int


@dataclass(slots=True)
class _Reply:
    """The record of one reply."""

    reply_id: str
    in_context: bool
    words: list[_Word] = field(default_factory=list)
    segment: _Segment | None = None
    written_text: str = ""
    announced_text: str = ""
    queued_us: int = 0
    closed: bool = False
    # A text was announced and no audio of it came; nothing was said after it.
    failed: bool = False
    # Words of the text are missing before the word of this number: the voice failed.
    breaks: set[int] = field(default_factory=set)
    # State after the output.
    parts: int = 0
    waiting_us: int = 0
    sent_us: int = 0
    # Position at the ear before the oldest entry of ``flight``; then entries of (when it left, position).
    settled_us: int = 0
    flight: deque[tuple[int, int]] = field(default_factory=deque)
    first_sent_us: int | None = None
    last_sent_us: int | None = None
    # Once played up to here, there may be progress to report.
    alarm_us: int = 0
    reported: int = 0

    @property
    def is_played_out(self) -> bool:
        return self.closed and not self.parts and not self.waiting_us


@dataclass(slots=True)
class _Piece:
    """Written audio that waits to leave."""

    reply: _Reply | None
    position_us: int
    left_us: int


class HeardClock:
    """Records of the replies of one call.

    Args:
        settings: conditions under which audio counts as heard; None for the defaults.
    """

    def __init__(self, settings: PlayoutSettings | None = None) -> None:
        self._settings = settings or PlayoutSettings()
        self._delay_us = self._settings.client_delay_ms * 1000
        self._delay_reported = False
        # Part of the due audio that a client that flushes has not played; None: its delay.
        self._unplayed_us: int | None = None
        self._open: dict[str, _Reply] = {}
        self._over: BoundedDict[str, tuple[HeardReply, _Reply]] = BoundedDict(_KEPT)
        # Claims of a client about replies that were not over yet: microseconds of their audio.
        self._claimed: dict[str, int] = {}
        # Replies whose first audio has left since the last ``take_started``.
        self._started: list[str] = []
        self._pieces: deque[_Piece] = deque()
        # The reply that the output is writing now, and its position.
        self._current: _Reply | None = None
        self._current_us = 0
        # Played before it was reported as written: an output that plays while it writes.
        self._ahead_us = 0
        self._moved_us = 0

    @property
    def delay_ms(self) -> int:
        """Delay from the moment a packet leaves to the moment it is heard."""
        return self._delay_us // 1000

    def set_delay_ms(self, delay_ms: int) -> None:
        self._delay_us = max(0, delay_ms) * 1000
        self._delay_reported = True

    def set_unplayed_ms(self, unplayed_ms: int) -> None:
        """Set the due audio that a client that flushes has not played when the command arrives there.

        The command takes as long to arrive as the audio does: that part of the delay is not lost.
        """
        self._unplayed_us = max(0, unplayed_ms) * 1000

    @property
    def is_drained(self) -> bool:
        """True when no audio waits to leave."""
        return not self._pieces

    # Before the output: audio and words of replies.

    def open(self, reply_id: str, *, in_context: bool = True) -> None:
        """Begin a reply; repeated calls have no effect."""
        if reply_id not in self._open:
            self._over.pop(reply_id, None)
            self._open[reply_id] = _Reply(reply_id, in_context)

    @property
    def open_ids(self) -> frozenset[str]:
        """Replies that have begun and are not over."""
        return frozenset(self._open)

    def is_open(self, reply_id: str) -> bool:
        """Return whether the reply has begun and is not over."""
        return reply_id in self._open

    def written_by_model(self, reply_id: str, text: str) -> None:
        """Add the next piece of the reply that the model wrote."""
        reply = self._open.get(reply_id)
        if reply is not None:
            reply.written_text += text

    def announced(self, reply_id: str, text: str) -> None:
        """Record that the voice is about to say a text, from the end of the audio so far."""
        reply = self._open.get(reply_id)
        if reply is not None:
            reply.announced_text = f"{reply.announced_text} {text}".strip()
            reply.segment = _Segment(text, reply.queued_us)

    def broke_off(self, reply_id: str) -> None:
        """Record that the voice failed in its last announced text; the rest of it is not said any more."""
        reply = self._open.get(reply_id)
        if reply is None:
            return
        segment, reply.segment = reply.segment, None
        if segment is not None and reply.queued_us > segment.start_us:
            # At the usual speed, up to where the audio ends.
            end_us = max(reply.queued_us, segment.start_us + spoken_us(segment.text))
            for placed in estimate_word_times(segment.text, segment.start_us, end_us):
                if placed.end_us <= reply.queued_us:
                    _append(reply, placed, placed.joiner)
        reply.breaks.add(len(reply.words))

    def goes_on(self, reply_id: str, text: str) -> None:
        """Add a piece of the text that is being said, with its white space, at no known place in its audio.

        A model that speaks writes its text a little before or after the audio of it, so all of the text is
        spread over all of the audio.
        """
        reply = self._open.get(reply_id)
        if reply is not None:
            reply.announced_text += text
            segment = reply.segment or _Segment("", _words_end_us(reply))
            reply.segment = _Segment(segment.text + text, segment.start_us)
            reply.alarm_us = 0

    def part_begins(self, reply_id: str) -> int:
        """Begin a stretch of the reply's audio; return its place in the reply."""
        reply = self._open[reply_id]
        reply.parts += 1
        return reply.queued_us

    def queued(self, reply_id: str, duration_us: int) -> None:
        """Record audio of the reply on its way to the output."""
        reply = self._open.get(reply_id)
        if reply is not None:
            reply.queued_us += duration_us

    def queued_us(self, reply_id: str) -> int:
        """Return the length of the reply's audio so far."""
        reply = self._open.get(reply_id)
        return reply.queued_us if reply is not None else 0

    def word(
        self,
        reply_id: str,
        text: str,
        *,
        start_us: int,
        end_us: int | None,
        estimated: bool = False,
        joiner: str = " ",
    ) -> None:
        """Add a word with its place; ``end_us`` is None when it lasts until the next one."""
        reply = self._open.get(reply_id)
        if reply is None:
            return
        reply.segment = None
        last = reply.words[-1] if reply.words else None
        if last is not None:
            start_us = max(start_us, last.start_us)
            if last.end_us is None:
                last.end_us = start_us
        reply.words.append(_Word(text, joiner, start_us, end_us, estimated))
        if _ends_clause(text):
            reply.alarm_us = 0

    def spoken(self, reply_id: str, text: str, *, joiner: str = " ") -> None:
        """Add text without times that was said since its announcement, or since the last word."""
        reply = self._open.get(reply_id)
        if reply is None:
            return
        start_us = reply.segment.start_us if reply.segment else _words_end_us(reply)
        reply.segment = None
        for number, placed in enumerate(estimate_word_times(text, start_us, max(start_us, reply.queued_us))):
            _append(reply, placed, joiner if number == 0 else placed.joiner)
        reply.alarm_us = 0

    def silent_text(self, reply_id: str, text: str) -> None:
        """Add text that is shown and not said: it counts as heard with the word before it."""
        reply = self._open.get(reply_id)
        if reply is not None:
            at_us = _words_end_us(reply)
            reply.words.append(_Word(text, " ", at_us, at_us, estimated=True))

    def close(self, reply_id: str) -> None:
        """Record that all of the reply's audio and words are known."""
        reply = self._open.get(reply_id)
        if reply is not None:
            reply.closed = True
            segment, reply.segment = reply.segment, None
            if segment is not None and reply.queued_us > segment.start_us:
                reply.segment = segment
                self.spoken(reply_id, segment.text)
            elif segment is not None:
                reply.failed = True
            if reply.words and reply.words[-1].end_us is None:
                reply.words[-1].end_us = max(reply.queued_us, reply.words[-1].start_us)

    # After the output: written and played audio.

    def speaks(self, reply_id: str | None, start_us: int = 0) -> None:
        """Assign the audio written from now on to a reply, from this place on; None for any other audio."""
        self._current = self._open.get(reply_id) if reply_id is not None else None
        self._current_us = start_us
        self._ahead_us = 0

    def part_over(self, reply_id: str) -> None:
        """Record that a stretch of the reply's audio has been written to its end."""
        reply = self._open.get(reply_id)
        if reply is not None and reply.parts:
            reply.parts -= 1

    def parts_over(self, *, but: Collection[str] = ()) -> None:
        """Record that the output has nothing more: every stretch is over, except those of some replies."""
        for reply in self._open.values():
            if reply.reply_id not in but:
                reply.parts = 0

    def written(self, duration_us: int, at_us: int) -> bool:
        """Record audio that the output has taken for its current reply; return True as for ``played``."""
        stale_us = max(_STALE_US, self._settings.keeps_waiting_ms * 1000)
        if self._pieces and at_us - self._moved_us > stale_us:
            self._forget_waiting()
        piece = _Piece(self._current, self._current_us, duration_us)
        self._current_us += duration_us
        if piece.reply is not None:
            piece.reply.waiting_us += duration_us
        if not self._pieces:
            self._moved_us = at_us
        self._pieces.append(piece)
        ahead_us, self._ahead_us = self._ahead_us, 0
        return self.played(ahead_us, at_us) if ahead_us else False

    def played(self, duration_us: int, at_us: int) -> bool:
        """Record a packet that left; return True when ``progress`` or ``finished`` may have news."""
        self._moved_us = at_us
        news = False
        left_us = duration_us
        while left_us and self._pieces:
            piece = self._pieces[0]
            step_us = min(left_us, piece.left_us)
            left_us -= step_us
            piece.position_us += step_us
            piece.left_us -= step_us
            if piece.reply is not None:
                news |= self._sent(piece.reply, piece.position_us, step_us, at_us)
            if not piece.left_us:
                self._pieces.popleft()
        self._ahead_us += left_us
        return news

    def interrupted(
        self, at_us: int, *, keep: Collection[str] = (), still_playing: bool = False
    ) -> list[HeardReply]:
        """Drop all audio that was not sent; return the final state of every reply that was not over.

        Args:
            at_us: when the interruption happened.
            keep: replies that may not be interrupted.
            still_playing: True when the audio that waits in the output belongs to such a reply and still
                plays.
        """
        if self._ahead_us and self._current is not None and self._current.reply_id in self._open:
            # It was playing audio that it had not yet reported as written.
            self.written(self._ahead_us, at_us)
        self._ahead_us = 0
        if not still_playing:
            self._forget_waiting()
        played_us = at_us if self._unplayed_us is None else at_us + self._delay_us - self._unplayed_us
        heard_of: Callable[[_Reply], int] = (
            (lambda reply: self._reached_us(reply, played_us)) if self._settings.flushes else _all_sent
        )
        return self._cut(at_us, heard_of, keep)

    def hung_up(self, at_us: int, *, quiet_us: int = 0) -> list[HeardReply]:
        """Record that the client is gone; return the final state of every open reply.

        Audio on its way is lost.

        Args:
            at_us: when it was noticed.
            quiet_us: how long it has given no sign of life.
        """
        self._forget_waiting()
        self._ahead_us = 0
        # Audio that left while the client was already gone is lost like the audio on its way.
        seen_us = at_us - quiet_us
        return self._cut(at_us, lambda reply: self._reached_us(reply, seen_us), ())

    def finished(self, at_us: int) -> list[HeardReply]:
        """Return replies played to their end since the last call; one without audio ends now."""
        done = [reply for reply in self._open.values() if reply.is_played_out]
        return [self._finish(reply, reply.sent_us, at_us) for reply in done]

    def finish(self, reply_id: str, at_us: int) -> HeardReply | None:
        """End the reply at its present position."""
        reply = self._open.get(reply_id)
        return self._finish(reply, reply.sent_us, at_us) if reply is not None else None

    def claim(self, reply_id: str, audio_us: int, at_us: int) -> HeardReply | None:
        """Register the client's claim of how much of a reply it played; it has dropped the rest.

        Returns:
            The reply as it was heard, where it is over and the claim changes its record. None for one that
            continues,
            whose end will include the claim, and for one that is not known.
        """
        if reply_id in self._open:
            self._claimed[reply_id] = audio_us
            return None
        known = self._over.get(reply_id)
        if known is None:
            return None
        believed, reply = known
        words = self._words(reply)
        heard = self._as_heard(reply, words, min(audio_us, reply.queued_us), at_us, is_claimed=True)
        heard = replace(heard, ended_us=believed.ended_us)
        self._over[reply_id] = heard, reply
        return heard if heard != believed else None

    # Queries.

    def heard_text(self, reply_id: str) -> str | None:
        """Return the words of a reply that were heard, as recorded; None for one that is not over."""
        known = self._over.get(reply_id)
        return None if known is None else known[0].text

    def take_started(self) -> list[str]:
        """Return the replies whose first audio has left since the last call."""
        if not self._started:
            return self._started
        started, self._started = self._started, []
        return started

    def progress(self, at_us: int) -> list[HeardSoFar]:
        """Return the replies of which another clause has left since the last call."""
        news = []
        for reply in self._open.values():
            words = self._words(reply)
            heard = self._count(reply, words, reply.sent_us)
            clause = next(
                (n for n in range(heard, reply.reported, -1) if _ends_clause(words[n - 1].text)), None
            )
            if clause is not None:
                mark = self._mark(reply, words, heard, reply.sent_us)
                rest = _unheard(reply, words, heard)
                text = _joined(words[:heard])
                news.append(HeardSoFar(reply.reply_id, text, mark, at_us, reply.in_context, rest))
                reply.reported = heard
            ahead = (self._due_us(words, n, reply) for n in _clause_ends(words, heard))
            reply.alarm_us = next(ahead, reply.queued_us)
        return news

    def mark(self, reply_id: str, at_us: int | None = None) -> HeardMark | None:
        """Return how much of a reply was heard; None for one that is not known.

        Args:
            at_us: a moment of the last seconds; None for all that left, which is what will have been heard.
        """
        reply = self._open.get(reply_id)
        if reply is None:
            over = self._over.get(reply_id)
            return over[0].mark if over is not None else None
        heard_us = reply.sent_us if at_us is None else self._reached_us(reply, at_us)
        words = self._words(reply)
        return self._mark(reply, words, self._count(reply, words, heard_us), heard_us)

    def texts(self, reply_id: str, at_us: int | None = None) -> tuple[str, str]:
        """Return the text heard and the rest, for a reply that is not over."""
        reply = self._open[reply_id]
        words = self._words(reply)
        heard = self._count(reply, words, reply.sent_us if at_us is None else self._reached_us(reply, at_us))
        return _joined(words[:heard]), _unheard(reply, words, heard)

    # Internal records.

    def _sent(self, reply: _Reply, position_us: int, step_us: int, at_us: int) -> bool:
        reply.waiting_us -= step_us
        reply.sent_us = position_us
        reply.last_sent_us = at_us
        if reply.first_sent_us is None:
            reply.first_sent_us = at_us
            self._started.append(reply.reply_id)
        flight = reply.flight
        flight.append((at_us, position_us))
        while flight[0][0] < at_us - _HISTORY_US:
            reply.settled_us = flight.popleft()[1]
        return position_us >= reply.alarm_us or reply.is_played_out

    def _reached_us(self, reply: _Reply, at_us: int) -> int:
        """Return the position that had reached the ear."""
        position_us = reply.settled_us
        left_us = at_us - self._delay_us
        for sent_us, sent_to_us in reply.flight:
            if sent_us > left_us:
                break
            # The newest packet may be playing.
            position_us = min(sent_to_us, position_us + left_us - sent_us)
        return position_us

    def _forget_waiting(self) -> None:
        self._pieces.clear()
        for reply in self._open.values():
            reply.waiting_us = 0

    def _cut(self, at_us: int, heard_of: Callable[[_Reply], int], keep: Collection[str]) -> list[HeardReply]:
        cut = [reply for reply in self._open.values() if reply.reply_id not in keep]
        return [self._finish(reply, heard_of(reply), at_us) for reply in cut]

    def _finish(self, reply: _Reply, heard_us: int, at_us: int) -> HeardReply:
        words = self._words(reply)
        claimed_us = self._claimed.pop(reply.reply_id, None)
        if claimed_us is not None:
            heard_us = min(claimed_us, reply.queued_us)
        over = self._as_heard(reply, words, heard_us, at_us, is_claimed=claimed_us is not None)
        del self._open[reply.reply_id]
        if reply.reply_id in self._started:
            self._started.remove(reply.reply_id)
        self._over[reply.reply_id] = over, reply
        return over

    def _as_heard(
        self, reply: _Reply, words: list[_Word], heard_us: int, at_us: int, *, is_claimed: bool
    ) -> HeardReply:
        heard = self._count(reply, words, heard_us)
        # A model may write what no voice says, a mark or a reference: nothing is missing then.
        is_whole = heard == len(words) and reply.closed and not reply.failed and not reply.breaks
        unheard = "" if is_whole else _unheard(reply, words, heard)
        mark = self._mark(reply, words, heard, heard_us)
        if is_claimed:
            mark = replace(mark, source=HeardSource.CLIENT_REPORT)
        return HeardReply(
            reply_id=reply.reply_id,
            text=_joined(words[:heard]),
            unheard=unheard,
            truncated=not is_whole,
            mark=mark,
            in_context=reply.in_context,
            started_us=None if reply.first_sent_us is None else reply.first_sent_us + self._delay_us,
            ended_us=at_us if reply.last_sent_us is None else reply.last_sent_us + self._delay_us,
            delay_ms=self.delay_ms,
            delay_reported=self._delay_reported,
        )

    def _words(self, reply: _Reply) -> list[_Word]:
        """Return all words, including those of text that is being said."""
        segment = reply.segment
        if segment is None:
            return reply.words
        end_us = max(reply.queued_us, segment.start_us + spoken_us(segment.text))
        placed = estimate_word_times(segment.text, segment.start_us, end_us)
        return [*reply.words, *(_Word(w.text, w.joiner, w.start_us, w.end_us, True) for w in placed)]

    def _count(self, reply: _Reply, words: list[_Word], heard_us: int) -> int:
        """Return the number of words that were heard up to a position."""
        if heard_us and reply.closed and heard_us >= reply.queued_us - _WHOLE_US:
            return len(words)
        count = 0
        while heard_us and count < len(words) and self._due_us(words, count, reply) <= heard_us:
            count += 1
        return count

    def _due_us(self, words: list[_Word], index: int, reply: _Reply) -> int:
        word = words[index]
        end_us = word.end_us
        if end_us is None:
            end_us = word.start_us + _WORD_US
        return word.start_us + (end_us - word.start_us) * self._settings.word_due_percent // 100

    def _mark(self, reply: _Reply, words: list[_Word], heard: int, heard_us: int) -> HeardMark:
        # The place of the cut depends on the words on both sides of it.
        estimated = any(word.estimated for word in words[max(0, heard - 1) : heard + 1])
        source = HeardSource.ESTIMATED if estimated else HeardSource.PLAYOUT_CLOCK
        # The output fills its last chunk with silence.
        return HeardMark(reply.reply_id, min(heard_us, reply.queued_us) // 1000, heard - 1, source)


def _all_sent(reply: _Reply) -> int:
    return reply.sent_us


def _append(reply: _Reply, placed: WordTiming, joiner: str) -> None:
    reply.words.append(_Word(placed.text, joiner, placed.start_us, placed.end_us, estimated=True))


def _words_end_us(reply: _Reply) -> int:
    if not reply.words:
        return 0
    last = reply.words[-1]
    return last.start_us if last.end_us is None else last.end_us


def _joined(words: list[_Word]) -> str:
    return "".join(word.joiner + word.text for word in words).strip()


def _ends_clause(text: str) -> bool:
    return text.rstrip(_CLOSERS)[-1:] in tuple(_CLAUSE_MARKS)


def _clause_ends(words: list[_Word], start: int) -> Iterator[int]:
    return (n for n in range(start, len(words)) if _ends_clause(words[n].text))


def _unheard(reply: _Reply, words: list[_Word], heard: int) -> str:
    """Return the known text of the reply after the words that were heard."""
    whole = reply.written_text or reply.announced_text
    if not whole:
        return _joined(words[heard:])
    position, lost = 0, list[str]()
    for number, word in enumerate(words[:heard]):
        # The words are those of the text, except those that a voice drops, spells in another way, or fails to
        # say.
        within = len(whole) if number in reply.breaks else position + len(word.text) + _SEARCH_CHARS
        found = whole.find(word.text, position, within)
        if found >= 0:
            if number in reply.breaks:
                lost.append(whole[position:found].strip())
            position = found + len(word.text)
    rest = whole[position:].strip()
    if not any(char.isalnum() for char in rest):
        rest = _joined(words[heard:])
    return " ".join(part for part in (*lost, rest) if part)
