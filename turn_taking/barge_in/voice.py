"""Track the caller's voice for ``barge_in``: its state, times and level, and findings about voices.

Inputs: when a voice may have begun, began and ended, its level, whether it is the bot's own, and the
decisions about it. Output: the facts that a decision needs. The module decides nothing itself.

The states of a voice and their transitions are ``VOICE_TRANSITIONS``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from parley.turn_taking.barge_in.settings import BargeInTuning


class VoiceState(Enum):
    """State of the caller's voice."""

    SILENT = "silent"
    # Silent, and the last sound was the bot's own: so are the words that come.
    ECHO_ENDED = "echo ended"
    MAYBE = "maybe"
    ON = "on"
    # These voices continue: judged not to be meant, too far away, a listener's by the sound, the bot's own.
    DISMISSED = "dismissed"
    FAR = "far"
    LEFT = "left"
    ECHO = "echo"


class VoiceEvent(Enum):
    """Reason for a voice to change its state."""

    SUSPECTED = "something that may be a voice began"
    BEGAN = "a voice began"
    ENDED = "the voice fell silent"
    FORGOTTEN = "nothing hangs on what may be a voice"
    DISMISSED = "the voice was not meant"
    TOO_FAR = "the voice lasted and is far away"
    LEFT = "an early look took it for a listener's"
    OUTLASTED = "it goes on longer than a listener's, and is far away"
    MEANT = "the caller means it"
    CAME_NEAR = "who was far away speaks up"
    OWN = "it is the bot's own"
    NOT_OWN = "it surely is not"


_S, _E = VoiceState, VoiceEvent

VOICE_TRANSITIONS: Mapping[tuple[VoiceState, VoiceEvent], VoiceState] = {
    (_S.SILENT, _E.SUSPECTED): _S.MAYBE,
    (_S.SILENT, _E.BEGAN): _S.ON,
    (_S.SILENT, _E.OWN): _S.ECHO_ENDED,
    (_S.ECHO_ENDED, _E.SUSPECTED): _S.MAYBE,
    (_S.ECHO_ENDED, _E.BEGAN): _S.ON,
    (_S.ECHO_ENDED, _E.NOT_OWN): _S.SILENT,
    (_S.MAYBE, _E.BEGAN): _S.ON,
    (_S.MAYBE, _E.ENDED): _S.SILENT,
    (_S.MAYBE, _E.FORGOTTEN): _S.SILENT,
    (_S.MAYBE, _E.DISMISSED): _S.SILENT,
    (_S.MAYBE, _E.OWN): _S.ECHO_ENDED,
    (_S.ON, _E.ENDED): _S.SILENT,
    (_S.ON, _E.DISMISSED): _S.DISMISSED,
    (_S.ON, _E.TOO_FAR): _S.FAR,
    (_S.ON, _E.LEFT): _S.LEFT,
    (_S.ON, _E.OWN): _S.ECHO,
    (_S.DISMISSED, _E.ENDED): _S.SILENT,
    (_S.DISMISSED, _E.MEANT): _S.ON,
    (_S.DISMISSED, _E.OWN): _S.ECHO,
    (_S.FAR, _E.ENDED): _S.SILENT,
    (_S.FAR, _E.MEANT): _S.ON,
    (_S.FAR, _E.CAME_NEAR): _S.ON,
    (_S.FAR, _E.OWN): _S.ECHO,
    (_S.LEFT, _E.ENDED): _S.SILENT,
    (_S.LEFT, _E.OUTLASTED): _S.DISMISSED,
    (_S.LEFT, _E.MEANT): _S.ON,
    (_S.LEFT, _E.OWN): _S.ECHO,
    (_S.ECHO, _E.ENDED): _S.ECHO_ENDED,
    (_S.ECHO, _E.NOT_OWN): _S.ON,
}

# States in which the caller's voice continues, and states in which any voice does.
_CALLERS = frozenset({_S.ON, _S.DISMISSED, _S.FAR, _S.LEFT})
_GOES_ON = _CALLERS | {_S.ECHO}


class VoiceFinding(Enum):
    """Fact that was established about a voice, which may be over by then."""

    OWN = "it was the bot's own"
    FAR = "it was far away"
    LEFT = "an early look took it for a listener's"
    SPOTTING = "a spotter listens to it once more"
    NO_COMMAND = "the spotter heard no command"
    WANTS_FLOOR = "it wants the floor by how it sounds"
    LISTENS = "a listener was surely understood"
    SOUNDS_LISTENING = "it only listens by how it sounds"


