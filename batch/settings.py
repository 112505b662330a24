"""Settings of a batch job: engine, speakers, and what one file may cost."""

from typing import Any, Literal

from pydantic import Field

from parley.core.strict_model import StrictModel

GB = 1_000_000_000
# Rate of the voice activity detector, which cuts the pieces, and of the recognisers.
RATE_HZ = 16_000
MS_PER_HOUR = 3_600_000

ChannelMode = Literal["auto", "mix", "split"]


class RecogniserChoice(StrictModel):
    """Row of the registry of recognisers with its settings."""

    name: str
    settings: dict[str, Any] = Field(default_factory=dict)


class FileLimits(StrictModel):
    """Bounds of one source, whatever is in it, and of the processes and requests for it."""

    most_gb: float = Field(4.0, gt=0, le=1_000, description="largest file, in gigabytes")
    most_hours: float = Field(12.0, gt=0, le=1_000, description="longest audio, in hours")
    least_share: float = Field(
        0.98,
        ge=0,
        le=1,
        description="share of a damaged file that must be readable; 0: all of them are taken",
    )
    decode_memory_mb: int = Field(
        1_500, ge=500, le=64_000, description="address space of the process that decodes, in megabytes"
    )
    decode_stall_s: float = Field(
        30.0, gt=0, le=3_600, description="time without audio after which a decoder is killed"
    )
    stall_s: float = Field(
        180.0, gt=0, le=86_400, description="time without progress after which a worker is killed"
    )
    tries: int = Field(
        2, ge=1, le=10, description="times that a source may crash or hang its process before it is parked"
    )
    load_s: float = Field(
        120.0, gt=0, le=3_600, description="time after which a worker that has not loaded is killed"
    )
    s3_retry_s: float = Field(
        120.0, ge=0, le=3_600, description="time during which a failed request to S3 is tried again"
    )

    @property
    def most_ms(self) -> int:
        """Longest audio, in milliseconds."""
        return round(self.most_hours * MS_PER_HOUR)


class BatchSettings(StrictModel):
    """Settings that a worker needs; all but the limits decide what is written."""

    recogniser: RecogniserChoice
    channels: ChannelMode = Field(
        "auto",
        description="mix: all channels are one signal; split: each of two channels is a speaker; auto: "
        "split, unless both channels have the same sound",
    )
    specialists: tuple[str, ...] = Field(
        (), description="voice specialists to run: speakers (by voice, where channels are mixed), prosody"
    )
    sessions: bool = Field(False, description="write each transcript as a session too")
    limits: FileLimits = FileLimits()
