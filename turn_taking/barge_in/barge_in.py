"""Decide whether the caller is interrupting and how the bot reacts.

Inputs: when a voice may have begun, began and ended; the words recognised in it; what the bot is saying and
how much of it was heard; whether the voice is the bot's own echo. Output of each call: at most one decision,
one of ``Duck`` (speak lower), ``Restore`` (return to full volume), ``Cut`` (flush the reply) and
``ResumeReply`` (say the rest of a reply that was cut for nothing, from the first word that was not heard).

A voice ducks the reply at once: this costs nothing and shows the caller that they are heard. The reply is cut
when an early look at the sound of the voice is certain (``looks``), when the voice lasts, when words of
weight are recognised, or on a stop word. A look that is certain of the opposite restores the volume; words of
weight, or a voice that lasts in spite of it, still cut. A hum, a cough or the bot's own echo restores the
volume. When no words arrive, duration decides. Duration can be wrong: if the interruption turns out to be
unintended, the rest of the reply is spoken. A voice that began before the reply was heard continues the
caller's turn, and needs less.

The states and their transitions are in ``table``. Three objects hold the facts: the caller's voice
(``voice``), the bot's replies (``replies``) and the meaning of words (``words``).
This module turns their facts into events of the table, and keeps the deadlines. A protected reply yields to
stop words, or to nothing. A machine that waits for nothing is in ``LISTENING``; every other state has a
deadline, so that a lost event costs seconds and not the call.

All times are milliseconds on the session clock. Times of a voice are those of the voice itself; the delay of
the detector is given with them. Words that wait for the spotter wait in any state.
"""

from parley.core.errors import IllegalTransition
from parley.core.tuning import tuned
from parley.language.vocabulary import UtteranceVocabulary
from parley.turn_taking.barge_in.looks import LookVerdict
from parley.turn_taking.barge_in.replies import ReplyTracker
from parley.turn_taking.barge_in.settings import BargeInSettings, BargeInTuning
from parley.turn_taking.barge_in.table import (
    IGNORED,
    TRANSITIONS,
    BargeInAct,
    BargeInEvent,
    BargeInState,
    Cut,
    CutReason,
    Decision,
    Duck,
    Restore,
    ResumeReply,
)
from parley.turn_taking.barge_in.voice import VoiceEvent, VoiceFinding, VoiceState, VoiceTracker
from parley.turn_taking.barge_in.words import SpotVerdict, WordArbiter
from parley.turn_taking.utterances import Utterance, UtteranceKind


