"""Decide whether the engine runs during mutual silence.

An engine that runs in every unit may act in silence: ask whether the caller is still there, or continue by
itself. Where this is not wanted, two thirds of its units are spent on silence. ``vad`` leaves out the units
of a mutual silence from ``hold_ms`` on; ``wake`` runs it again after each ``wake_ms`` of silence, for
``hold_ms``.

Audio from just before a voice is confirmed is kept and processed first. The module is pure; times in
milliseconds.
"""

from enum import Enum

from pydantic import Field

from parley.core.strict_model import StrictModel


class Gating(Enum):
    """Selection of the units that are taken."""

    NONE = "none"
    VAD = "vad"
    WAKE = "wake"


class GateSettings(StrictModel):
    """Conditions under which silence is left out."""

    gating: Gating = Field(
        Gating.NONE,
        description="none: the engine gets every unit; vad: no units of silence; wake: some units of a "
        "silence",
    )
    hold_ms: int = Field(
        3_000, ge=200, le=60_000, description="silence after the last voice that the engine still receives"
    )
    wake_ms: int = Field(
        10_000, ge=1_000, le=600_000, description="``wake``: silence after which the engine gets a unit again"
    )
    before_ms: int = Field(
        480,
        ge=0,
        le=2_000,
        description="audio from before the onset of a voice that the engine receives with it",
    )


class UnitGate:
    """Gate of one conversation.

    Args:
        settings: conditions under which silence is left out.
        began_ms: beginning of the conversation, which counts as activity.
    """

    def __init__(self, settings: GateSettings, began_ms: int) -> None:
        self._settings = settings
        self._active_ms = began_ms

    def is_open(self, at_ms: int, *, is_active: bool) -> bool:
        """Return whether the unit that is due is taken.

        Args:
            at_ms: when it is due.
            is_active: True when either side speaks.
        """
        chosen = self._settings
        if chosen.gating is Gating.NONE:
            return True
        quiet_ms = at_ms - self._active_ms
        if is_active or (chosen.gating is Gating.WAKE and quiet_ms >= chosen.hold_ms + chosen.wake_ms):
            self._active_ms = at_ms
            return True
        return quiet_ms <= chosen.hold_ms
