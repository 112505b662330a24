"""Is the caller interrupting, and what is to be done about it?

In: when a voice may have begun, began and ended; what is understood of it; what the bot is saying and how
much of it was heard; whether the voice is the bot's own echo. Out, at most one at a time: ``Duck`` (speak
lower), ``Restore`` (as loud as before), ``Cut`` (flush the reply) and ``Resume`` (say the rest of a reply
that was cut for nothing, from the first word that was not heard).

A voice ducks at once, which costs nothing and tells the caller that they are heard. The reply is cut when an
early look at how the voice sounds is sure (``looks``), when the voice lasts, when words of weight are
understood, or on a word that says stop. A look that is sure of the opposite restores; words of weight, or a
voice that lasts in spite of it, cut all the same. A hum, a cough or the bot's own
echo restores. When words do not come, duration decides, and it can be wrong: what was cut by it is said on
when nothing was meant. A voice that began before the reply was heard goes on with the caller's turn, and
needs less.

The states and what leads from one to the next are ``barge_in_table``; this module turns sounds, words and
times into its events. A protected reply yields to stop words, or to nothing. Whoever is not waiting for
anything is in ``LISTENING``; every other state has a deadline, so that a lost event costs seconds and not the
call.

All times are milliseconds on the session clock. Times of voice are those of the voice, and how late the
detector noticed comes beside them. A reply is named as in the playout clock (``reply_id``); one that was cut
does not come back, whatever still arrives for it. Words that wait for the spotter wait in any state.
"""

from collections import deque
from dataclasses import dataclass, field
from enum import Enum

from core.errors import IllegalTransition
from turn_taking.barge_in_settings import BargeInSettings
from turn_taking.barge_in_table import (
    IGNORED,
    TRANSITIONS,
    Act,
    Cut,
    Decision,
    Duck,
    Event,
    Reason,
    Restore,
    Resume,
    State,
)
from turn_taking.looks import LookVerdict
from turn_taking.utterances import ENGLISH, Classifier, Kind, Utterance, Vocabulary, plain

# Cut replies that are remembered: late frames are late by seconds, not by replies.
_CUT_REPLIES = 32


class _Voice(Enum):
    """What is heard of the caller now."""

    NONE = "none"
    MAYBE = "maybe"
    ON = "on"
    # Goes on, and was judged not to be meant.
    DISMISSED = "dismissed"
    # Goes on, and is the bot's own.
    ECHO = "echo"


@dataclass(slots=True)
class _Reply:
    """The reply that is on its way or heard.

    Attributes:
        reply_id: its name, None while it has none.
        since_ms: when it was announced, or since when it is heard.
        is_heard: its first sound has left.
        last_word: index of the last word that was heard, -1 before the first.
        is_rest_heard: nothing of it is left to be said.
        says: its words, as far as they are known; an echo says no others.
    """

    reply_id: str | None
    since_ms: int
    is_heard: bool = False
    last_word: int = -1
    is_rest_heard: bool = False
    says: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Held:
    """Final words that wait for what the spotter makes of their voice.

    Attributes:
        kinds: what the recogniser's words of each voice are, should they be believed, by its number.
        until_ms: when they are believed although nothing was said of them.
    """

    kinds: dict[int, Kind]
    until_ms: int

    @property
    def claims_floor(self) -> bool:
        """Whether any of them does: a hum behind words of weight takes nothing from them."""
        return any(kind.claims_floor for kind in self.kinds.values())


