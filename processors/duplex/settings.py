"""Settings of a full-duplex engine."""

from pydantic import Field

from core.strict_model import StrictModel
from processors.duplex.camera import CameraSettings
from processors.duplex.gate import Gating
from processors.duplex.tick import TickSettings
from processors.duplex.voice import SpeechPacing


class DuplexSettings(StrictModel):
    """Units that an engine is given, and the longest time for which it may be paused."""

    gating: Gating = Field(
        Gating.NONE,
        description="none: an engine takes every unit; vad: not those of a silence; wake: of a silence some",
    )
    pause_ms: int = Field(
        60_000, ge=1_000, le=600_000, description="longest pause that a client can ask for (``pause``)"
    )


class DuplexTuning(DuplexSettings):
    """Duplex settings including the values that no deployment sets."""

    tick: TickSettings = TickSettings()
    camera: CameraSettings = CameraSettings()
    voice: SpeechPacing = SpeechPacing()
    most_failures: int = Field(
        3, ge=1, le=20, description="so many failures in a row and the conversation is given up"
    )
    retry_ms: int = Field(
        500, ge=0, le=60_000, description="wait after a failure without a unit, times failures"
    )
    recovered_units: int = Field(
        100, ge=1, le=100_000, description="units after which a failure is forgotten"
    )

    def gated(self) -> TickSettings:
        """Return the tick settings with the gating of this deployment."""
        gate = self.tick.gate.model_copy(update={"gating": self.gating})
        return self.tick.model_copy(update={"gate": gate})
