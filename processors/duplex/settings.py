"""Settings of a full-duplex engine."""

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.processors.duplex.camera import CameraSettings
from parley.processors.duplex.gate import Gating
from parley.processors.duplex.tick import TickSettings
from parley.processors.duplex.voice import SpeechPacing


class DuplexSettings(StrictModel):
    """Units that an engine is given, and the longest time for which it may be paused."""

    gating: Gating = Field(
        Gating.NONE,
        description="none: the engine gets every unit; vad: no units of silence; wake: some units of a "
        "silence",
    )
    pause_ms: int = Field(
        60_000, ge=1_000, le=600_000, description="longest pause that a client can request (``pause``)"
    )


class DuplexTuning(DuplexSettings):
    """Duplex settings including the values that no deployment sets."""

    tick: TickSettings = TickSettings()
    camera: CameraSettings = CameraSettings()
    voice: SpeechPacing = SpeechPacing()
    most_failures: int = Field(
        3, ge=1, le=20, description="consecutive failures after which the conversation ends"
    )
    retry_ms: int = Field(
        500,
        ge=0,
        le=60_000,
        description="wait after a failure without a unit, multiplied by the number of failures",
    )
    recovered_units: int = Field(
        100, ge=1, le=100_000, description="units after which a failure no longer counts"
    )

    def gated(self) -> TickSettings:
        """Return the tick settings with the gating of this deployment."""
        gate = self.tick.gate.model_copy(update={"gating": self.gating})
        return self.tick.model_copy(update={"gate": gate})