class BargeIn:
    """Barge-in state machine of one call.

    Args:
        settings: thresholds and waits; None for the defaults.
        vocabulary: words of the language that is spoken; None for the default language.
    """

    def __init__(
        self, settings: BargeInSettings | None = None, *, vocabulary: UtteranceVocabulary | None = None
    ) -> None:
        self._settings = tuned(BargeInTuning, settings)
        self._looks = self._settings.look_bounds if self._settings.looks else None
        self._state = BargeInState.LISTENING
        self._voice = VoiceTracker(self._settings)
        self._replies = ReplyTracker(self._settings)
        self._words = WordArbiter(self._settings, self._voice.findings, vocabulary=vocabulary)
        # Latest beginning of a voice whose turn has the words that were not believed before it.
        self._doubted_until_ms = 0

    @property
    def settings(self) -> BargeInTuning:
        """The settings in effect, with the values that no deployment sets."""
        return self._settings

    @property
    def state(self) -> BargeInState:
        """The current state of the machine."""
        return self._state

    @property
    def bot_has_floor(self) -> bool:
        """True while a reply is on, on its way or about to be resumed."""
        return self._state is not BargeInState.LISTENING

    @property
    def holds_words(self) -> bool:
        """True while final words wait for the spotter; ``take_verdict`` returns the result."""
        return self._words.held is not None

    def take_verdict(self) -> bool | None:
        """Return once whether the words that waited were meant.

        Returns None when nothing was decided since the last call. Also returns None when certain words, or
        the end of the caller's turn, have included the waiting words.

        The words of an ended voice may be settled after the reply has ended or has become protected. No
        decision of the machine reports that.
        """
        return self._words.take_verdict()

    @property
    def has_doubted(self) -> bool:
        """True when the last final words were not believed, and may be the caller's all the same."""
        return self._words.is_doubted

    def doubted_due_ms(self) -> int | None:
        """Return when words that were not believed have to be taken back.

        Such words were too unsure to cut the reply, and may begin a sentence. They are kept for
        ``follow_ms``: they belong to the turn of a voice that follows and takes the floor. Returns None
        without any, and while such a voice is on.
        """
        if not self._words.is_doubted:
            return None
        voice, until_ms = self._voice, self._doubted_until_ms
        if voice.onset_ms > until_ms:
            return until_ms
        if voice.state in (VoiceState.ON, VoiceState.LEFT):
            return None
        return max(until_ms, voice.noticed_ms + self._settings.words_wait_ms)

    def holds_doubted(self, at_ms: int) -> bool:
        """Return whether words that were not believed are still kept."""
        due_ms = self.doubted_due_ms()
        return self._words.is_doubted and (due_ms is None or at_ms < due_ms)

    def forget_doubted(self) -> None:
        """Note that the words that were not believed are in a turn now, or were taken back."""
        self._words.forget_doubted()

    @property
    def last_is_guess(self) -> bool:
        """True when the last final words claim nothing, or may be a recogniser's guess at a short sound."""
        return self._words.last.is_guess

    @property
    def spotted_command(self) -> bool:
        """True when the last spotted words are a command that is meant."""
        return self._words.spotted_command

    @property
    def voice_number(self) -> int:
        """The number of voices that have begun, which is the number of the last one."""
        return self._voice.number

    @property
    def is_ducked(self) -> bool:
        """True while the bot speaks at a lower volume."""
        return self._state in (BargeInState.ARMED, BargeInState.WEIGHED)

    @property
    def caller_has_floor(self) -> bool:
        """True while the caller speaks and the bot does not: the caller's turn has begun."""
        return self._voice.state is VoiceState.ON and self._state in (
            BargeInState.LISTENING,
            BargeInState.CUT,
        )

    @property
    def last_kind(self) -> UtteranceKind | None:
        """The kind of the last final words; None before any, and for the bot's own words."""
        return self._words.last.kind

    # Events of the bot.

    def on_reply(self, at_ms: int, reply_id: str, *, protected: bool = False) -> Decision | None:
        """Register a reply that is about to be spoken; nothing of it is heard yet."""
        replies = self._replies
        if replies.was_cut(reply_id):
            return None
        if replies.is_current(reply_id):
            return self._protect(at_ms, protected)
        if replies.is_heard and self._state is not BargeInState.CUT:
            replies.follow(reply_id, protected=protected)
            return None
        # After a cut nothing of the reply is heard any more: the next reply is the answer to the caller.
        return self._begin(at_ms, reply_id, protected, is_heard=False)

    def on_bot_started(self, at_ms: int, reply_id: str, *, protected: bool = False) -> Decision | None:
        """Register the first audio of a reply."""
        if self._replies.was_cut(reply_id):
            return None
        self._replies.drop_following(reply_id)
        return self._begin(at_ms, reply_id, protected, is_heard=True)

    def on_bot_stopped(self, at_ms: int, reply_id: str) -> Decision | None:
        """Register that a reply was heard to its end, or will not come. Other replies are ignored."""
        replies = self._replies
        if (
            replies.drop_following(reply_id)
            or not replies.is_current(reply_id)
            or self._state is BargeInState.CUT
        ):
            return None
        following = replies.take_following()
        if following is not None:
            return self._begin(at_ms, following.reply_id, following.protected, is_heard=False)
        return self._move(BargeInEvent.OVER, at_ms)

    def on_protected(self, at_ms: int, protected: bool) -> Decision | None:
        """Protect the current reply from interruption from here on, or release it."""
        return self._protect(at_ms, protected) if self._replies.current is not None else None

    def on_saying(self, reply_id: str, text: str) -> None:
        """Record words that the bot is about to say.

        Words that it does not say cannot be its echo. In the first seconds (``warm_up_ms``) words that it
        does say are taken for its echo.
        """
        self._replies.note_saying(reply_id, text)

    def on_question(self, at_ms: int) -> None:
        """Record that the last word of a question was heard."""
        self._replies.ask(at_ms)

    def on_heard(self, reply_id: str, last_word: int, *, is_rest_heard: bool = False) -> None:
        """Record how far a reply was heard, while it is spoken or after it was cut.

        Args:
            reply_id: the reply.
            last_word: index of the last word heard, -1 when none was.
            is_rest_heard: True when nothing of it is left.
        """
        self._replies.note_heard(reply_id, last_word, is_rest_heard=is_rest_heard)

    def on_echo_path_changed(self, at_ms: int) -> None:
        """Note that a call begins or another loudspeaker is used: the echo canceller must converge again."""
        self._voice.change_echo_path(at_ms)

    # Events of the caller.

    def on_maybe_voice(self, at_ms: int) -> Decision | None:
        """Handle a sound that may be a voice; the detector is still confirming it."""
        # A click after words that wait must not decide about them.
        is_open = self._state in (BargeInState.REPLYING, BargeInState.WEIGHED) and not self.holds_words
        if not self._settings.maybe_ms or not is_open or not self._voice.suspect(at_ms):
            return None
        return self._arm(at_ms, at_ms)

    def on_voice_started(self, at_ms: int, *, voiced_ms: int = 0) -> Decision | None:
        """Handle a voice that began ``voiced_ms`` before ``at_ms``."""
        return self._arm(at_ms, at_ms - voiced_ms) if self._voice.begin() else None

    def on_maybe_quiet(self, at_ms: int) -> None:
        """Note that the voice has paused and may have ended; the detector is still confirming it."""
        self._voice.pause(at_ms)

    def on_voice_stopped(self, at_ms: int, *, silence_ms: int) -> Decision | None:
        """Handle the end of a voice that fell silent ``silence_ms`` before ``at_ms``."""
        if not self._voice.end(at_ms, silence_ms=silence_ms):
            return None
        if self._state is not BargeInState.ARMED:
            return self._move(BargeInEvent.QUIET, at_ms)
        if self._voice.is_ducked_too_long(at_ms):
            return self._dismiss(at_ms)
        if not self._words.has_words and self._kind(at_ms) is UtteranceKind.NOISE:
            return self._dismiss(at_ms)
        return self._move(BargeInEvent.QUIET, at_ms)

    def on_level(self, at_ms: int, level_db: float) -> Decision | None:
        """Record the level of the present voice relative to the caller's usual one, at its loudest so far.

        A caller who was taken for another person and then speaks up begins a voice by that.
        """
        self._voice.note_level(level_db)
        if self._voice.is_far or not self._voice.take(VoiceEvent.CAME_NEAR):
            return None
        return self._arm(at_ms, at_ms, is_same_voice=True)

    def on_look(self, at_ms: int, look: int, log_odds: float, *, voice: int) -> Decision | None:
        """Handle the result of one early look at the sound of a voice.

        Args:
            at_ms: time of the result.
            look: index of the look.
            log_odds: log odds that the speaker wants the floor.
            voice: number of the voice. A result about another voice than the present one, or about one that
                is already decided, comes too late and changes nothing.
        """
        chosen, heard = self._looks, self._voice
        is_open = self._state is BargeInState.ARMED and heard.state is VoiceState.ON and voice == heard.number
        if chosen is None or not is_open or heard.is_warming_up(at_ms) or heard.is_far:
            return None
        verdict = chosen.verdict(look, log_odds)
        if verdict is LookVerdict.TAKE:
            return self._mean(at_ms, CutReason.SOUND)
        # A caller who was asked, or who continues a turn, is not dismissed by a guess.
        if verdict is LookVerdict.LEAVE and not (heard.is_early or self._replies.is_question_open(at_ms)):
            heard.leave()
            return self._dismiss(at_ms)
        return None

    def on_self_voice(self, at_ms: int, *, own: bool) -> Decision | None:
        """Handle a verdict, one per look, that the sound is the bot's own voice or certainly is not."""
        voice = self._voice
        if own:
            voice.take_own(at_ms)
            self.forget_doubted()
            return self._dismiss(at_ms)
        if not voice.take_not_own():
            return None
        was_on = voice.state is VoiceState.ECHO
        voice.take(VoiceEvent.NOT_OWN)
        voice.findings.drop(VoiceFinding.OWN, of=voice.number)
        # The words recognised until now were the bot's.
        return self._arm(at_ms, at_ms, is_same_voice=True, is_same_echo=True) if was_on else None

    # Recognised words.

    def on_partial(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decision | None:
        """Handle the words recognised in the present voice so far.

        Args:
            at_ms: time of the result.
            text: the words, of the whole stretch.
            confidences: see ``Utterance``. PocketSphinx has none for a partial and writes "man up" for a hum.
                Pass its 0.0 on: then its partials confirm nothing and its final words do.
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
        if kind is UtteranceKind.STOP:
            return self._stop(at_ms)
        return self._mean(at_ms, CutReason.WORDS) if words.confirms(kind, heard) else None

    def on_final(self, at_ms: int, text: str, *, confidences: tuple[float, ...] = ()) -> Decision | None:
        """Handle the final words of the voice that ended last; they may be empty."""
        words, voice = self._words, self._voice
        if voice.is_echo:
            words.discard_final()
            return self._stop_in_spite_of_echo(at_ms, Utterance(text, confidences))
        text, confidences = words.without_echo(text, confidences)
        if voice.is_warming_up(at_ms) and self._replies.says(text):
            text, confidences = "", ()
        # The words are about a voice that has ended; the present measurements may be the next one's.
        stretches_ms = voice.ended.stretches_ms if voice.goes_on else voice.stretches_ms
        kind = words.take_final(
            Utterance(text, confidences, stretches_ms, True, voice.ended.level_db),
            voice.last_ended,
            asked=self._replies.is_question_open(at_ms),
            state=self._state,
            is_far=voice.is_far_level(voice.ended.level_db),
            held_until_ms=max(voice.noticed_ms + self._settings.words_wait_ms, at_ms),
        )
        self._doubted_until_ms = voice.noticed_ms + self._settings.follow_ms
        return self._take_kind(at_ms, kind, text, confidences)

    def _take_kind(
        self, at_ms: int, kind: UtteranceKind | None, text: str, confidences: tuple[float, ...]
    ) -> Decision | None:
        """Act on final words of a kind; None when they wait for the spotter."""
        if kind is UtteranceKind.STOP:
            return self._stop(at_ms)
        if kind is not None and kind.claims_floor:
            self._words.drop_held()
            return self._mean_all(at_ms)
        if self._voice.goes_on or (kind is not None and self.holds_words):
            return None
        self._words.keep(text, confidences)
        if kind is None:
            return None
        is_nothing = self._state is BargeInState.WEIGHED or (
            self._state is BargeInState.CUT and kind.leaves_floor
        )
        return self._dismiss(at_ms) if is_nothing else None

    def on_turn_ended(self) -> None:
        """Note that the turn is being answered: nothing waits any more, and no question is open."""
        self._words.end_turn()
        self._replies.close_question()

    def on_spotting(self) -> None:
        """Note that a keyword spotter examines the short voice that just ended.

        ``on_spotted`` follows with the number of the voice. Until then words of the recogniser that are not
        certain are not believed.
        """
        findings, number = self._voice.findings, self._voice.number
        over_reply = self._state in (BargeInState.WEIGHED, BargeInState.ARMED, BargeInState.PROTECTED)
        is_left = self._state is BargeInState.REPLYING and findings.holds(VoiceFinding.LEFT, number)
        if over_reply or is_left:
            findings.note(VoiceFinding.SPOTTING, number)
        else:
            findings.drop(VoiceFinding.SPOTTING)

    def on_spotted(
        self, at_ms: int, text: str, *, voice: int | None = None, floor_log_odds: float | None = None
    ) -> Decision | None:
        """Handle the spotter's result for a voice that has ended: a command, or nothing.

        Nothing means a listener's word, a hum or no word at all: other words that a recogniser writes for so
        short a voice are its best guess at a sound that it does not know.

        Args:
            at_ms: time of the result.
            text: the command; empty when there was none.
            voice: number of the voice; None is the last one. When another voice has begun since, only a
                command, a voice that wants the floor, and words that wait are considered.
            floor_log_odds: log odds that the voice wants the floor, by its sound; None when the engine does
                not report them.
        """
        words, findings = self._words, self._voice.findings
        number = self._voice.number if voice is None else voice
        words.begin_spotted(number)
        is_own = findings.holds(VoiceFinding.OWN, number) or (
            number == self._voice.number and self._voice.is_echo
        )
        # Another person's "no" is no answer to the bot.
        is_far = (
            findings.holds(VoiceFinding.FAR, number) and words.kind(Utterance(text)) is not UtteranceKind.STOP
        )
        if is_own or is_far:
            # Its words were not the caller's either.
            return self._settle_held(at_ms, meant=False)
        if findings.holds(VoiceFinding.LISTENS, number) or self._voice.is_warming_up(at_ms):
            # A caller whose words are certainly a listener's is listening, and a sound of the first seconds
            # may be the bot's.
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

    # Deadlines.

    def next_deadline_ms(self) -> int | None:
        """Return when ``on_deadline`` must be called; None while nothing is awaited."""
        due_ms, held = self._state_due_ms(), self._words.held
        if held is None:
            return due_ms
        return held.until_ms if due_ms is None else min(due_ms, held.until_ms)

    def _state_due_ms(self) -> int | None:
        chosen, voice, replies = self._settings, self._voice, self._replies
        match self._state:
            case BargeInState.ARMED:
                return voice.confirm_at_ms(self._patience_ms())
            case BargeInState.WEIGHED:
                return voice.noticed_ms + chosen.words_wait_ms
            case BargeInState.CUT:
                return min(self._settled_at_ms(), replies.cut_ms + chosen.undecided_ms)
            case BargeInState.PROTECTED:
                return replies.protected_ms + chosen.protected_longest_ms
            case BargeInState.REPLYING if voice.state is VoiceState.LEFT and self._looks is not None:
                return voice.left_until_ms(self._looks.left_confirm_ms)
            case BargeInState.REPLYING | BargeInState.LISTENING:
                return replies.due_ms()

    def on_deadline(self, at_ms: int) -> Decision | None:
        """Return the decision that is due at ``at_ms``; None when there is none."""
        held = self._words.held
        if held is not None and at_ms >= held.until_ms:
            return self._settle_held(at_ms, meant=True)
        due_ms = self._state_due_ms()
        return self._time_out(at_ms) if due_ms is not None and at_ms >= due_ms else None

    def _time_out(self, at_ms: int) -> Decision | None:
        """Leave the state because nothing has happened in it for too long."""
        voice = self._voice
        match self._state:
            case BargeInState.ARMED:
                return self._judge_voice(at_ms)
            case BargeInState.WEIGHED:
                voice.findings.drop(VoiceFinding.SPOTTING)
                if self._kind(at_ms).claims_floor:
                    return self._mean(at_ms, CutReason.WORDS)
                return self._dismiss(at_ms)
            case BargeInState.CUT if voice.state is VoiceState.ON:
                return self._mean(at_ms, CutReason.DURATION)
            case BargeInState.CUT:
                return self._dismiss(at_ms)
            case BargeInState.PROTECTED:
                return self._protect(at_ms, protected=False)
            case BargeInState.REPLYING if voice.state is VoiceState.LEFT:
                return self._judge_left_voice(at_ms)
            case BargeInState.REPLYING | BargeInState.LISTENING:
                return self._move(BargeInEvent.OVER, at_ms)

    def _patience_ms(self) -> int:
        """Return the length up to which the present voice is too short to be meant."""
        chosen, words = self._settings, self._words
        grown_ms = chosen.confirm_ms + self._replies.false_in_a_row * chosen.confirm_growth_ms
        least_ms = chosen.listener_confirm_ms if words.may_listen else 0
        wait_ms = max(least_ms, min(grown_ms, chosen.confirm_longest_ms))
        if self._voice.is_early:
            wait_ms = chosen.early_confirm_ms
        # The length of the voice is left out: it is the quantity that is being decided on.
        so_far = words.utterance((), self._voice.level_db, is_over=False)
        if words.has_words and words.kind(so_far).leaves_floor:
            return max(wait_ms, chosen.sounds.backchannel_ms)
        return wait_ms

    def _settled_at_ms(self) -> int:
        """Return when it is settled whether a cut was meant, if no words arrive."""
        chosen, voice, cut_ms = self._settings, self._voice, self._replies.cut_ms
        if voice.state is VoiceState.ON:
            return max(cut_ms, voice.onset_ms) + chosen.taken_ms
        if not self._words.has_words and sum(voice.stretches_ms) <= chosen.confirm_ms:
            # Cut early, and too short to be more than a cough: the caller waits for the answer.
            return max(voice.noticed_ms, cut_ms) + chosen.words_wait_ms
        return max(voice.fell_quiet_ms + chosen.resume_ms, voice.noticed_ms)

    # Translation of sounds and words into events.

    def _judge_voice(self, at_ms: int) -> Decision | None:
        """Decide on a voice that has lasted."""
        voice = self._voice
        if voice.state is VoiceState.ON and not voice.is_far:
            return self._mean(at_ms, CutReason.DURATION)
        voice.take(VoiceEvent.TOO_FAR)
        return self._dismiss(at_ms)

    def _judge_left_voice(self, at_ms: int) -> Decision | None:
        """Decide on a voice that lasts although it was taken for a listener's."""
        self._voice.findings.drop(VoiceFinding.LEFT)
        if not self._voice.is_far:
            return self._mean(at_ms, CutReason.DURATION)
        self._voice.take(VoiceEvent.OUTLASTED)
        return None

    def _arm(
        self, at_ms: int, onset_ms: int, *, is_same_voice: bool = False, is_same_echo: bool = False
    ) -> Decision | None:
        """Count a voice from ``onset_ms`` on."""
        words, is_armed = self._words, self._state is BargeInState.ARMED
        words.begin_voice(echo_words=words.echo_words if is_same_echo else 0)
        self._voice.arm(
            onset_ms,
            is_early=self._replies.is_early(onset_ms),
            joins=self._state in (BargeInState.ARMED, BargeInState.WEIGHED, BargeInState.CUT),
            keeps_level=is_armed or is_same_voice,
            keeps_looks=is_armed or is_same_echo,
        )
        return self._move(BargeInEvent.VOICE, at_ms)

    def _begin(self, at_ms: int, reply_id: str, protected: bool, *, is_heard: bool) -> Decision | None:
        if self._replies.begin(reply_id, at_ms, is_heard=is_heard):
            self._move(BargeInEvent.REPLY, at_ms)
        return self._protect(at_ms, protected)

    def _protect(self, at_ms: int, protected: bool) -> Decision | None:
        if protected:
            if self._state is not BargeInState.PROTECTED:
                self._replies.protect(at_ms)
            return self._move(BargeInEvent.PROTECT, at_ms)
        if self._state is BargeInState.PROTECTED:
            self._move(BargeInEvent.RELEASE, at_ms)
        if self._state is BargeInState.REPLYING and self._voice.state is VoiceState.ON:
            # A caller who speaks while the bot begins is ducked for as well. From here on the voice counts.
            onset_ms = at_ms if self._replies.is_heard else self._voice.onset_ms
            return self._arm(at_ms, onset_ms, is_same_voice=True)
        return None

    def _mean(self, at_ms: int, reason: CutReason) -> Decision | None:
        self._voice.take(VoiceEvent.MEANT)
        if self._state is BargeInState.CUT:
            self._replies.note_meant()
        return self._move(BargeInEvent.MEANT, at_ms, reason)

    def _mean_all(self, at_ms: int) -> Decision | None:
        """Treat the voice as meant, and any cut that it has caused: no further words of it will arrive."""
        decision = self._mean(at_ms, CutReason.WORDS)
        if self._state is BargeInState.CUT:
            self._mean(at_ms, CutReason.WORDS)
        return decision

    def _give_floor(self, at_ms: int, voice: int) -> Decision | None:
        """Give the floor to an ended voice whose sound claims it.

        Its words confirm that. Without any the reply continues.
        """
        if self._words.believe_held(voice):
            return self._mean_all(at_ms)
        return None if self._state is BargeInState.CUT else self._mean(at_ms, CutReason.WORDS)

    def _settle_held(self, at_ms: int, *, meant: bool) -> Decision | None:
        """Decide on the words that waited: they are believed, or were a guess."""
        if not self.holds_words:
            return None
        if self._words.settle_held(meant=meant):
            return self._mean_all(at_ms)
        self._doubted_until_ms = self._voice.noticed_ms + self._settings.follow_ms
        is_over = self._state is BargeInState.WEIGHED and not self._voice.goes_on
        return self._dismiss(at_ms) if is_over else None

    def _stop(self, at_ms: int) -> Decision | None:
        if self._state is BargeInState.PROTECTED and not self._settings.protected_yields_to_stop:
            return None
        self._replies.note_meant()
        return self._move(BargeInEvent.STOP, at_ms, CutReason.STOP_WORD)

    def _stop_in_spite_of_echo(self, at_ms: int, heard: Utterance) -> Decision | None:
        """Stop on a word that the bot is not saying: it is the caller's, whatever the levels indicate."""
        replies = self._replies
        is_stop = replies.is_known and self._words.kind(heard) is UtteranceKind.STOP
        return self._stop(at_ms) if is_stop and not replies.says(heard.text) else None

    def _dismiss(self, at_ms: int) -> Decision | None:
        self._voice.dismiss(at_ms)
        if self._state is BargeInState.CUT:
            self._replies.note_false()
            if self._replies.is_nothing_left:
                return self._move(BargeInEvent.OVER, at_ms)
        return self._move(BargeInEvent.DISMISSED, at_ms)

    def _utterance(self, at_ms: int, *, is_over: bool) -> Utterance:
        return self._words.utterance(self._voice.voiced_ms(at_ms), self._voice.level_db, is_over=is_over)

    def _kind(self, at_ms: int) -> UtteranceKind:
        heard = self._utterance(at_ms, is_over=not self._voice.goes_on)
        return self._words.kind(heard, asked=self._replies.is_question_open(at_ms))

    # Translation of events into decisions.

    def _move(
        self, event: BargeInEvent, at_ms: int, reason: CutReason = CutReason.DURATION
    ) -> Decision | None:
        """Handle an event according to the table.

        Raises:
            IllegalTransition: the table has no row for it in this state.
        """
        row = TRANSITIONS.get((self._state, event))
        if row is None:
            if event in IGNORED[self._state]:
                return None
            raise IllegalTransition(self._state, event)
        self._state, act = row
        decision = self._carry_out(act, at_ms, reason)
        if self._state is BargeInState.LISTENING:
            self._replies.end()
        if self._state is not BargeInState.ARMED:
            # A sound that may be a voice is only followed where a decision depends on it.
            self._voice.take(VoiceEvent.FORGOTTEN)
        return decision

    def _carry_out(self, act: BargeInAct, at_ms: int, reason: CutReason) -> Decision | None:
        match act:
            case BargeInAct.DUCK:
                self._voice.duck(at_ms)
                return Duck(at_ms, self._settings.duck_db)
            case BargeInAct.RESTORE:
                return Restore(at_ms)
            case BargeInAct.CUT:
                voiced_ms = self._utterance(at_ms, is_over=False).voiced_ms
                return Cut(at_ms, self._replies.cut(at_ms), reason, voiced_ms)
            case BargeInAct.RESUME:
                return ResumeReply(at_ms, *self._replies.resume(at_ms))
            case BargeInAct.NOTHING:
                return None
