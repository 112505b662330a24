"""The settings of a full-duplex engine."""

from pydantic import BaseModel, ConfigDict, Field

from processors.duplex.camera import CameraSettings
from processors.duplex.tick import TickSettings
from processors.duplex.voice import VoiceSettings


class DuplexSettings(BaseModel):
    """How a full-duplex engine talks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tick: TickSettings = TickSettings()
    camera: CameraSettings = CameraSettings()
    voice: VoiceSettings = VoiceSettings()
    pause_ms: int = Field(60_000, ge=1_000, le=600_000, description="nobody pauses for longer")
    most_failures: int = Field(
        3, ge=1, le=20, description="so many failures in a row and the conversation is given up"
    )
    retry_ms: int = Field(
        500,
        ge=0,
        le=60_000,
        description="wait behind a failure without a unit, times failures",
    )
    recovered_units: int = Field(
        100, ge=1, le=100_000, description="units behind which a failure is forgotten"
    )