class VoiceFindings:
    """Record of the last voice, by its number, for which each finding holds.

    Voices are numbered because a finding about one may arrive while the next one is on.
    """

    def __init__(self) -> None:
        self._voices: dict[VoiceFinding, int] = {}

    def note(self, finding: VoiceFinding, voice: int) -> None:
        """Record a finding about a voice."""
        self._voices[finding] = voice

    def holds(self, finding: VoiceFinding, voice: int) -> bool:
        """Return whether a finding holds for this voice."""
        return self._voices.get(finding) == voice

    def drop(self, *findings: VoiceFinding, of: int | None = None) -> None:
        """Forget findings, about any voice or about one."""
        for finding in findings:
            if of is None or self.holds(finding, of):
                self._voices.pop(finding, None)


@dataclass(frozen=True, slots=True)
class EndedVoice:
    """The last voice that ended.

    Attributes:
        stretches_ms: lengths of its stretches, and of those before it since the bot was at full volume.
        level_db: its level relative to the caller's usual level.
    """

    stretches_ms: tuple[int, ...] = ()
    level_db: float | None = None


class VoiceTracker:
    """Tracker of one caller's voice.

    Args:
        settings: thresholds of the barge-in.

    Attributes:
        state: presence of a voice, and its interpretation.
        number: number of voices that have begun.
        findings: facts established about voices.
        onset_ms: when the present stretch began.
        fell_quiet_ms: when the last voice fell silent.
        noticed_ms: when that was noticed.
        hold_until_ms: until when a pause may be the end of the voice.
        stretches_ms: lengths of the stretches that ended since the bot was last at full volume.
        level_db: level of the present voice relative to the caller's usual level.
        ended: the last voice that ended.
        is_early: True when the voice began before the reply was heard, or hardly after.
    """

    def __init__(self, settings: BargeInTuning) -> None:
        self._settings = settings
        self.state = VoiceState.SILENT
        self.number = 0
        self.findings = VoiceFindings()
        self.onset_ms = self.fell_quiet_ms = self.noticed_ms = self.hold_until_ms = 0
        self.stretches_ms: tuple[int, ...] = ()
        self.level_db: float | None = None
        self.ended = EndedVoice()
        self.is_early = False
        # Times: a possible voice counts again; the bot was ducked; the echo canceller has converged.
        self._maybe_from_ms = self._ducked_ms = self._warm_at_ms = 0
        # Verdicts in a row that the voice is not the bot's own.
        self._near_end_looks = 0

    def take(self, event: VoiceEvent) -> bool:
        """Change the state according to the table; return whether it changed."""
        state = VOICE_TRANSITIONS.get((self.state, event))
        if state is not None:
            self.state = state
        return state is not None

    @property
    def is_silent(self) -> bool:
        """Return whether there is no voice, nor a sound that may be one."""
        return self.state in (VoiceState.SILENT, VoiceState.ECHO_ENDED)

    @property
    def goes_on(self) -> bool:
        """Return whether a confirmed voice is present."""
        return self.state in _GOES_ON

    @property
    def is_echo(self) -> bool:
        """Return whether the last sound is the bot's own."""
        return self.state in (VoiceState.ECHO, VoiceState.ECHO_ENDED)

    @property
    def last_ended(self) -> int:
        """The number of the voice that ended last."""
        return self.number - self.goes_on

    @property
    def is_far(self) -> bool:
        """Return whether the present voice is too soft to be the caller's."""
        return self.is_far_level(self.level_db)

    def is_far_level(self, level_db: float | None) -> bool:
        """Return whether a voice of this level is too soft to be the caller's."""
        return level_db is not None and level_db <= self._settings.sounds.quiet_db

    # Course of the voice.

    def suspect(self, at_ms: int) -> bool:
        """Register a sound that may be a voice, and return whether it counts as one."""
        return at_ms >= self._maybe_from_ms and self.take(VoiceEvent.SUSPECTED)

    def begin(self) -> bool:
        """Register the beginning of a voice, and return whether it is a new one."""
        is_new = self.take(VoiceEvent.BEGAN)
        self.number += is_new
        return is_new

    def arm(
        self, onset_ms: int, *, is_early: bool, joins: bool, keeps_level: bool, keeps_looks: bool
    ) -> None:
        """Count the voice from here on.

        Args:
            onset_ms: beginning of the stretch that counts.
            is_early: True when it continues the caller's turn.
            joins: True when it is judged together with the stretches before.
            keeps_level: True when the measured level still applies.
            keeps_looks: True when the verdicts about the bot's own voice still apply.
        """
        self.onset_ms, self.hold_until_ms, self.is_early = onset_ms, 0, is_early
        if not joins:
            self.stretches_ms = ()
        if not keeps_level:
            self.level_db = None
        if not keeps_looks:
            self._near_end_looks = 0

    def note_level(self, level_db: float) -> None:
        """Record the level of the voice."""
        self.level_db = level_db

    def pause(self, at_ms: int) -> None:
        """Register a pause that may be the end of the voice."""
        self.hold_until_ms = at_ms + self._settings.pause_hold_ms

    def end(self, at_ms: int, *, silence_ms: int) -> bool:
        """Register the end of the voice, and return whether there was one."""
        was_echo = self.state is VoiceState.ECHO
        if not self.take(VoiceEvent.ENDED):
            return False
        self.fell_quiet_ms, self.noticed_ms = at_ms - silence_ms, at_ms
        if not was_echo:
            self.stretches_ms += (max(0, self.fell_quiet_ms - self.onset_ms),)
        self.ended = EndedVoice(self.stretches_ms, self.level_db)
        if self.is_far:
            self.findings.note(VoiceFinding.FAR, self.number)
        return True

    def dismiss(self, at_ms: int) -> None:
        """Note that the voice was not meant; a sound that was no voice does not count again at once."""
        was_maybe = self.state is VoiceState.MAYBE
        self.take(VoiceEvent.DISMISSED)
        if was_maybe:
            self._maybe_from_ms = at_ms + self._settings.maybe_rest_ms

    def leave(self) -> None:
        """Note that an early look took the voice for a listener's."""
        self.take(VoiceEvent.LEFT)
        self.findings.note(VoiceFinding.LEFT, self.number)

    # Length of the voice.

    def voiced_ms(self, at_ms: int) -> tuple[int, ...]:
        """Return the lengths of its stretches, with that of the present one."""
        if self.state not in _CALLERS:
            return self.stretches_ms
        return (*self.stretches_ms, max(0, at_ms - self.onset_ms))

    def confirm_at_ms(self, patience_ms: int) -> int:
        """Return when the voice will have lasted for ``patience_ms``, as far as is known."""
        chosen = self._settings
        if self.state is VoiceState.MAYBE:
            return self.onset_ms + chosen.maybe_ms
        due_ms = max(self.onset_ms + patience_ms + chosen.end_lag_ms, self.hold_until_ms)
        return due_ms if self._is_surely_near_end else max(due_ms, self._warm_at_ms)

    def left_until_ms(self, wait_ms: int) -> int:
        """Return when a voice that was taken for a listener's has lasted too long for one."""
        return max(self.onset_ms + wait_ms + self._settings.end_lag_ms, self.hold_until_ms)

    # Ducking.

    def duck(self, at_ms: int) -> None:
        """Note that the bot speaks lower from here on."""
        self._ducked_ms = at_ms

    def is_ducked_too_long(self, at_ms: int) -> bool:
        """Return whether the bot has been ducked for the longest time allowed for intermittent voices."""
        return at_ms - self._ducked_ms >= self._settings.duck_longest_ms

    # Origin of the voice.

    def change_echo_path(self, at_ms: int) -> None:
        """Note that the echo canceller has to converge again."""
        self._warm_at_ms = at_ms + self._settings.warm_up_ms

    def is_warming_up(self, at_ms: int) -> bool:
        """Return whether the canceller is converging, and no verdict shows that the voice is the caller's."""
        return at_ms < self._warm_at_ms and not self._is_surely_near_end

    @property
    def _is_surely_near_end(self) -> bool:
        return self._near_end_looks >= self._settings.near_end_looks

    def take_own(self, at_ms: int) -> None:
        """Note that the voice is the bot's own."""
        if self.state is VoiceState.MAYBE:
            self._maybe_from_ms = at_ms + self._settings.maybe_rest_ms
        self.take(VoiceEvent.OWN)
        self._near_end_looks = 0
        self.findings.note(VoiceFinding.OWN, self.number)

    def take_not_own(self) -> bool:
        """Register a verdict that the voice is not the bot's own, and return whether that is certain now."""
        self._near_end_looks += 1
        return self._is_surely_near_end