class BargeIn:
    """The interruptions of one call.

    Args:
        settings: see the model.
        vocabulary: of the language that is spoken.
    """

    def __init__(self, settings: BargeInSettings | None = None, *, vocabulary: Vocabulary = ENGLISH) -> None:
        self._settings = settings or BargeInSettings()
        self._classifier = Classifier(self._settings.utterances, vocabulary=vocabulary)
        self._state = State.LISTENING
        self._voice = _Voice.NONE
        # The voice: when its present stretch began, when it fell silent and when that was noticed; the
        # stretches before, and the words, since the bot was last at full volume.
        self._onset_ms = 0
        self._fell_quiet_ms = 0
        self._noticed_ms = 0
        self._stretches_ms: tuple[int, ...] = ()
        # The same when the last stretch ended: final words are about those.
        self._ended_stretches_ms: tuple[int, ...] = ()
        self._text = ""
        self._confidences: tuple[float, ...] = ()
        self._may_listen = False
        # Its level, that of the stretch before, and whether it was dismissed for its level alone.
        self._level_db: float | None = None
        self._ended_level_db: float | None = None
        self._was_far = False
        self._is_echo = False
        self._near_end_looks = 0
        self._echo_words = 0
        self._is_early = False
        # Voices are numbered, because what a spotter makes of one may come when the next one is on. The one
        # that is listened to once more, the words that wait for that, what became of such words; the last
        # voice that was no command, that wants the floor by how it sounds, that surely only listens, that was
        # the bot's own, that came from far away; the last final words may be a guess at a sound.
        self._voices = 0
        self._spotting_voice: int | None = None
        self._held: _Held | None = None
        self._verdict: bool | None = None
        self._vetoed_voice: int | None = None
        self._meant_voice: int | None = None
        self._listening_voice: int | None = None
        self._echo_voice: int | None = None
        self._far_voice: int | None = None
        # The voice that a look took for a listener's.
        self._left_voice: int | None = None
        self._last_is_guess = False
        self._spotted_command = False
        # The voice of the last final words, and those words.
        self._last_words = 0, ""
        self._hold_until_ms = 0
        self._maybe_from_ms = 0
        # The reply, one that follows it, and those that were cut.
        self._reply: _Reply | None = None
        self._following: tuple[str, bool] | None = None
        self._cut_replies: deque[str] = deque(maxlen=_CUT_REPLIES)
        self._ducked_ms = 0
        self._cut_ms = 0
        self._protected_ms = 0
        self._asked_ms: int | None = None
        self._warm_at_ms = 0
        self._false_in_a_row = 0
        self._last_kind: Kind | None = None

    @property
    def settings(self) -> BargeInSettings:
        """As given."""
        return self._settings

    @property
    def state(self) -> State:
        """Where the interruption stands."""
        return self._state

    @property
    def holds_words(self) -> bool:
        """Whether final words wait for the spotter: ``take_verdict`` says when they do no more."""
        return self._held is not None

    def take_verdict(self) -> bool | None:
        """Whether words that waited were meant, once; None when nothing was decided since the last call, or
        when words that are sure or the end of the caller's turn have taken them along.

        The words of a voice that is over may be decided on when the reply is over too, or may not be
        interrupted any more: no decision of the machine says so then.
        """
        verdict, self._verdict = self._verdict, None
        return verdict

    @property
    def last_is_guess(self) -> bool:
        """Whether the last final words claim nothing, or may be a recogniser's guess at a short sound."""
        return self._last_is_guess

    @property
    def spotted_command(self) -> bool:
        """Whether what was spotted last is a command that is meant."""
        return self._spotted_command

    def _is_command(self, command: str, floor_log_odds: float | None) -> bool:
        """Whether a spotted command is meant whatever the recogniser wrote, and is what was said.

        A single word ("what") is as near to a hum as to itself, unless the voice wants the floor by how it
        sounds; one that only listens by how it sounds says no command.
        """
        heard = Utterance(command)
        if not command or self._is_no_command(floor_log_odds):
            return False
        if self._wants_floor(floor_log_odds) or self._classifier.kind(heard) is Kind.STOP:
            return True
        return self._classifier.is_claim(heard, least_words=self._settings.confirm_words)

    def _wants_floor(self, log_odds: float | None) -> bool:
        return log_odds is not None and log_odds >= self._settings.floor_log_odds

    def _is_no_command(self, log_odds: float | None) -> bool:
        return log_odds is not None and log_odds < self._settings.command_floor_log_odds

    @property
    def voice_number(self) -> int:
        """How many voices began: the number of the last one."""
        return self._voices

    @property
    def is_ducked(self) -> bool:
        """Whether the bot speaks at a lower volume."""
        return self._state in (State.ARMED, State.WEIGHED)

    @property
    def caller_has_floor(self) -> bool:
        """Whether the caller speaks and the bot does not: the caller's turn has begun."""
        return self._voice is _Voice.ON and self._state in (State.LISTENING, State.CUT)

    @property
    def last_kind(self) -> Kind | None:
        """What the last final words were taken for; None before any, and of the bot's own."""
        return self._last_kind

    # What the bot does.

    def on_reply(self, at_ms: int, reply_id: str, *, protected: bool = False) -> Decision | None:
        """A reply is on its way; nothing of it is heard yet."""
        if reply_id in self._cut_replies:
            return None
        current = self._reply
        # Behind a cut nothing of the reply is heard any more: whatever comes is the answer to the caller.
        is_on = current is not None and current.is_heard and self._state is not State.CUT
        if current is not None and is_on and current.reply_id != reply_id:
            self._following = (reply_id, protected)
            return None
        if current is not None and current.reply_id == reply_id:
            return self._protect(at_ms, protected)
        return self._begin(at_ms, _Reply(reply_id, at_ms), protected)

    def on_bot_started(self, at_ms: int, reply_id: str, *, protected: bool = False) -> Decision | None:
        """The first sound of a reply leaves."""
        if reply_id in self._cut_replies:
            return None
        if self._following is not None and self._following[0] == reply_id:
            self._following = None
        return self._begin(at_ms, _Reply(reply_id, at_ms, is_heard=True), protected)

    def on_bot_stopped(self, at_ms: int, reply_id: str) -> Decision | None:
        """A reply was heard to its end, or does not come. What is said of another one changes nothing."""
        if self._following is not None and self._following[0] == reply_id:
            self._following = None
            return None
        if self._reply is None or self._reply.reply_id != reply_id or self._state is State.CUT:
            return None
        if self._following is not None:
            (following_id, protected), self._following = self._following, None
            return self._begin(at_ms, _Reply(following_id, at_ms), protected)
        return self._move(Event.OVER, at_ms)

    def on_protected(self, at_ms: int, protected: bool) -> Decision | None:
        """From here on the reply may not be interrupted, or may be again."""
        return self._protect(at_ms, protected) if self._reply is not None else None

    def on_saying(self, reply_id: str, text: str) -> None:
        """The bot is about to say this. What it does not say cannot be its echo, and in the first seconds
        (``warm_up_ms``) what it does say is taken for it.
        """
        if self._reply is not None and self._reply.reply_id == reply_id:
            self._reply.says.update(plain(text))

    def on_question(self, at_ms: int) -> None:
        """The last word of a question was heard."""
        self._asked_ms = at_ms

    def on_heard(self, reply_id: str, last_word: int, *, is_rest_heard: bool = False) -> None:
        """How far a reply was heard, while it is spoken or after it was cut.

        Args:
            reply_id: the reply.
            last_word: index of the last word heard, -1 when none was.
            is_rest_heard: nothing of it is left.
        """
        if self._reply is not None and self._reply.reply_id == reply_id:
            self._reply.last_word = last_word
            self._reply.is_rest_heard = is_rest_heard

    def on_echo_path_changed(self, at_ms: int) -> None:
        """A call begins, or another loudspeaker is used: the canceller has to converge anew."""
        self._warm_at_ms = at_ms + self._settings.warm_up_ms

    # What the caller does.

    def on_maybe_voice(self, at_ms: int) -> Decision | None:
        """Something that may be a voice began; the detector is making sure."""
        if self._voice is not _Voice.NONE or not self._settings.maybe_ms or at_ms < self._maybe_from_ms:
            return None
        if self._state not in (State.REPLYING, State.WEIGHED) or self._held is not None:
            # A click behind words that wait is not to decide about them.
            return None
        self._voice = _Voice.MAYBE
        return self._arm(at_ms, onset_ms=at_ms)

    def on_voice_started(self, at_ms: int, *, voiced_ms: int = 0) -> Decision | None:
        """A voice began ``voiced_ms`` before ``at_ms``."""
        if self._voice in (_Voice.ON, _Voice.DISMISSED, _Voice.ECHO):
            return None
        self._voice = _Voice.ON
        self._was_far = False
        self._voices += 1
        return self._arm(at_ms, onset_ms=at_ms - voiced_ms)

    def on_maybe_quiet(self, at_ms: int) -> None:
        """The voice has paused and may have ended; the detector is making sure."""
        self._hold_until_ms = at_ms + self._settings.pause_hold_ms

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> Decision | None:
        """The voice fell silent ``silence_ms`` before ``at_ms``."""
        voice, self._voice = self._voice, _Voice.NONE
        if voice is _Voice.NONE:
            return None
        self._fell_quiet_ms, self._noticed_ms = at_ms - silence_ms, at_ms
        if voice is not _Voice.ECHO:
            self._stretches_ms += (max(0, self._fell_quiet_ms - self._onset_ms),)
        self._ended_stretches_ms, self._ended_level_db = self._stretches_ms, self._level_db
        if self._is_far(self._level_db):
            self._far_voice = self._voices
        if self._state is not State.ARMED:
            return self._move(Event.QUIET, at_ms)
        if at_ms - self._ducked_ms >= self._settings.duck_longest_ms:
            return self._dismiss(at_ms)
        if not self._text and self._kind(at_ms) is Kind.NOISE:
            return self._dismiss(at_ms)
        return self._move(Event.QUIET, at_ms)

    def on_level(self, at_ms: int, level_db: float) -> Decision | None:
        """How loud the present voice is beside the caller's usual one, at its loudest so far.

        Who was taken for somebody else and speaks up begins a voice by that.
        """
        self._level_db = level_db
        if not self._was_far or self._voice is not _Voice.DISMISSED or self._is_far(level_db):
            return None
        self._was_far, self._voice = False, _Voice.ON
        decision = self._arm(at_ms, onset_ms=at_ms)
        self._level_db = level_db
        return decision

    def on_look(self, at_ms: int, look: int, log_odds: float, *, voice: int) -> Decision | None:
        """Take the log odds of an early look that a voice interrupts.

        Args:
            at_ms: when.
            look: its place among the looks.
            log_odds: that its owner wants the floor.
            voice: its number. An answer about another voice than the present one, or about one that is
                decided, comes too late and changes nothing.
        """
        chosen = self._settings.looks
        is_open = self._state is State.ARMED and self._voice is _Voice.ON and voice == self._voices
        if chosen is None or not is_open or self._is_warming_up(at_ms) or self._is_far(self._level_db):
            return None
        verdict = chosen.verdict(look, log_odds)
        if verdict is LookVerdict.TAKE:
            return self._mean(at_ms, Reason.SOUND)
        # Who was asked, or goes on with a turn, is not sent away by a guess.
        if verdict is LookVerdict.LEAVE and not (self._is_early or self._question_is_open(at_ms)):
            self._left_voice = voice
            return self._dismiss(at_ms)
        return None

    @property
    def _is_left(self) -> bool:
        """Whether the present voice was taken for a listener's by a look, and goes on."""
        return self._voice is _Voice.DISMISSED and self._left_voice == self._voices

    def _is_far(self, level_db: float | None) -> bool:
        return level_db is not None and level_db <= self._settings.utterances.quiet_db

    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decision | None:
        """What is understood of the present voice so far.

        Args:
            at_ms: when.
            text: the words, of the whole stretch.
            confidences: see ``Utterance``. PocketSphinx has none for a partial and writes "man up" for a hum:
                its 0.0 is to be handed on, then its partials confirm nothing and its final words do.
        """
        if self._is_echo:
            self._echo_words = len(text.split())
            return self._stop_in_spite_of_echo(at_ms, Utterance(text, confidences))
        text, confidences = self._without_echo(text, confidences)
        if self._is_warming_up(at_ms) and self._bot_says(text):
            return None
        self._text, self._confidences = text, confidences
        # Once is enough: the next partial of an "okay" may be "okay and her".
        if not self._question_is_open(at_ms) and self._classifier.may_be_backchannel(text):
            self._may_listen = True
        heard = self._utterance(at_ms, is_over=False)
        kind = self._classifier.kind(heard, question_open=self._question_is_open(at_ms))
        if kind is Kind.STOP:
            return self._stop(at_ms)
        enough = self._classifier.content_words(heard) >= self._settings.confirm_words
        if kind is Kind.ANSWER or (kind is Kind.SUBSTANTIVE and enough):
            return self._mean(at_ms, Reason.WORDS)
        return None

    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decision | None:
        """The last words about the voice that ended last; may be empty."""
        self._last_kind, self._last_is_guess = None, True
        if self._is_echo:
            return self._stop_in_spite_of_echo(at_ms, Utterance(text, confidences))
        text, confidences = self._without_echo(text, confidences)
        if self._is_warming_up(at_ms) and self._bot_says(text):
            text, confidences = "", ()
        is_voiced = self._voice not in (_Voice.NONE, _Voice.MAYBE)
        stretches_ms = self._ended_stretches_ms if is_voiced else self._stretches_ms
        # They are about a voice that has ended; the level that is known now may be the next one's.
        heard = Utterance(text, confidences, stretches_ms, True, self._ended_level_db)
        is_asked = self._question_is_open(at_ms)
        kind = self._classifier.kind(heard, question_open=is_asked)
        if is_asked and text and kind is not Kind.NOISE and not kind.claims_floor:
            # Whoever was asked and makes a sound is about to answer, whatever was written of it.
            kind = Kind.ANSWER
        is_guess = self._is_guess(kind, heard) and not is_asked
        self._last_is_guess = is_guess or not kind.claims_floor
        # Of the voice that ended last: the verdict is about it, whatever has become of the reply meanwhile.
        voice = self._voices - is_voiced
        if text and voice == self._meant_voice and not kind.claims_floor:
            # It was heard to want the floor, whatever was written of it.
            kind, is_guess = Kind.SUBSTANTIVE, False
        may_be_more = self._may_be_more(kind, heard)
        if self._surely_listens(kind, heard):
            self._listening_voice = voice
        self._last_words = voice, text
        if (is_guess or may_be_more) and self._state is not State.CUT:
            if self._spotting_voice == voice:
                self._last_kind = kind
                until_ms = max(self._noticed_ms + self._settings.words_wait_ms, at_ms)
                kinds = self._held.kinds if self._held is not None else {}
                self._held = _Held({**kinds, voice: kind}, until_ms)
                if not is_voiced:
                    self._text, self._confidences = text, confidences
                return None
            if is_guess and self._vetoed_voice == voice:
                kind = Kind.BACKCHANNEL
        self._last_kind = kind
        if kind is Kind.STOP:
            return self._stop(at_ms)
        if kind.claims_floor:
            self._held = None
            return self._mean_all(at_ms)
        if not is_voiced and self._held is None:
            self._text, self._confidences = text, confidences
            if self._state is State.WEIGHED or (self._state is State.CUT and kind.leaves_floor):
                return self._dismiss(at_ms)
        return None

    def on_turn_ended(self) -> None:
        """What was understood is being answered: nothing waits any more, and no question is open."""
        self._held = self._verdict = self._spotting_voice = None
        self._vetoed_voice = self._meant_voice = self._listening_voice = None
        self._asked_ms = None

    def on_spotting(self) -> None:
        """The voice that just ended is short, and an engine that knows few words listens to it once more:
        ``on_spotted`` follows, with its number. Until then a recogniser's words that are not sure are not
        believed.
        """
        over_reply = self._state in (State.WEIGHED, State.ARMED, State.PROTECTED)
        is_left = self._state is State.REPLYING and self._left_voice == self._voices
        self._spotting_voice = self._voices if over_reply or is_left else None

    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> Decision | None:
        """What that engine made of a voice that has ended: a command, or nothing.

        Nothing is a listener's word, a hum or no word at all: what else a recogniser writes of so short a
        voice is its best guess at a sound that it does not know.

        Args:
            at_ms: when.
            text: the command; empty when it was none.
            voice: its number; None is the last one. When another voice has begun since, a command and a
                voice that wants the floor still count, and nothing else does but for the words that wait.
            floor_log_odds: that the voice wants the floor, by how it sounds; None from an engine that does
                not say.
        """
        number = self._voices if voice is None else voice
        self._spotted_command = False
        if self._spotting_voice == number:
            self._spotting_voice = None
        if number == self._echo_voice or (number == self._voices and self._is_echo):
            # So were its words.
            return self._settle_held(at_ms, meant=False)
        if number == self._far_voice and self._classifier.kind(Utterance(text)) is not Kind.STOP:
            # Somebody else's "no" is no answer to the bot.
            return self._settle_held(at_ms, meant=False)
        if number == self._listening_voice or self._is_warming_up(at_ms):
            # Who is surely understood to listen does, and a sound of the first seconds may be the bot's.
            floor_log_odds = None
        if self._is_command(text, floor_log_odds) or self._agree(number, text):
            self._spotted_command = True
            self._verdict = True if self._held is not None else self._verdict
            self._held = None
            if self._classifier.kind(Utterance(text)) is Kind.STOP:
                return self._stop(at_ms)
            return self._mean_all(at_ms)
        if self._wants_floor(floor_log_odds):
            return self._give_floor(at_ms, number)
        if self._is_no_command(floor_log_odds):
            text = ""
        if not text:
            self._vetoed_voice = number
        if self._held is None or number not in self._held.kinds:
            return None
        if len(self._held.kinds) > 1 and not text:
            del self._held.kinds[number]
            return None
        # Of a single word the recogniser decides.
        return self._settle_held(at_ms, meant=bool(text))

    def on_self_voice(self, at_ms: int, *, own: bool) -> Decision | None:
        """What is heard is the bot's own voice, or surely is not. Of use as often as somebody looks."""
        if own:
            self._is_echo, self._near_end_looks = True, 0
            self._echo_voice = self._voices
            if self._voice in (_Voice.ON, _Voice.DISMISSED):
                self._voice = _Voice.ECHO
            return self._dismiss(at_ms)
        self._near_end_looks += 1
        looks, echo_words = self._near_end_looks, self._echo_words
        if looks < self._settings.near_end_looks:
            return None
        decision = None
        if self._voice is _Voice.ECHO:
            self._voice = _Voice.ON
            level_db = self._level_db
            decision = self._arm(at_ms, onset_ms=at_ms)
            self._level_db = level_db
        # What was understood until now was the bot.
        self._near_end_looks, self._echo_words, self._is_echo = looks, echo_words, False
        if self._echo_voice == self._voices:
            self._echo_voice = None
        return decision

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` is to be called; None while nothing is awaited."""
        due_ms, held = self._state_due_ms(), self._held
        if held is None:
            return due_ms
        return held.until_ms if due_ms is None else min(due_ms, held.until_ms)

    def _state_due_ms(self) -> int | None:
        chosen, reply = self._settings, self._reply
        if self._state is State.ARMED:
            return self._confirm_at_ms()
        if self._state is State.WEIGHED:
            return self._noticed_ms + chosen.words_wait_ms
        if self._state is State.CUT:
            return min(self._settled_at_ms(), self._cut_ms + chosen.undecided_ms)
        if self._state is State.PROTECTED:
            return self._protected_ms + chosen.protected_longest_ms
        if reply is None:
            return None
        if self._state is State.REPLYING and self._is_left and chosen.looks is not None:
            wait_ms = chosen.looks.left_confirm_ms + chosen.end_lag_ms
            return max(self._onset_ms + wait_ms, self._hold_until_ms)
        return reply.since_ms + (chosen.reply_longest_ms if reply.is_heard else chosen.reply_wait_ms)

    def on_deadline(self, at_ms: int) -> Decision | None:
        """The decision that is due at ``at_ms``, if one is."""
        if self._held is not None and at_ms >= self._held.until_ms:
            return self._settle_held(at_ms, meant=True)
        deadline_ms = self._state_due_ms()
        if deadline_ms is None or at_ms < deadline_ms:
            return None
        if self._state is State.ARMED:
            return self._judge_voice(at_ms)
        if self._state is State.WEIGHED:
            self._spotting_voice = None
            if self._kind(at_ms).claims_floor:
                return self._mean(at_ms, Reason.WORDS)
            return self._dismiss(at_ms)
        if self._state is State.CUT:
            is_on = self._voice is _Voice.ON
            return self._mean(at_ms, Reason.DURATION) if is_on else self._dismiss(at_ms)
        if self._state is State.PROTECTED:
            return self._protect(at_ms, protected=False)
        if self._is_left:
            self._left_voice = None
            return None if self._is_far(self._level_db) else self._mean(at_ms, Reason.DURATION)
        return self._move(Event.OVER, at_ms)

    def _confirm_at_ms(self) -> int:
        """When the present voice has lasted long enough to be meant, as far as is known."""
        chosen = self._settings
        if self._voice is _Voice.MAYBE:
            return self._onset_ms + chosen.maybe_ms
        wait_ms = chosen.early_confirm_ms if self._is_early else self._patience_ms()
        if self._text and self._kind_so_far().leaves_floor:
            wait_ms = max(wait_ms, chosen.utterances.backchannel_ms)
        due_ms = max(self._onset_ms + wait_ms + chosen.end_lag_ms, self._hold_until_ms)
        is_near_end = self._near_end_looks >= chosen.near_end_looks
        return due_ms if is_near_end else max(due_ms, self._warm_at_ms)

    def _patience_ms(self) -> int:
        chosen = self._settings
        grown_ms = chosen.confirm_ms + self._false_in_a_row * chosen.confirm_growth_ms
        least_ms = chosen.listener_confirm_ms if self._may_listen else 0
        return max(least_ms, min(grown_ms, chosen.confirm_longest_ms))

    def _settled_at_ms(self) -> int:
        """When it is known whether a cut was meant, if no words come."""
        chosen = self._settings
        if self._voice is _Voice.ON:
            return max(self._cut_ms, self._onset_ms) + chosen.taken_ms
        if not self._text and sum(self._stretches_ms) <= chosen.confirm_ms:
            # Cut early, and too short to be more than a cough: the caller waits for the answer.
            return max(self._noticed_ms, self._cut_ms) + chosen.words_wait_ms
        return max(self._fell_quiet_ms + chosen.resume_ms, self._noticed_ms)

    # From sounds and words to events.

    def _judge_voice(self, at_ms: int) -> Decision | None:
        if self._voice is not _Voice.ON:
            return self._dismiss(at_ms)
        if not self._is_far(self._level_db):
            return self._mean(at_ms, Reason.DURATION)
        self._was_far = True
        return self._dismiss(at_ms)

    def _arm(self, at_ms: int, *, onset_ms: int) -> Decision | None:
        if self._state not in (State.ARMED, State.WEIGHED, State.CUT):
            self._stretches_ms = ()
        self._text, self._confidences = "", ()
        self._may_listen = False
        self._is_echo, self._echo_words = False, 0
        self._onset_ms, self._hold_until_ms = onset_ms, 0
        if self._state is not State.ARMED:
            self._level_db = None
            self._near_end_looks = 0
        reply = self._reply
        self._is_early = reply is not None and (
            not reply.is_heard or onset_ms < reply.since_ms + self._settings.early_ms
        )
        return self._move(Event.VOICE, at_ms)

    def _begin(self, at_ms: int, reply: _Reply, protected: bool) -> Decision | None:
        same = self._reply is not None and self._reply.reply_id == reply.reply_id
        if same and self._reply is not None:
            reply.last_word, reply.says = self._reply.last_word, self._reply.says
            if self._reply.is_heard:
                return self._protect(at_ms, protected)
        self._reply = reply
        self._move(Event.REPLY, at_ms)
        return self._protect(at_ms, protected)

    def _protect(self, at_ms: int, protected: bool) -> Decision | None:
        if protected:
            self._protected_ms = at_ms if self._state is not State.PROTECTED else self._protected_ms
            return self._move(Event.PROTECT, at_ms)
        if self._state is State.PROTECTED:
            self._move(Event.RELEASE, at_ms)
        if self._state is State.REPLYING and self._voice is _Voice.ON:
            # Who speaks while the bot begins is ducked for as well. From here on the voice counts.
            early = not self._reply_was_heard()
            onset_ms, level_db = self._onset_ms if early else at_ms, self._level_db
            decision = self._arm(at_ms, onset_ms=onset_ms)
            self._level_db = level_db
            return decision
        return None

    def _reply_was_heard(self) -> bool:
        return self._reply is not None and self._reply.is_heard

    def _mean(self, at_ms: int, reason: Reason) -> Decision | None:
        if self._voice is _Voice.DISMISSED:
            self._voice = _Voice.ON
        if self._state is State.CUT:
            self._false_in_a_row = 0
        return self._move(Event.MEANT, at_ms, reason)

    def _mean_all(self, at_ms: int) -> Decision | None:
        """Nothing more will be understood of a voice that is over: a cut for it was meant, too."""
        decision = self._mean(at_ms, Reason.WORDS)
        if self._state is State.CUT:
            self._mean(at_ms, Reason.WORDS)
        return decision

    def _give_floor(self, at_ms: int, voice: int) -> Decision | None:
        """A voice that has ended wants the floor by how it sounds. Its words confirm that; without any the
        reply goes on.
        """
        self._meant_voice = voice
        if self._held is not None and voice in self._held.kinds:
            self._verdict, self._held = True, None
            return self._mean_all(at_ms)
        return None if self._state is State.CUT else self._mean(at_ms, Reason.WORDS)

    def _settle_held(self, at_ms: int, *, meant: bool) -> Decision | None:
        """Words that waited are believed, or were a guess."""
        if self._held is None:
            return None
        self._verdict = meant and self._held.claims_floor
        self._held = None
        if self._verdict:
            return self._mean_all(at_ms)
        is_over = self._voice in (_Voice.NONE, _Voice.MAYBE)
        return self._dismiss(at_ms) if self._state is State.WEIGHED and is_over else None

    def _stop(self, at_ms: int) -> Decision | None:
        if self._state is State.PROTECTED and not self._settings.protected_yields_to_stop:
            return None
        self._false_in_a_row = 0
        return self._move(Event.STOP, at_ms, Reason.STOP_WORD)

    def _dismiss(self, at_ms: int) -> Decision | None:
        if self._voice is _Voice.MAYBE:
            self._voice = _Voice.NONE
            self._maybe_from_ms = at_ms + self._settings.maybe_rest_ms
        elif self._voice is _Voice.ON:
            self._voice = _Voice.DISMISSED
        if self._state is State.CUT:
            self._false_in_a_row += 1
            if self._reply is None or self._reply.is_rest_heard:
                return self._move(Event.OVER, at_ms)
        return self._move(Event.DISMISSED, at_ms)

    def _is_warming_up(self, at_ms: int) -> bool:
        return at_ms < self._warm_at_ms and self._near_end_looks < self._settings.near_end_looks

    def _bot_says(self, text: str) -> bool:
        """Whether the reply has all of these words."""
        says = self._reply.says if self._reply is not None else set()
        return says.issuperset(plain(text))

    def _is_guess(self, kind: Kind, heard: Utterance) -> bool:
        """Whether words that claim the floor may be a recogniser's guess at a hum or a listener's word."""
        if kind not in (Kind.SUBSTANTIVE, Kind.HESITATION):
            return False
        # What is longer is cut by its length.
        longest_ms = self._settings.confirm_ms + self._settings.end_lag_ms
        if not heard.confidences or heard.voiced_ms > longest_ms:
            return False
        is_sure = min(heard.confidences) >= self._settings.sure_confidence
        return not (is_sure and len(heard.text.split()) > 1)

    def _may_be_more(self, kind: Kind, heard: Utterance) -> bool:
        """Whether words over a reply that claim nothing may be a guess at something that does."""
        is_over_reply = self._state in (State.ARMED, State.WEIGHED)
        if kind.claims_floor or not heard.text or not heard.confidences or not is_over_reply:
            return False
        return not self._is_far(heard.level_db) and not self._surely_listens(kind, heard)

    def _surely_listens(self, kind: Kind, heard: Utterance) -> bool:
        """Whether a listener was understood; not what a recogniser writes for any vowel, however sure."""
        if not kind.leaves_floor or not heard.text:
            return False
        is_sure = min(heard.confidences, default=1.0) >= self._settings.sure_confidence
        return is_sure and self._classifier.may_be_backchannel(heard.text)

    def _agree(self, voice: int, command: str) -> bool:
        """Whether the recogniser and the spotter heard the same in a voice: a question of one word, or that
        very word. Two that hear so are right, however little either is sure of it.
        """
        said_by, said = self._last_words
        return bool(command) and said_by == voice and self._classifier.says_the_same(said, command)

    def _stop_in_spite_of_echo(self, at_ms: int, heard: Utterance) -> Decision | None:
        """A word that the bot does not say is the caller's, whatever the levels say."""
        is_known = self._reply is not None and bool(self._reply.says)
        if is_known and self._classifier.kind(heard) is Kind.STOP and not self._bot_says(heard.text):
            return self._stop(at_ms)
        return None

    def _without_echo(self, text: str, confidences: tuple[float, ...]) -> tuple[str, tuple[float, ...]]:
        """The words behind those that were understood while the voice was the bot's own."""
        words, skipped = text.split(), self._echo_words
        per_word = len(confidences) == len(words)
        return " ".join(words[skipped:]), confidences[skipped:] if per_word else confidences

    def _question_is_open(self, at_ms: int) -> bool:
        return self._asked_ms is not None and at_ms - self._asked_ms <= self._settings.answer_window_ms

    def _utterance(self, at_ms: int, *, is_over: bool) -> Utterance:
        stretches_ms = self._stretches_ms
        if self._voice in (_Voice.ON, _Voice.DISMISSED):
            stretches_ms += (max(0, at_ms - self._onset_ms),)
        return Utterance(self._text, self._confidences, stretches_ms, is_over, self._level_db)

    def _kind(self, at_ms: int) -> Kind:
        heard = self._utterance(at_ms, is_over=self._voice in (_Voice.NONE, _Voice.MAYBE))
        return self._classifier.kind(heard, question_open=self._question_is_open(at_ms))

    def _kind_so_far(self) -> Kind:
        """What the words say, the length of the voice aside: it is what is being decided on."""
        words = Utterance(self._text, self._confidences, (), False, self._level_db)
        return self._classifier.kind(words)

    # From events to decisions.

    def _move(self, event: Event, at_ms: int, reason: Reason = Reason.DURATION) -> Decision | None:
        """Take an event, by the table.

        Raises:
            IllegalTransition: the table does not know it in this state.
        """
        row = TRANSITIONS.get((self._state, event))
        if row is None:
            if event in IGNORED[self._state]:
                return None
            raise IllegalTransition(self._state, event)
        self._state, act = row
        decision = self._carry_out(act, at_ms, reason)
        if self._state is State.LISTENING:
            self._reply = None
        if self._voice is _Voice.MAYBE and self._state is not State.ARMED:
            # It is only followed where something hangs on it.
            self._voice = _Voice.NONE
        return decision

    def _carry_out(self, act: Act, at_ms: int, reason: Reason) -> Decision | None:
        reply_id = self._reply.reply_id if self._reply is not None else None
        if act is Act.DUCK:
            self._ducked_ms = at_ms
            return Duck(at_ms, self._settings.duck_db)
        if act is Act.RESTORE:
            return Restore(at_ms)
        if act is Act.CUT:
            return self._cut(at_ms, reply_id, reason)
        if act is Act.RESUME:
            from_word = self._reply.last_word + 1 if self._reply is not None else 0
            self._reply = _Reply(None, at_ms)
            return Resume(at_ms, reply_id, from_word)
        return None

    def _cut(self, at_ms: int, reply_id: str | None, reason: Reason) -> Cut:
        self._cut_ms = at_ms
        following_id = self._following[0] if self._following is not None else None
        self._cut_replies.extend(each for each in (reply_id, following_id) if each is not None)
        self._following = None
        return Cut(at_ms, reply_id, reason, self._utterance(at_ms, is_over=False).voiced_ms)
