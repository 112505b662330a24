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

The states and what leads from one to the next are ``barge_in_table``. Three objects know the facts: the
caller's voice (``barge_in_voice``), the bot's replies (``barge_in_reply``) and what words mean
(``barge_in_words``); this module turns what they say into events of the table, and keeps the deadlines. A
protected reply yields to stop words, or to nothing. A machine that waits for nothing is in ``LISTENING``;
every other state has a deadline, so that a lost event costs seconds and not the call.

All times are milliseconds on the session clock. Times of voice are those of the voice, and how late the
detector noticed is given with them. Words that wait for the spotter wait in any state.
"""

from collections.abc import Callable

from core.errors import IllegalTransition
from core.tuning import tuned
from turn_taking.barge_in_reply import ReplyTracker
from turn_taking.barge_in_settings import BargeInSettings, BargeInTuning
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
from turn_taking.barge_in_voice import VoiceEvent, VoiceFinding, VoiceState, VoiceTracker
from turn_taking.barge_in_words import SpotVerdict, WordArbiter
from turn_taking.looks import LookVerdict
from turn_taking.utterances import ENGLISH, Kind, Utterance, Vocabulary


class BargeIn:
    """The interruptions of one call.

    Args:
        settings: see the model.
        vocabulary: of the language that is spoken.
        on_floor: told after each event whether the bot holds the floor; must not block.
    """

    def __init__(
        self,
        settings: BargeInSettings | None = None,
        *,
        vocabulary: Vocabulary = ENGLISH,
        on_floor: Callable[[bool], None] = lambda _holds: None,
    ) -> None:
        self._settings = tuned(BargeInTuning, settings)
        self._looks = self._settings.look_bounds if self._settings.looks else None
        self._state = State.LISTENING
        self._on_floor = on_floor
        self._voice = VoiceTracker(self._settings)
        self._replies = ReplyTracker(self._settings)
        self._words = WordArbiter(self._settings, self._voice.findings, vocabulary=vocabulary)

    @property
    def settings(self) -> BargeInTuning:
        """As given."""
        return self._settings

    @property
    def state(self) -> State:
        """Where the interruption stands."""
        return self._state

    @property
    def holds_words(self) -> bool:
        """Whether final words wait for the spotter: ``take_verdict`` says when they do no more."""
        return self._words.held is not None

    def take_verdict(self) -> bool | None:
        """Whether words that waited were meant, once; None when nothing was decided since the last call, or
        when words that are sure or the end of the caller's turn have taken them along.

        The words of a voice that is over may be decided on when the reply is over too, or may not be
        interrupted any more: no decision of the machine says so then.
        """
        return self._words.take_verdict()

    @property
    def last_is_guess(self) -> bool:
        """Whether the last final words claim nothing, or may be a recogniser's guess at a short sound."""
        return self._words.last.is_guess

    @property
    def spotted_command(self) -> bool:
        """Whether what was spotted last is a command that is meant."""
        return self._words.spotted_command

    @property
    def voice_number(self) -> int:
        """How many voices began: the number of the last one."""
        return self._voice.number

    @property
    def is_ducked(self) -> bool:
        """Whether the bot speaks at a lower volume."""
        return self._state in (State.ARMED, State.WEIGHED)

    @property
    def caller_has_floor(self) -> bool:
        """Whether the caller speaks and the bot does not: the caller's turn has begun."""
        return self._voice.state is VoiceState.ON and self._state in (State.LISTENING, State.CUT)

    @property
    def last_kind(self) -> Kind | None:
        """What the last final words were taken for; None before any, and of the bot's own."""
        return self._words.last.kind

    # What the bot does.

    def on_reply(self, at_ms: int, reply_id: str, *, protected: bool = False) -> Decision | None:
        """A reply is on its way; nothing of it is heard yet."""
        replies = self._replies
        if replies.was_cut(reply_id):
            return None
        if replies.is_current(reply_id):
            return self._protect(at_ms, protected)
        if replies.is_heard and self._state is not State.CUT:
            replies.follow(reply_id, protected=protected)
            return None
        # After a cut nothing of the reply is heard any more: whatever comes is the answer to the caller.
        return self._begin(at_ms, reply_id, protected, is_heard=False)

    def on_bot_started(self, at_ms: int, reply_id: str, *, protected: bool = False) -> Decision | None:
        """The first sound of a reply leaves."""
        if self._replies.was_cut(reply_id):
            return None
        self._replies.drop_following(reply_id)
        return self._begin(at_ms, reply_id, protected, is_heard=True)

    def on_bot_stopped(self, at_ms: int, reply_id: str) -> Decision | None:
        """A reply was heard to its end, or does not come. What is said of another one changes nothing."""
        replies = self._replies
        if replies.drop_following(reply_id) or not replies.is_current(reply_id) or self._state is State.CUT:
            return None
        following = replies.take_following()
        if following is not None:
            return self._begin(at_ms, following.reply_id, following.protected, is_heard=False)
        return self._move(Event.OVER, at_ms)

    def on_protected(self, at_ms: int, protected: bool) -> Decision | None:
        """From here on the reply may not be interrupted, or may be again."""
        return self._protect(at_ms, protected) if self._replies.current is not None else None

    def on_saying(self, reply_id: str, text: str) -> None:
        """The bot is about to say this. What it does not say cannot be its echo, and in the first seconds
        (``warm_up_ms``) what it does say is taken for it.
        """
        self._replies.note_saying(reply_id, text)

    def on_question(self, at_ms: int) -> None:
        """The last word of a question was heard."""
        self._replies.ask(at_ms)

    def on_heard(self, reply_id: str, last_word: int, *, is_rest_heard: bool = False) -> None:
        """How far a reply was heard, while it is spoken or after it was cut.

        Args:
            reply_id: the reply.
            last_word: index of the last word heard, -1 when none was.
            is_rest_heard: nothing of it is left.
        """
        self._replies.note_heard(reply_id, last_word, is_rest_heard=is_rest_heard)

    def on_echo_path_changed(self, at_ms: int) -> None:
        """A call begins, or another loudspeaker is used: the canceller has to converge anew."""
        self._voice.change_echo_path(at_ms)

    # What the caller does.

    def on_maybe_voice(self, at_ms: int) -> Decision | None:
        """Something that may be a voice began; the detector is making sure."""
        # A click behind words that wait is not to decide about them.
        is_open = self._state in (State.REPLYING, State.WEIGHED) and not self.holds_words
        if not self._settings.maybe_ms or not is_open or not self._voice.suspect(at_ms):
            return None
        return self._arm(at_ms, at_ms)

    def on_voice_started(self, at_ms: int, *, voiced_ms: int = 0) -> Decision | None:
        """A voice began ``voiced_ms`` before ``at_ms``."""
        return self._arm(at_ms, at_ms - voiced_ms) if self._voice.begin() else None

    def on_maybe_quiet(self, at_ms: int) -> None:
        """The voice has paused and may have ended; the detector is making sure."""
        self._voice.pause(at_ms)

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> Decision | None:
        """The voice fell silent ``silence_ms`` before ``at_ms``."""
        if not self._voice.end(at_ms, silence_ms=silence_ms):
            return None
        if self._state is not State.ARMED:
            return self._move(Event.QUIET, at_ms)
        if self._voice.is_ducked_too_long(at_ms):
            return self._dismiss(at_ms)
        if not self._words.has_words and self._kind(at_ms) is Kind.NOISE:
            return self._dismiss(at_ms)
        return self._move(Event.QUIET, at_ms)

    def on_level(self, at_ms: int, level_db: float) -> Decision | None:
        """How loud the present voice is beside the caller's usual one, at its loudest so far.

        A caller who was taken for another person and speaks up begins a voice by that.
        """
        self._voice.note_level(level_db)
        if self._voice.is_far or not self._voice.take(VoiceEvent.CAME_NEAR):
            return None
        return self._arm(at_ms, at_ms, is_same_voice=True)

    def on_look(self, at_ms: int, look: int, log_odds: float, *, voice: int) -> Decision | None:
        """Take the log odds of an early look that a voice interrupts.

        Args:
            at_ms: when.
            look: its place among the looks.
            log_odds: that its owner wants the floor.
            voice: its number. An answer about another voice than the present one, or about one that is
                decided, comes too late and changes nothing.
        """
        chosen, heard = self._looks, self._voice
        is_open = self._state is State.ARMED and heard.state is VoiceState.ON and voice == heard.number
        if chosen is None or not is_open or heard.is_warming_up(at_ms) or heard.is_far:
            return None
        verdict = chosen.verdict(look, log_odds)
        if verdict is LookVerdict.TAKE:
            return self._mean(at_ms, Reason.SOUND)
        # A caller who was asked, or goes on with a turn, is not sent away by a guess.
        if verdict is LookVerdict.LEAVE and not (heard.is_early or self._replies.is_question_open(at_ms)):
            heard.leave()
            return self._dismiss(at_ms)
        return None

    def on_self_voice(self, at_ms: int, *, own: bool) -> Decision | None:
        """Take that what is heard is the bot's own voice, or surely is not, at each look."""
        voice = self._voice
        if own:
            voice.take_own(at_ms)
            return self._dismiss(at_ms)
        if not voice.take_not_own():
            return None
        was_on = voice.state is VoiceState.ECHO
        voice.take(VoiceEvent.NOT_OWN)
        voice.findings.drop(VoiceFinding.OWN, of=voice.number)
        # What was understood until now was the bot.
        return self._arm(at_ms, at_ms, is_same_voice=True, is_same_echo=True) if was_on else None

    # What is understood.

    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decision | None:
        """What is understood of the present voice so far.

        Args:
            at_ms: when.
            text: the words, of the whole stretch.
            confidences: see ``Utterance``. PocketSphinx has none for a partial and writes "man up" for a hum:
                its 0.0 is to be handed on, then its partials confirm nothing and its final words do.
        """
        words, asked = self._words, self._replies.is_question_open(at_ms)
        if self._voice.is_echo:
            words.note_echo(text)
            return self._stop_in_spite_of_echo(at_ms, Utterance(text, confidences))
        text, confidences = words.without_echo(text, confidences)
        if self._voice.is_warming_up(at_ms) and self._replies.says(text):
            return None
        words.note_partial(text, confidences, asked=asked)
        heard = self._utterance(at_ms, is_over=False)
        kind = words.kind(heard, asked=asked)
        if kind is Kind.STOP:
            return self._stop(at_ms)
        return self._mean(at_ms, Reason.WORDS) if words.confirms(kind, heard) else None

    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decision | None:
        """The last words about the voice that ended last; may be empty."""
        words, voice = self._words, self._voice
        if voice.is_echo:
            words.discard_final()
            return self._stop_in_spite_of_echo(at_ms, Utterance(text, confidences))
        text, confidences = words.without_echo(text, confidences)
        if voice.is_warming_up(at_ms) and self._replies.says(text):
            text, confidences = "", ()
        # They are about a voice that has ended; what is known now may be the next one's.
        stretches_ms = voice.ended.stretches_ms if voice.goes_on else voice.stretches_ms
        kind = words.take_final(
            Utterance(text, confidences, stretches_ms, True, voice.ended.level_db),
            voice.last_ended,
            asked=self._replies.is_question_open(at_ms),
            state=self._state,
            is_far=voice.is_far_level(voice.ended.level_db),
            held_until_ms=max(voice.noticed_ms + self._settings.words_wait_ms, at_ms),
        )
        return self._take_kind(at_ms, kind, text, confidences)

    def _take_kind(
        self, at_ms: int, kind: Kind | None, text: str, confidences: tuple[float, ...]
    ) -> Decision | None:
        """Act on final words of a kind; None when they wait for the spotter."""
        if kind is Kind.STOP:
            return self._stop(at_ms)
        if kind is not None and kind.claims_floor:
            self._words.drop_held()
            return self._mean_all(at_ms)
        if self._voice.goes_on or (kind is not None and self.holds_words):
            return None
        self._words.keep(text, confidences)
        if kind is None:
            return None
        is_nothing = self._state is State.WEIGHED or (self._state is State.CUT and kind.leaves_floor)
        return self._dismiss(at_ms) if is_nothing else None

    def on_turn_ended(self) -> None:
        """What was understood is being answered: nothing waits any more, and no question is open."""
        self._words.end_turn()
        self._replies.close_question()

    def on_spotting(self) -> None:
        """The voice that just ended is short, and an engine that knows few words listens to it once more:
        ``on_spotted`` follows, with its number. Until then a recogniser's words that are not sure are not
        believed.
        """
        findings, number = self._voice.findings, self._voice.number
        over_reply = self._state in (State.WEIGHED, State.ARMED, State.PROTECTED)
        is_left = self._state is State.REPLYING and findings.holds(VoiceFinding.LEFT, number)
        if over_reply or is_left:
            findings.note(VoiceFinding.SPOTTING, number)
        else:
            findings.drop(VoiceFinding.SPOTTING)

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
        words, findings = self._words, self._voice.findings
        number = self._voice.number if voice is None else voice
        words.begin_spotted(number)
        is_own = findings.holds(VoiceFinding.OWN, number) or (
            number == self._voice.number and self._voice.is_echo
        )
        # Another person's "no" is no answer to the bot.
        is_far = findings.holds(VoiceFinding.FAR, number) and words.kind(Utterance(text)) is not Kind.STOP
        if is_own or is_far:
            # So were its words.
            return self._settle_held(at_ms, meant=False)
        if findings.holds(VoiceFinding.LISTENS, number) or self._voice.is_warming_up(at_ms):
            # A caller who is surely understood to listen does, and a sound of the first seconds may be the
            # bot's.
            floor_log_odds = None
        match words.take_spotted(text, number, floor_log_odds):
            case SpotVerdict.STOP:
                return self._stop(at_ms)
            case SpotVerdict.COMMAND:
                return self._mean_all(at_ms)
            case SpotVerdict.WANTS_FLOOR:
                return self._give_floor(at_ms, number)
            case SpotVerdict.BELIEVE_HELD:
                return self._settle_held(at_ms, meant=True)
            case SpotVerdict.DROP_HELD:
                return self._settle_held(at_ms, meant=False)
            case SpotVerdict.NOTHING:
                return None

    # Time.

    def next_deadline_ms(self) -> int | None:
        """When ``on_deadline`` is to be called; None while nothing is awaited."""
        due_ms, held = self._state_due_ms(), self._words.held
        if held is None:
            return due_ms
        return held.until_ms if due_ms is None else min(due_ms, held.until_ms)

    def _state_due_ms(self) -> int | None:
        chosen, voice, replies = self._settings, self._voice, self._replies
        match self._state:
            case State.ARMED:
                return voice.confirm_at_ms(self._patience_ms())
            case State.WEIGHED:
                return voice.noticed_ms + chosen.words_wait_ms
            case State.CUT:
                return min(self._settled_at_ms(), replies.cut_ms + chosen.undecided_ms)
            case State.PROTECTED:
                return replies.protected_ms + chosen.protected_longest_ms
            case State.REPLYING if voice.state is VoiceState.LEFT and self._looks is not None:
                return voice.left_until_ms(self._looks.left_confirm_ms)
            case State.REPLYING | State.LISTENING:
                return replies.due_ms()

    def on_deadline(self, at_ms: int) -> Decision | None:
        """The decision that is due at ``at_ms``, if one is."""
        held = self._words.held
        if held is not None and at_ms >= held.until_ms:
            return self._settle_held(at_ms, meant=True)
        due_ms = self._state_due_ms()
        return self._time_out(at_ms) if due_ms is not None and at_ms >= due_ms else None

    def _time_out(self, at_ms: int) -> Decision | None:
        """Leave the state because nothing has happened in it for too long."""
        voice = self._voice
        match self._state:
            case State.ARMED:
                return self._judge_voice(at_ms)
            case State.WEIGHED:
                voice.findings.drop(VoiceFinding.SPOTTING)
                if self._kind(at_ms).claims_floor:
                    return self._mean(at_ms, Reason.WORDS)
                return self._dismiss(at_ms)
            case State.CUT if voice.state is VoiceState.ON:
                return self._mean(at_ms, Reason.DURATION)
            case State.CUT:
                return self._dismiss(at_ms)
            case State.PROTECTED:
                return self._protect(at_ms, protected=False)
            case State.REPLYING if voice.state is VoiceState.LEFT:
                return self._judge_left_voice(at_ms)
            case State.REPLYING | State.LISTENING:
                return self._move(Event.OVER, at_ms)

    def _patience_ms(self) -> int:
        """Return for how long the present voice is too short to be meant."""
        chosen, words = self._settings, self._words
        grown_ms = chosen.confirm_ms + self._replies.false_in_a_row * chosen.confirm_growth_ms
        least_ms = chosen.listener_confirm_ms if words.may_listen else 0
        wait_ms = max(least_ms, min(grown_ms, chosen.confirm_longest_ms))
        if self._voice.is_early:
            wait_ms = chosen.early_confirm_ms
        # The length of the voice aside: it is what is being decided on.
        so_far = words.utterance((), self._voice.level_db, is_over=False)
        if words.has_words and words.kind(so_far).leaves_floor:
            return max(wait_ms, chosen.sounds.backchannel_ms)
        return wait_ms

    def _settled_at_ms(self) -> int:
        """When it is known whether a cut was meant, if no words come."""
        chosen, voice, cut_ms = self._settings, self._voice, self._replies.cut_ms
        if voice.state is VoiceState.ON:
            return max(cut_ms, voice.onset_ms) + chosen.taken_ms
        if not self._words.has_words and sum(voice.stretches_ms) <= chosen.confirm_ms:
            # Cut early, and too short to be more than a cough: the caller waits for the answer.
            return max(voice.noticed_ms, cut_ms) + chosen.words_wait_ms
        return max(voice.fell_quiet_ms + chosen.resume_ms, voice.noticed_ms)

    # From sounds and words to events.

    def _judge_voice(self, at_ms: int) -> Decision | None:
        """Decide on a voice that has lasted."""
        voice = self._voice
        if voice.state is VoiceState.ON and not voice.is_far:
            return self._mean(at_ms, Reason.DURATION)
        voice.take(VoiceEvent.TOO_FAR)
        return self._dismiss(at_ms)

    def _judge_left_voice(self, at_ms: int) -> Decision | None:
        """Decide on a voice that lasts although it was taken for a listener's."""
        self._voice.findings.drop(VoiceFinding.LEFT)
        if not self._voice.is_far:
            return self._mean(at_ms, Reason.DURATION)
        self._voice.take(VoiceEvent.OUTLASTED)
        return None

    def _arm(
        self, at_ms: int, onset_ms: int, *, is_same_voice: bool = False, is_same_echo: bool = False
    ) -> Decision | None:
        """Count a voice from ``onset_ms`` on."""
        words, is_armed = self._words, self._state is State.ARMED
        words.begin_voice(echo_words=words.echo_words if is_same_echo else 0)
        self._voice.arm(
            onset_ms,
            is_early=self._replies.is_early(onset_ms),
            joins=self._state in (State.ARMED, State.WEIGHED, State.CUT),
            keeps_level=is_armed or is_same_voice,
            keeps_looks=is_armed or is_same_echo,
        )
        return self._move(Event.VOICE, at_ms)

    def _begin(self, at_ms: int, reply_id: str, protected: bool, *, is_heard: bool) -> Decision | None:
        if self._replies.begin(reply_id, at_ms, is_heard=is_heard):
            self._move(Event.REPLY, at_ms)
        return self._protect(at_ms, protected)

    def _protect(self, at_ms: int, protected: bool) -> Decision | None:
        if protected:
            if self._state is not State.PROTECTED:
                self._replies.protect(at_ms)
            return self._move(Event.PROTECT, at_ms)
        if self._state is State.PROTECTED:
            self._move(Event.RELEASE, at_ms)
        if self._state is State.REPLYING and self._voice.state is VoiceState.ON:
            # A caller who speaks while the bot begins is ducked for as well. From here on the voice counts.
            onset_ms = at_ms if self._replies.is_heard else self._voice.onset_ms
            return self._arm(at_ms, onset_ms, is_same_voice=True)
        return None

    def _mean(self, at_ms: int, reason: Reason) -> Decision | None:
        self._voice.take(VoiceEvent.MEANT)
        if self._state is State.CUT:
            self._replies.note_meant()
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
        if self._words.believe_held(voice):
            return self._mean_all(at_ms)
        return None if self._state is State.CUT else self._mean(at_ms, Reason.WORDS)

    def _settle_held(self, at_ms: int, *, meant: bool) -> Decision | None:
        """Words that waited are believed, or were a guess."""
        if not self.holds_words:
            return None
        if self._words.settle_held(meant=meant):
            return self._mean_all(at_ms)
        is_over = self._state is State.WEIGHED and not self._voice.goes_on
        return self._dismiss(at_ms) if is_over else None

    def _stop(self, at_ms: int) -> Decision | None:
        if self._state is State.PROTECTED and not self._settings.protected_yields_to_stop:
            return None
        self._replies.note_meant()
        return self._move(Event.STOP, at_ms, Reason.STOP_WORD)

    def _stop_in_spite_of_echo(self, at_ms: int, heard: Utterance) -> Decision | None:
        """A word that the bot does not say is the caller's, whatever the levels say."""
        replies = self._replies
        is_stop = replies.is_known and self._words.kind(heard) is Kind.STOP
        return self._stop(at_ms) if is_stop and not replies.says(heard.text) else None

    def _dismiss(self, at_ms: int) -> Decision | None:
        self._voice.dismiss(at_ms)
        if self._state is State.CUT:
            self._replies.note_false()
            if self._replies.is_nothing_left:
                return self._move(Event.OVER, at_ms)
        return self._move(Event.DISMISSED, at_ms)

    def _utterance(self, at_ms: int, *, is_over: bool) -> Utterance:
        return self._words.utterance(self._voice.voiced_ms(at_ms), self._voice.level_db, is_over=is_over)

    def _kind(self, at_ms: int) -> Kind:
        heard = self._utterance(at_ms, is_over=not self._voice.goes_on)
        return self._words.kind(heard, asked=self._replies.is_question_open(at_ms))

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
            self._replies.end()
        if self._state is not State.ARMED:
            # What may be a voice is only followed where something hangs on it.
            self._voice.take(VoiceEvent.FORGOTTEN)
        self._on_floor(self._state is not State.LISTENING)
        return decision

    def _carry_out(self, act: Act, at_ms: int, reason: Reason) -> Decision | None:
        match act:
            case Act.DUCK:
                self._voice.duck(at_ms)
                return Duck(at_ms, self._settings.duck_db)
            case Act.RESTORE:
                return Restore(at_ms)
            case Act.CUT:
                voiced_ms = self._utterance(at_ms, is_over=False).voiced_ms
                return Cut(at_ms, self._replies.cut(at_ms), reason, voiced_ms)
            case Act.RESUME:
                return Resume(at_ms, *self._replies.resume(at_ms))
            case Act.NOTHING:
                return None
