"""Track the bot's replies for ``barge_in``: the current one, the following one, and those that were cut.

Inputs: replies announced, heard, over, cut and resumed. Output: the facts that a decision needs. The module
decides nothing itself.

A reply has the name of the playout clock (``reply_id``). A reply that was cut does not come back, whatever
still arrives for it.
"""

from collections import deque
from dataclasses import dataclass, field

from parley.language.words import plain
from parley.turn_taking.barge_in.settings import BargeInTuning

# Number of cut replies that are remembered: late frames are late by seconds, not by replies.
_CUT_REPLIES = 32


@dataclass(slots=True)
class BotReply:
    """The reply that is announced or heard.

    Attributes:
        reply_id: its name; None while it has none.
        since_ms: when it was announced, or since when it is heard.
        is_heard: True after its first audio has left.
        last_word: index of the last word that was heard, -1 before the first.
        is_rest_heard: True when nothing of it is left to be said.
        says: its words, as far as they are known; an echo contains no others.
    """

    reply_id: str | None
    since_ms: int
    is_heard: bool = False
    last_word: int = -1
    is_rest_heard: bool = False
    says: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class FollowingReply:
    """A reply that was announced while another one is heard.

    Attributes:
        reply_id: its name.
        protected: True when only a stop word ends it.
    """

    reply_id: str
    protected: bool


class ReplyTracker:
    """Tracker of the replies of one call.

    Args:
        settings: thresholds of the barge-in.

    Attributes:
        current: the reply that is announced, heard, or cut and perhaps resumed.
        cut_ms: when the last reply was cut.
        protected_ms: since when the reply is protected.
        false_in_a_row: number of consecutive cuts that were for nothing.
    """

    def __init__(self, settings: BargeInTuning) -> None:
        self._settings = settings
        self.current: BotReply | None = None
        self.cut_ms = self.protected_ms = self.false_in_a_row = 0
        self._following: FollowingReply | None = None
        self._cut_ids: deque[str] = deque(maxlen=_CUT_REPLIES)
        self._asked_ms: int | None = None

    @property
    def current_id(self) -> str | None:
        """The name of the current reply; None without one, and while it has no name."""
        return self.current.reply_id if self.current is not None else None

    @property
    def is_heard(self) -> bool:
        """Return whether the first audio of the reply has left."""
        return self.current is not None and self.current.is_heard

    def was_cut(self, reply_id: str) -> bool:
        """Return whether a reply of this name was cut."""
        return reply_id in self._cut_ids

    def is_current(self, reply_id: str) -> bool:
        """Return whether the reply of this name is the current one."""
        return self.current is not None and self.current.reply_id == reply_id

    def is_early(self, onset_ms: int) -> bool:
        """Return whether a voice that began at ``onset_ms`` continues the caller's turn."""
        reply = self.current
        return reply is not None and (
            not reply.is_heard or onset_ms < reply.since_ms + self._settings.early_ms
        )

    def due_ms(self) -> int | None:
        """Return when the reply is taken to be over without a report; None without a reply."""
        if self.current is None:
            return None
        chosen = self._settings
        wait_ms = chosen.reply_longest_ms if self.current.is_heard else chosen.reply_wait_ms
        return self.current.since_ms + wait_ms

    # Replies that are announced and heard.

    def begin(self, reply_id: str, at_ms: int, *, is_heard: bool) -> bool:
        """Make this reply the current one, and return whether that is new."""
        reply, before = BotReply(reply_id, at_ms, is_heard), self.current
        if before is not None and before.reply_id == reply_id:
            if before.is_heard:
                return False
            reply.last_word, reply.says = before.last_word, before.says
        self.current = reply
        return True

    def follow(self, reply_id: str, *, protected: bool) -> None:
        """Register a reply that follows the one that is heard."""
        self._following = FollowingReply(reply_id, protected)

    def take_following(self) -> FollowingReply | None:
        """Return the reply that follows, once."""
        following, self._following = self._following, None
        return following

    def drop_following(self, reply_id: str) -> bool:
        """Forget the following reply if it has this name, and return whether it had."""
        is_following = self._following is not None and self._following.reply_id == reply_id
        if is_following:
            self._following = None
        return is_following

    def note_saying(self, reply_id: str, text: str) -> None:
        """Record words that a reply is about to say."""
        if self.current is not None and self.current.reply_id == reply_id:
            self.current.says.update(plain(text))

    def note_heard(self, reply_id: str, last_word: int, *, is_rest_heard: bool) -> None:
        """Record how far a reply was heard."""
        if self.current is not None and self.current.reply_id == reply_id:
            self.current.last_word, self.current.is_rest_heard = last_word, is_rest_heard

    def says(self, text: str) -> bool:
        """Return whether the reply contains all of these words."""
        says = self.current.says if self.current is not None else set()
        return says.issuperset(plain(text))

    @property
    def is_known(self) -> bool:
        """Return whether any words of the reply are known."""
        return self.current is not None and bool(self.current.says)

    # Questions.

    def ask(self, at_ms: int) -> None:
        """Record that the last word of a question was heard."""
        self._asked_ms = at_ms

    def close_question(self) -> None:
        """Record that the caller has answered."""
        self._asked_ms = None

    def is_question_open(self, at_ms: int) -> bool:
        """Return whether the caller was asked a moment ago."""
        return self._asked_ms is not None and at_ms - self._asked_ms <= self._settings.answer_window_ms

    # End of a reply.

    def protect(self, at_ms: int) -> None:
        """Note that the reply is protected from here on."""
        self.protected_ms = at_ms

    def cut(self, at_ms: int) -> str | None:
        """Note that the reply and the following one are cut, and return the name of the first."""
        self.cut_ms = at_ms
        following, cut_id = self.take_following(), self.current_id
        ids = (cut_id, following.reply_id if following is not None else None)
        self._cut_ids.extend(each for each in ids if each is not None)
        return cut_id

    def note_meant(self) -> None:
        """Record that the last cut was meant."""
        self.false_in_a_row = 0

    def note_false(self) -> None:
        """Record that the last cut was for nothing."""
        self.false_in_a_row += 1

    def resume(self, at_ms: int) -> tuple[str | None, int]:
        """Prepare for the rest of the reply; return its name and the first word that was not heard."""
        reply_id, from_word = self.current_id, self.current.last_word + 1 if self.current is not None else 0
        self.current = BotReply(None, at_ms)
        return reply_id, from_word

    @property
    def is_nothing_left(self) -> bool:
        """Return whether nothing of the reply is left to be said."""
        return self.current is None or self.current.is_rest_heard

    def end(self) -> None:
        """Note that the reply is over."""
        self.current = None
